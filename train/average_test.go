package train_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/tensor"
)

// averaged makes a loop train by one of the golden optimisers, and keep an average that it
// evaluates.
func averaged(name string) func(c *train.LoopConfig) {
	return func(c *train.LoopConfig) {
		golden := goldenOptimizers[name]
		c.Optimizer, c.Options.Groups = golden.optimizer, golden.groups
		c.Options.Average = &train.Average{Decay: 0.8, Evaluate: true}
	}
}

// Each optimiser goes on from its checkpoint with the same bits, and so does an average.
func TestOptimizersResume(t *testing.T) {
	slow.Race(t)
	for name := range goldenOptimizers {
		straight := countingLoop(t, nil, averaged(name))
		want := runLoop(t, straight, context.Background())
		path := t.TempDir()
		folder := openFolder(t, path, 2)
		ctx, cancel := context.WithCancel(context.Background())
		runLoop(t, countingLoop(t, folder, func(c *train.LoopConfig) {
			averaged(name)(c)
			c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
				if s.Done == 7 {
					cancel()
				}
				return nil
			}}}
		}), ctx)
		folder = reopen(t, folder, path, 2)
		saved, _, err := folder.Latest()
		if err != nil || saved.Optimizer.Map()["average.norm.bias"] == nil {
			t.Fatalf("%s: the checkpoint has no average: %v", name, err)
		}
		second := countingLoop(t, folder, averaged(name))
		if _, err := second.Resume(); err != nil || second.Done() != 7 {
			t.Fatalf("%s: resumed at step %d: %v", name, second.Done(), err)
		}
		got := runLoop(t, second, context.Background())
		if !slices.Equal(bits(second), bits(straight)) || got.BestLoss != want.BestLoss {
			t.Errorf("%s: resumed, the weights or the best loss (%v, want %v) differ from an uninterrupted run's", name, got.BestLoss, want.BestLoss)
		}
	}
}

// Ranks train as one process does, whether they share the state or not. What needs whole matrices
// refuses to share it.
func TestOptimizersOnRanks(t *testing.T) {
	on := func(name string, size int, shard bool) ([]course, error) {
		list, errs := together{size: size, accumulation: 3 / size, shard: shard, dtype: tensor.Float32, change: func(_ int, c *train.LoopConfig) {
			averaged(name)(c)
		}}.train(t)
		return list, errors.Join(errs...)
	}
	for name := range goldenOptimizers {
		if slow.Racing() && name != "adamw" && name != "muon" {
			continue // what ranks do together is the same with all
		}
		one, err := on(name, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		two, err := on(name, 3, false)
		if err != nil || !slices.Equal(one[0].weights, two[1].weights) {
			t.Errorf("%s: the weights of three ranks differ from those of one process: %v", name, err)
		}
		shared, err := on(name, 3, true)
		if hosts, ok := goldenOptimizers[name].optimizer.(train.Adafactor); ok {
			if want := hosts.Name() + " computes with whole parameters"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s shares its state: %v", name, err)
			}
		} else if err != nil || !slices.Equal(one[0].weights, shared[1].weights) {
			t.Errorf("%s: the weights of three ranks that share the state differ from those of one process: %v", name, err)
		}
	}
}

// With the average in their place, parameters have the mean of what they were after each step, and
// then again the bits that they had.
func TestWithAverage(t *testing.T) {
	var loops []*train.Loop
	for _, steps := range []int{1, 2, 3} {
		loop := countingLoop(t, nil, func(c *train.LoopConfig) { averaged("adamw")(c); c.Steps, c.Evaluations.Every = steps, 0 })
		runLoop(t, loop, context.Background())
		loops = append(loops, loop)
	}
	var values [4][]float32
	for i, loop := range loops {
		values[i] = slices.Clone(loop.Parameters()[0].Value().Data().([]float32))
	}
	last := loops[2]
	before := bits(last)
	fault := errors.New("a fault")
	err := last.Stepper().WithAverage(func() error {
		values[3] = slices.Clone(last.Parameters()[0].Value().Data().([]float32))
		return fault
	})
	if !errors.Is(err, fault) || !slices.Equal(bits(last), before) {
		t.Errorf("the error is %v, or the weights are not as before", err)
	}
	const d = 0.8
	for i, got := range values[3] {
		want := (d*d*float64(values[0][i]) + d*float64(values[1][i]) + float64(values[2][i])) / (d*d + d + 1)
		if diff := float64(got) - want; !(diff < 1e-6 && diff > -1e-6) {
			t.Fatalf("element %d is %v, the mean is %v", i, got, want)
		}
	}
}

func TestAverageErrors(t *testing.T) {
	for want, change := range map[string]func(*train.LoopConfig){
		"the average has a decay of 1, it needs one between 0 and 1": func(c *train.LoopConfig) { c.Options.Average = &train.Average{Decay: 1} },
		"norm1.weight has shape [24], Muon needs a matrix":           func(c *train.LoopConfig) { c.Optimizer, c.Options.Groups = train.Muon{}, nil },
		"iterations is -1": func(c *train.LoopConfig) { c.Optimizer = train.Muon{Iterations: -1} },
		"clip is -1":       func(c *train.LoopConfig) { c.Optimizer = train.Adafactor{Clip: -1} },
	} {
		c := countingConfig(nil)
		change(&c)
		if _, err := train.NewLoop(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
