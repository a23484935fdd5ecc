package train_test

import (
	"context"
	"log"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// The processes that a launcher has started train on sequences that they share: each has its rows of every batch, and attention sees
// the whole. Started alone, the same program trains on all of it.
func ExampleShareSequences() {
	config, err := distributed.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	group, err := distributed.Join(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	ids := make([]int, 4000)
	for i := range ids {
		ids[i] = i * i % 7
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		log.Fatal(err)
	}
	const length = 64 // a multiple of twice the number of ranks
	batches, err := data.Random(tokens, 2, length, 1)
	if err != nil {
		log.Fatal(err)
	}
	parameters := nn.NewParameters(1)
	loop, err := train.NewLoop(train.LoopConfig{
		Model: func(g *gorgonia.ExprGraph, in train.Inputs) (train.Outputs, error) {
			m, err := nn.NewGPT(g, nn.GPTConfig{
				Parameters: parameters, Vocab: 7, Context: length, Layers: 1, Heads: 2, Dim: 16, Attention: ops.AttentionOptions{Ranks: group},
			})
			if err != nil {
				return train.Outputs{}, err
			}
			loss, err := m.Loss(in["tokens"], in["targets"])
			return train.Outputs{Loss: loss, Parameters: m.Parameters()}, err
		},
		Optimizer: func(parameters gorgonia.Nodes) (*train.Optimizer, error) {
			return train.NewAdamW(parameters, train.AdamWConfig{Options: train.Options{Schedule: train.ConstantRate(1e-2), Ranks: group}})
		},
		Data:  train.ShareSequences(batches, group),
		Steps: 5,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loop.Close()
	if _, err := loop.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
}
