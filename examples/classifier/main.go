// Classifier trains a BERT on sentences of different lengths, padded: does the one kind of word come more often than the other?
package main

import (
	"context"
	"math/rand/v2"
	"os"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const vocab, length, rows, dim = 40, 24, 32, 64

// review gives sentences of 5 to 24 words after a first token that stands for them: words 2 to 9 praise, 10 to 17 blame.
func review(seed uint64) data.Func {
	return func(n int) (data.Batch, error) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		tokens, mask, labels := make([]int, rows*length), make([]bool, rows*length), make([]int, rows)
		for i := range labels {
			praise := 0
			for at := range 5 + r.IntN(length-4) {
				word := 1
				if at > 0 {
					word = 2 + r.IntN(vocab-2)
					praise += [...]int{1, -1, 0, 0, 0}[(word-2)/8]
				}
				tokens[i*length+at], mask[i*length+at] = word, true
			}
			labels[i] = min(max(praise, 0), 1)
		}
		shape := tensor.WithShape(rows, length)
		return data.Batch{"tokens": tensor.New(shape, tensor.WithBacking(tokens)), "mask": tensor.New(shape, tensor.WithBacking(mask)),
			"labels": tensor.New(tensor.WithShape(rows), tensor.WithBacking(labels))}, nil
	}
}

func main() {
	p := nn.NewParameters(1)
	loop := nn.Must(train.NewLoop(train.LoopConfig{Data: review(1), Validation: review(2), Steps: 400, EvalEvery: 100,
		Hooks:     []train.Hook{watch.Progress(os.Stdout)},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)},
		Model: func(g *G.ExprGraph, in train.Inputs) (train.Outputs, error) {
			bert := nn.Must(nn.NewEncoder(g, nn.EncoderConfig{Parameters: p, Vocab: vocab, Context: length, Layers: 2, Heads: 4, Dim: dim, Classes: 2}))
			logits := nn.Must(bert.Classify(nn.Must(bert.ForwardWith(in["tokens"], nn.EncoderInputs{KeyMask: in["mask"]}))))
			loss, err := ops.SoftmaxCrossEntropy(logits, in["labels"], ops.CrossEntropyOptions{})
			return train.Outputs{Loss: loss, Parameters: p.Nodes(g), Metrics: []train.Metric{train.Accuracy(logits, in["labels"])}}, err
		}}))
	defer loop.Close()
	nn.Must(loop.Run(context.Background()))
}
