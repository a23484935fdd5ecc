package watch_test

import (
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/watch"
)

// training stands for a train.Loop with three steps and an evaluation after the last.
func training(h train.Hook) {
	steps := func(s train.Start) (err error) {
		for done := s.Step + 1; done <= s.Steps && err == nil; done++ {
			err = h.OnStep(train.Step{
				Report: train.Report{Step: done, LearningRate: 1e-3, GradientNorm: 0.75},
				Done:   done, Steps: s.Steps, Loss: 4 / float64(done), Tokens: s.TokensPerStep,
				Duration: 20 * time.Millisecond, Elapsed: time.Duration(done) * 20 * time.Millisecond,
			})
		}
		return err
	}
	start := train.Start{Steps: 3, Parameters: 809856, TokensPerStep: 768}
	for _, event := range []func() error{
		func() error { return h.OnStart(start) },
		func() error { return steps(start) },
		func() error { return h.OnEval(train.Evaluation{Done: 3, Train: 1.25, Validation: 1.5, Best: true}) },
		func() error {
			return h.OnEnd(train.End{Done: 3, Steps: 3, BestLoss: 1.5, BestStep: 3, Elapsed: 90 * time.Millisecond})
		},
	} {
		if err := event(); err != nil {
			log.Fatal(err)
		}
	}
}

// Where the output is no terminal, there are lines instead of a bar.
func ExampleProgress() {
	training(watch.Progress(os.Stdout))
	// Output:
	// training 809,856 parameters for 3 steps of 768 tokens
	// step 1/3  loss 4.0000  lr 1.0e-03  norm 0.75  38.4k tok/s  0s left
	// step 3/3  loss 2.4002  lr 1.0e-03  norm 0.75  38.4k tok/s
	// step 3/3  evaluation: train 1.2500, validation 1.5000, best so far
	// done after 100ms at step 3/3, best loss 1.5000 at step 3, 38.4k tok/s
}

func ExampleCSV() {
	training(watch.CSV(os.Stdout))
	// Output:
	// event,step,loss,validation_loss,learning_rate,gradient_norm,clipped,skipped,tokens,seconds,elapsed_seconds,examples
	// step,1,4,,0.001,0.75,false,false,768,0.02,0.02,0
	// step,2,2,,0.001,0.75,false,false,768,0.02,0.04,0
	// step,3,1.3333333333333333,,0.001,0.75,false,false,768,0.02,0.06,0
	// evaluation,3,1.25,1.5,,,,,,0,,
}

// A log is read again to see which step was the best.
func ExampleReadJSONLines() {
	var file strings.Builder
	training(watch.JSONLines(&file))

	run, err := watch.ReadJSONLines(strings.NewReader(file.String()))
	if err != nil {
		log.Fatal(err)
	}
	best := math.Inf(1)
	for _, s := range run.Steps {
		best = min(best, s.Loss)
	}
	fmt.Printf("%d steps, the best loss is %.2f, in validation %.2f\n", len(run.Steps), best, run.Evaluations[0].Validation)
	// Output: 3 steps, the best loss is 1.33, in validation 1.50
}

// A folder of its own for each run shows them side by side.
func ExampleTensorBoard() {
	folder, err := os.MkdirTemp("", "runs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	for _, name := range []string{"first", "second"} {
		training(watch.TensorBoard(filepath.Join(folder, name)))
	}
	files, err := filepath.Glob(filepath.Join(folder, "*", "events.out.tfevents.*"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(files), "event files")
	// Output: 2 event files
}

// The whole curve of a run that was interrupted and resumed is in its log.
func ExampleDraw() {
	folder, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "log.jsonl")
	training(watch.OpenJSONLines(path))

	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	run, err := watch.ReadJSONLines(file)
	if err != nil {
		log.Fatal(err)
	}
	if err := watch.Draw(filepath.Join(folder, "loss.svg"), run); err != nil {
		log.Fatal(err)
	}
	// Output:
}

func ExamplePlot() {
	folder, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "loss.svg")
	training(watch.Plot(path))
	picture, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(string(picture), "validation loss, at best 1.500"))
	// Output: true
}
