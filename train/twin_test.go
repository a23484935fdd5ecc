package train_test

import (
	"context"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

// muonWithEMA trains matrices by Muon and the rest by AdamW, and evaluates an average of the
// weights.
func muonWithEMA(model train.Model, batches data.Batches, steps int) (train.End, error) {
	loop, err := train.NewLoop(train.LoopConfig{
		Model: model, Parameters: nn.NewParameters(1), Data: batches, Steps: steps, Optimizer: train.Muon{WeightDecay: 0.1},
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
	}, batches, 200)
	if err != nil || !(end.BestLoss < 1) { // guessing would be 3
		t.Errorf("the best loss of the average is %v, %v", end.BestLoss, err)
	}
}
