package train

import (
	"fmt"
	"time"
)

// Hook is told what happens in a [Loop]; a nil function is not called. The functions run one after
// another on the loop's goroutine, so time that they take is time that the training does not go on;
// OnCancel and OnCompile alone run on others.
//
// An error ends the run with that error, after a checkpoint and after OnEnd of every hook. There
// are two exceptions: a [Notice] is told to every OnNotice and the run goes on, and so it does
// without a Display that fails.
type Hook struct {
	// OnStart is called once, before the first step.
	OnStart func(Start) error
	// OnBatch is called after each batch of an evaluation, and of a step that has more than one.
	OnBatch func(Batch) error
	// OnStep is called after each step.
	OnStep func(Step) error
	// OnBack is called when the training has gone back to an earlier step. What was recorded of
	// later steps counts no more: they come again.
	OnBack func(Back) error
	// OnEval is called after each evaluation.
	OnEval func(Evaluation) error
	// BeforeCheckpoint is called before a checkpoint is written. What a hook has recorded needs to
	// be in its file when it returns: a run that is killed and resumed does not tell of the
	// checkpoint's steps again.
	BeforeCheckpoint func() error
	// OnCheckpoint is called after a checkpoint was written, which on a device is some steps after
	// its own.
	OnCheckpoint func(Checkpoint) error
	// OnCancel is called at the moment that the run's context is cancelled, on a goroutine of its
	// own, beside any other.
	OnCancel func(Cancel)
	// OnNotice is called with what people should know: one line, of a hook that returned a Notice,
	// or of a display that failed.
	OnNotice func(Notice) error
	// OnCompile is called with a line for people when a GPU's kernel for a score or mask of one's
	// own, or for dropout or slopes that ranks share, is compiled, which takes seconds the first
	// time, and when that is done, on the goroutine that needs it.
	OnCompile func(line string)
	// OnEnd is called once, after the last step, whatever the reason to stop.
	OnEnd func(End) error

	// Display says that the hook only shows the run. When one of its functions fails it is told of
	// nothing more but the end, and the training goes on.
	Display bool
}

// Notice is a line that people should see. As the error of a hook's function it does not end the
// run.
type Notice string

// Error returns the line.
func (n Notice) Error() string { return string(n) }

// Start is where a run begins.
type Start struct {
	Step       int  // steps that were done before: 0 unless the run was resumed
	Steps      int  // the step at which it will end
	Resumed    bool // from a checkpoint
	Evaluated  bool // the evaluation after Step was told of, and does not come again
	Parameters int  // how many numbers the model has
	Trained    int  // how many of them training changes

	// ExamplesPerStep and TokensPerStep are those of the first step; see Step.
	ExamplesPerStep, TokensPerStep int

	Metrics []string // the names of the model's metrics

	// Survives says that the training goes on in another process when this one is lost. What is
	// recorded of a step needs to be in its file when OnStep returns.
	Survives bool
}

// Batch is how far a step or an evaluation has come.
type Batch struct {
	Done           int // steps that are done, the present one not among them
	Evaluation     bool
	Batch, Batches int // that are through, and that there are
}

// Cancel is what a run that is to stop will do.
type Cancel struct {
	Reason     error // the context's cause, such as a signal
	Checkpoint bool  // it writes one before it ends
}

// Step is what happened in one step.
type Step struct {
	Report
	Done     int           // steps that are done, skipped ones included: the first is 1
	Steps    int           // the step at which the run will end
	Loss     float64       // of the step's batches, before the parameters changed
	Examples int           // of the step: rows of its largest arrays
	Tokens   int           // of the step: elements of its arrays called tokens; 0 without any
	Duration time.Duration // of the step, without evaluations, checkpoints and hooks
	Elapsed  time.Duration // since the run started

	Metrics map[string]float64 // those of the model's metrics that are scalars, by name; nil without any

	// Waited is, by rank, how long the others have waited for it since the step before, on average:
	// for its data, its part of the step, and what its hooks and checkpoints took. Nil for one
	// rank.
	Waited []time.Duration
}

// Back is a training that has gone back to a checkpoint by itself, see [GoBack].
type Back struct {
	From, Done int    // steps that were done, and that are done now
	LeftOut    int    // steps whose batches are not taken again: the data go on after them
	Why        string // such as "the loss of step 1200 is 9.31, ..."
}

// String says so in a line.
func (b Back) String() string {
	text := fmt.Sprintf("%s: the training goes back from step %d to %d", b.Why, b.From, b.Done)
	if b.LeftOut > 0 {
		text += fmt.Sprintf(" and leaves out the batches of %d steps", b.LeftOut)
	}
	return text
}

// Evaluation is a look at the losses in between, on batches that no gradient was taken from.
type Evaluation struct {
	Done       int     // steps that are done
	Train      float64 // mean loss on batches of the training data
	Validation float64 // mean loss on batches of the validation data; NaN where there is none
	Best       bool    // no evaluation before had a smaller loss (on the validation data, if there is any)
	Duration   time.Duration

	TrainMetrics, ValidationMetrics map[string]float64 // the model's metrics on these batches, by name; nil without any
}

// Checkpoint is a checkpoint that was written.
type Checkpoint struct {
	Done     int // steps that were done when its copy was taken
	Path     string
	Best     bool          // it is that of the smallest loss, beside those that a run is resumed from
	Duration time.Duration // of writing it, which on a device goes on beside steps
}

// End is how a run ended.
type End struct {
	Done      int           // steps that are done
	Steps     int           // the step at which it was to end
	Cancelled bool          // its context was cancelled; what it had reached is in Checkpoint, if it has a folder
	Err       error         // what went wrong, nil if nothing did
	BestLoss  float64       // the smallest loss of an evaluation, NaN if there was none
	BestStep  int           // when that was
	Elapsed   time.Duration // since the run started

	Checkpoint string   // path of the newest checkpoint to resume from, "" if there is none
	Notices    []Notice // all that hooks were told, in order
}
