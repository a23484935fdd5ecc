package main

import (
	"context"
	"os"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
)

// learn trains what is not frozen of a GPT, whose linear layers a maker makes, to count in steps,
// from anywhere up to 30.
func learn(p *nn.Parameters, stride int, maker nn.Maker[nn.LinearConfig]) error {
	ids := make([]int, 4000)
	for i := range ids {
		ids[i] = i * stride % 31
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		return err
	}
	batches, err := data.Random(tokens, 8, 16, 1)
	if err != nil {
		return err
	}
	_, err = train.Run(context.Background(), train.LoopConfig{
		Parameters: p,
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			gpt := nn.NewGPT(s, nn.GPTConfig{
				Vocab: 31, Context: 16, Layers: 2, Heads: 4, Dim: 64, NoBias: true,
				Block: func(_ int, c *nn.BlockConfig) { c.NewLinear = maker },
			})
			logits, targets := gpt.Forward(in.Get("tokens")), in.Get("targets")
			return train.Outputs{Loss: logits.CrossEntropy(targets), Metrics: []train.Metric{train.Accuracy(logits, targets)}}
		},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(5e-3)},
		Data: batches, Steps: 150, Evaluations: train.Evaluations{Every: 50}, Hooks: []train.Hook{watch.Progress(os.Stdout)},
	})
	return err
}
