package train_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// blobs are points around one of three centres, of several numbers of rows, which rows lists in
// turns.
func blobs(rows ...int) data.Batches {
	return data.Func(func(n int) (data.Batch, error) {
		count := rows[n%len(rows)]
		points, labels := make([]float32, 2*count), make([]int, count)
		for i := range labels {
			w := word("blob", n*97+i)
			labels[i] = int(w % 3)
			for axis := range 2 {
				points[2*i+axis] = 3*float32((labels[i]+1)>>axis&1) + float32(w>>(8*axis+8)&255)/255
			}
		}
		return data.Batch{
			"points": tensor.New(tensor.WithShape(count, 2), tensor.WithBacking(points)),
			"labels": tensor.New(tensor.WithShape(count), tensor.WithBacking(labels)),
		}, nil
	})
}

// blobModel is two linear layers and their accuracy. Calls counts its graphs.
func blobModel(calls *int) train.Model {
	return func(s *nn.Scope, in train.Inputs) train.Outputs {
		*calls++
		first := nn.NewLinear(s.Sub("first"), nn.LinearConfig{In: 2, Out: 16, Activation: 1})
		h := s.Linear("second", first.Forward(in.Get("points")), 3)
		out := train.Outputs{Loss: h.CrossEntropy(in.Get("labels"))}
		out.Metrics = []train.Metric{train.Accuracy(h, in.Get("labels")), train.Scalar("cross entropy", out.Loss), train.Perplexity(out.Loss)}
		return out
	}
}

// plain are the options of a constant rate.
func plain(rate float64, accumulation int) train.Options {
	return train.Options{Schedule: train.ConstantRate(rate), Accumulation: accumulation}
}

// A model of points and labels learns from batches of three shapes with one optimiser, a graph a
// shape, and its metrics are told.
func TestLoopOfOtherInputs(t *testing.T) {
	for _, accumulation := range []int{1, 2} {
		calls := 0
		var last train.Evaluation
		loop, err := train.NewLoop(train.LoopConfig{
			Model: blobModel(&calls), Parameters: nn.NewParameters(1), Optimizer: train.SGD{Momentum: 0.9}, Options: plain(0.1, accumulation), Data: blobs(8, 16, 12),
			Steps: 90, Evaluations: train.Evaluations{Every: 30, Batches: 6, Validation: blobs(32)},
			Hooks: []train.Hook{{
				OnStart: func(s train.Start) error {
					if want := []string{"accuracy", "cross entropy", "perplexity"}; !slices.Equal(s.Metrics, want) || s.TokensPerStep != 0 || s.Trained != 99 {
						t.Errorf("the start is %+v", s)
					}
					return nil
				},
				OnStep: func(s train.Step) error {
					if len(s.Metrics) != 2 || !(math.Abs(s.Metrics["cross entropy"]-s.Loss) <= 1e-6) || !(math.Abs(s.Metrics["perplexity"]-math.Exp(s.Loss)) <= 1e-5) {
						t.Errorf("step %d has a loss of %v and the metrics %v", s.Done, s.Loss, s.Metrics)
					}
					if want := []int{8, 16, 12}[(s.Done-1)%3]; accumulation == 1 && s.Examples != want || s.Tokens != 0 {
						t.Errorf("step %d has %d examples and %d tokens, want %d and 0", s.Done, s.Examples, s.Tokens, want)
					}
					return nil
				},
				OnEval: func(e train.Evaluation) error {
					last = e
					return nil
				},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer loop.Close()
		if _, err := loop.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if calls != 3+4 { // shapes that train, and shapes that are evaluated
			t.Errorf("the model was made %d times, want 7", calls)
		}
		if accuracy := last.ValidationMetrics["accuracy"]; !(accuracy > 0.98 && accuracy <= 1) || last.TrainMetrics["accuracy"] < 0.98 || len(last.TrainMetrics) != 3 {
			t.Errorf("%d runs a step: the last evaluation is %+v", accumulation, last)
		}
	}
}

// Parameters that are frozen stay as they are, and are in checkpoints, which another loop goes on
// from.
func TestFrozenParameters(t *testing.T) {
	path := t.TempDir()
	folder := openFolder(t, path, 1)
	build := func(seed uint64) *train.Loop {
		parameters := nn.NewParameters(seed)
		parameters.Freeze(func(name string) bool { return strings.HasPrefix(name, "first.") })
		loop, err := train.NewLoop(train.LoopConfig{
			Model: blobModel(new(int)), Parameters: parameters,
			Optimizer: train.SGD{Momentum: 0.9}, Options: plain(0.1, 1), Data: blobs(8), Steps: 5, Checkpoints: folder,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { loop.Close() })
		return loop
	}
	loop := build(1)
	before := bits(loop)
	runLoop(t, loop, context.Background())
	after := bits(loop)
	if frozen := 2*16 + 16; !slices.Equal(before[:frozen], after[:frozen]) || slices.Equal(before[frozen:], after[frozen:]) {
		t.Error("what is not trained changed, or what is trained did not")
	}
	folder = reopen(t, folder, path, 1)
	again := build(2)
	if _, err := again.Resume(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(bits(again), after) {
		t.Error("a checkpoint does not bring back the weights that are not trained")
	}
}

func TestLoopRefusesMetrics(t *testing.T) {
	for want, m := range map[string]train.Metric{
		`metric "a,b", which needs a name of letters`:           {Name: "a,b"},
		`metric "empty", which has no nodes`:                    {Name: "empty"},
		`metric "wide", which is a node of shape [8 2]`:         {Name: "wide", Nodes: gorgonia.Nodes{nil}},
		`metric "foreign", which has node 0 of another graph`:   {Name: "foreign", Nodes: gorgonia.Nodes{gorgonia.NewScalar(gorgonia.NewGraph(), tensor.Float32)}},
		`two metrics called accuracy, each needs a name of its`: {Name: "accuracy", Nodes: gorgonia.Nodes{nil}},
	} {
		model := blobModel(new(int))
		_, err := train.NewLoop(train.LoopConfig{
			Parameters: nn.NewParameters(1),
			Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
				out := model(s, in)
				if len(m.Nodes) == 1 && m.Nodes[0] == nil {
					m.Nodes = gorgonia.Nodes{in.Get("points").Node()}
				}
				if m.Name == "accuracy" {
					m.Value = out.Metrics[0].Value
				}
				out.Metrics = append(out.Metrics, m)
				return out
			},
			Optimizer: train.SGD{Momentum: 0.9}, Options: plain(0.1, 1), Data: blobs(8), Steps: 5,
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
