package watch

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// play tells hooks of a run as a train.Loop would, of the events that it is given: a train.Start,
// train.Step and so on. It stops at the first error, after telling of the end.
func play(h train.Hook, events ...any) error {
	call := func(event any) error {
		switch e := event.(type) {
		case train.Start:
			if h.OnStart != nil {
				return h.OnStart(e)
			}
		case train.Step:
			if h.OnStep != nil {
				return h.OnStep(e)
			}
		case train.Evaluation:
			if h.OnEval != nil {
				return h.OnEval(e)
			}
		case train.Batch:
			if h.OnBatch != nil {
				return h.OnBatch(e)
			}
		case train.Notice:
			if h.OnNotice != nil {
				return h.OnNotice(e)
			}
		case train.Checkpoint:
			if h.BeforeCheckpoint != nil {
				if err := h.BeforeCheckpoint(); err != nil {
					return err
				}
			}
			if h.OnCheckpoint != nil {
				return h.OnCheckpoint(e)
			}
		case train.End:
			if h.OnEnd != nil {
				return h.OnEnd(e)
			}
		default:
			panic(fmt.Sprintf("play: %T is no event", event))
		}
		return nil
	}
	for _, e := range events {
		if err := call(e); err != nil && !errors.As(err, new(train.Notice)) {
			return errors.Join(err, call(train.End{Err: err, BestLoss: math.NaN()}))
		}
	}
	return nil
}

// stepAt is the step after which so many are done, of a run of so many, with numbers that follow
// from it.
func stepAt(done, steps int) train.Step {
	return train.Step{
		Report: train.Report{Step: done, LearningRate: 1e-3 / float64(done), GradientNorm: 1 + 1/float64(done), Clipped: done%2 == 1},
		Done:   done, Steps: steps, Loss: 2 + 2/float64(done), Tokens: 768, Examples: 12, Duration: 20 * time.Millisecond,
		Elapsed: time.Duration(done) * 25 * time.Millisecond,
	}
}

func skippedAt(done, steps int) train.Step {
	s := stepAt(done, steps)
	s.Skipped, s.NonFinite, s.GradientNorm, s.Loss = true, "blocks.0.up.weight", math.Inf(1), math.NaN()
	return s
}

// run is the events of a run from one step to another, with an evaluation at each multiple of 4.
func run(from, to, steps int) []any {
	events := []any{train.Start{Step: from, Steps: steps, Resumed: from > 0, Parameters: 809856, TokensPerStep: 768}}
	evaluate := func(done int) {
		if done%4 == 0 {
			events = append(events, train.Evaluation{
				Done: done, Train: 2.5 - float64(done)/100, Validation: 2.6 - float64(done)/100, Best: true, Duration: 300 * time.Millisecond,
			})
		}
	}
	if from == 0 {
		evaluate(0)
	}
	for done := from + 1; done <= to; done++ {
		events = append(events, stepAt(done, steps))
		evaluate(done)
	}
	return append(events, train.End{
		Done: to, Steps: steps, Cancelled: to < steps, BestLoss: 2.5, BestStep: to, Elapsed: time.Duration(to) * 25 * time.Millisecond,
	})
}

// A folder that is not there, and one that is a file, are told before the first step, by name.
func TestUnwritable(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		hook func(path string) train.Hook
		path string
	}{
		{"OpenJSONLines", OpenJSONLines, filepath.Join(folder, "missing", "log.jsonl")},
		{"OpenCSV", OpenCSV, filepath.Join(folder, "missing", "log.csv")},
		{"TensorBoard", TensorBoard, filepath.Join(file, "events")},
		{"Plot", Plot, filepath.Join(folder, "missing", "loss.png")},
		{"Plot", Plot, filepath.Join(folder, "loss.jpg")},
	} {
		h := c.hook(c.path)
		err := h.OnStart(train.Start{Steps: 1})
		wantError(t, err, c.name+": ", filepath.Dir(c.path))
		if err := h.OnEnd(train.End{Err: err}); err != nil {
			t.Errorf("%s: end after a failed start: %v", c.name, err)
		}
	}
}

func TestNilWriter(t *testing.T) {
	for name, h := range map[string]train.Hook{"Progress": Progress(nil), "JSONLines": JSONLines(nil), "CSV": CSV(nil)} {
		wantError(t, play(h, run(0, 2, 2)...), name+": w is nil")
	}
	_, err := ReadJSONLines(nil)
	wantError(t, err, "r is nil")
}

// A disk that fills up ends the run.
func TestWriteErrors(t *testing.T) {
	full := errors.New("no space left on device")
	for _, c := range []struct {
		name string
		hook train.Hook
	}{
		{"Progress", Progress(failing{full})},
		{"JSONLines", JSONLines(failing{full})},
		{"CSV", CSV(failing{full})},
	} {
		err := play(c.hook, run(0, 8, 8)...)
		wantError(t, err, c.name+": ", full.Error())
		if !errors.Is(err, full) {
			t.Errorf("%s: %v is not the writer's error", c.name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
