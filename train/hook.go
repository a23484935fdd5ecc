package train

import "time"

// Hook is told what happens in a [Loop]; a nil function is not called. The functions run one after another on the loop's
// goroutine, so time that they take is time that the training does not go on. An error from one of them ends the run
// with that error, after OnEnd of every hook.
type Hook struct {
	// OnStart is called once, before the first step.
	OnStart func(Start) error
	// OnStep is called after each step.
	OnStep func(Step) error
	// OnEval is called after each evaluation.
	OnEval func(Evaluation) error
	// OnCheckpoint is called after a checkpoint was written.
	OnCheckpoint func(Checkpoint) error
	// OnEnd is called once, after the last step, whatever the reason to stop.
	OnEnd func(End) error
}

// Start is where a run begins.
type Start struct {
	Step          int  // steps that were done before: 0 unless the run was resumed
	Steps         int  // the step at which it will end
	Resumed       bool // from a checkpoint
	Parameters    int  // how many numbers the model has
	TokensPerStep int
}

// Step is what happened in one step.
type Step struct {
	Report
	Done     int           // steps that are done, skipped ones included: the first is 1
	Steps    int           // the step at which the run will end
	Loss     float64       // of the step's batches, before the parameters changed
	Tokens   int           // of the step
	Duration time.Duration // of the step, without evaluations, checkpoints and hooks
	Elapsed  time.Duration // since the run started
}

// Evaluation is a look at the losses in between, on batches that no gradient was taken from.
type Evaluation struct {
	Done       int     // steps that are done
	Train      float64 // mean loss on batches of the training data
	Validation float64 // mean loss on batches of the validation data; NaN where there is none
	Best       bool    // no evaluation before had a smaller loss (on the validation data, if there is any)
	Duration   time.Duration
}

// Checkpoint is a checkpoint that was written.
type Checkpoint struct {
	Done     int // steps that are done
	Path     string
	Duration time.Duration
}

// End is how a run ended.
type End struct {
	Done      int           // steps that are done
	Steps     int           // the step at which it was to end
	Cancelled bool          // its context was cancelled, after which it wrote a checkpoint
	Err       error         // what went wrong, nil if nothing did
	BestLoss  float64       // the smallest loss of an evaluation, NaN if there was none
	BestStep  int           // when that was
	Elapsed   time.Duration // since the run started
}
