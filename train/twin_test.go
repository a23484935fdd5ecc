package train_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

// muonWithEMA trains matrices by Muon and the rest by AdamW, and evaluates an average of the
// weights.
func muonWithEMA(model train.Model, batches data.Batches, seed uint64, steps int) (train.End, error) {
	loop, err := train.NewLoop(train.LoopConfig{
		Model: model, Parameters: nn.NewParameters(seed), Data: batches, Steps: steps, Optimizer: train.Muon{WeightDecay: 0.1},
		Options: train.Options{
			Schedule: train.WarmupCosine{Peak: 0.02, Steps: steps}, Average: &train.Average{Decay: 0.95, Evaluate: true},
			Groups: []train.Group{{Match: train.Any(train.Vectors, train.Named("tokens.*", "positions.*")), Optimizer: train.AdamW{}, LearningRateScale: 0.1}},
		},
		Evaluations: train.Evaluations{Every: steps, Batches: 4, Validation: batches},
	})
	if err != nil {
		return train.End{}, err
	}
	return loop.Run(context.Background())
}

var (
	curves = flag.String("curves", "", "a file: train by Muon, and write what the average ends at there, as package nn does")
	seeds  = flag.Int("seeds", 20, "with -curves: trainings")
)

// With -curves trainings of several lengths end at what is written, beside which
// bench/models/curves.py has its own.
func TestCurves(t *testing.T) {
	if *curves == "" {
		t.Skip("-curves names a file for losses")
	}
	batches := data.Func(func(n int) (data.Batch, error) { // rows that count in steps of one to three
		var tokens, targets []int
		for row := range 32 {
			for i := range 8 {
				at := func(i int) int { return (row*7 + n*5 + i*(1+(row+n)%3)) % 19 }
				tokens, targets = append(tokens, at(i)), append(targets, at(i+1))
			}
		}
		return data.Batch{"tokens": data.Ints(tokens, 32, 8), "targets": data.Ints(targets, 32, 8)}, nil
	})
	all := make([][]float64, *seeds)
	for seed := range all {
		for _, steps := range []int{25, 50, 100, 200} {
			end, err := muonWithEMA(func(s *nn.Scope, in train.Inputs) train.Outputs {
				m := nn.NewGPT(s, nn.GPTConfig{Vocab: 20, Context: 8, Layers: 1, Heads: 2, Dim: 16})
				return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
			}, batches, uint64(seed+1), steps)
			if err != nil {
				t.Fatal(err)
			}
			all[seed] = append(all[seed], end.BestLoss)
		}
	}
	text, err := json.Marshal(map[string][][]float64{"Muon with EMA": all})
	if err == nil {
		err = os.WriteFile(*curves, text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A model of one's own is trained by Muon, with an average, from what the package has.
func TestMuonWithEMA(t *testing.T) {
	ids := make([]int, 2000)
	for i := range ids { // each token says which one follows
		ids[i] = 3 * i % 11
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		t.Fatal(err)
	}
	batches, err := data.Random(tokens, 4, 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	end, err := muonWithEMA(func(s *nn.Scope, in train.Inputs) train.Outputs {
		m := nn.NewGPT(s, nn.GPTConfig{Vocab: 20, Context: 8, Layers: 1, Heads: 2, Dim: 16})
		return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
	}, batches, 1, 200)
	if err != nil || !(end.BestLoss < 1) { // guessing would be 3
		t.Errorf("the best loss of the average is %v, %v", end.BestLoss, err)
	}
}
