package main

import (
	"context"
	"os"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
	G "gorgonia.org/gorgonia"
)

// learn trains what is not frozen of a GPT, whose linear layers a maker makes, to count in steps, from anywhere up to 30.
func learn(p *nn.Parameters, stride int, maker nn.Maker[nn.LinearConfig]) {
	ids := make([]int, 4000)
	for i := range ids {
		ids[i] = i * stride % 31
	}
	tokens := nn.Must(data.FromInts(ids))
	loop := nn.Must(train.NewLoop(train.LoopConfig{
		Data: nn.Must(data.Random(tokens, 8, 16, 1)), Steps: 150, EvalEvery: 50, Hooks: []train.Hook{watch.Progress(os.Stdout)},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(5e-3)},
		Model: func(g *G.ExprGraph, in train.Inputs) (train.Outputs, error) {
			gpt, err := nn.NewGPT(g, nn.GPTConfig{
				Parameters: p, Vocab: 31, Context: 16, Layers: 2, Heads: 4, Dim: 64, NoBias: true,
				Block: func(_ int, c *nn.BlockConfig) { c.NewLinear = maker },
			})
			if err != nil {
				return train.Outputs{}, err
			}
			logits := nn.Must(gpt.Forward(in["tokens"]))
			loss, err := ops.SoftmaxCrossEntropy(logits, in["targets"], ops.CrossEntropyOptions{})
			return train.Outputs{
				Loss: loss, Parameters: p.Nodes(g), Trained: p.Trainable(p.Nodes(g)), Metrics: []train.Metric{train.Accuracy(logits, in["targets"])},
			}, err
		},
	}))
	defer loop.Close()
	nn.Must(loop.Run(context.Background()))
}
