// Vit trains a vision transformer to tell apart four shapes in noisy images that it draws itself.
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

const size, rows, dim = 16, 32, 64

// draw gives batches of a bar, a beam, a cross or a box, anywhere in an image.
func draw(seed uint64) data.Func {
	return func(n int) (data.Batch, error) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		images, labels := make([]float32, rows*size*size), make([]int, rows)
		for i := range labels {
			labels[i] = r.IntN(4)
			x, y := r.IntN(size-6), r.IntN(size-6)
			for p := range size * size {
				u, v := p%size-x, p/size-y
				inside := u >= 0 && u < 7 && v >= 0 && v < 7
				on := [...]bool{u == 3, v == 3, u == 3 || v == 3, u%6 == 0 || v%6 == 0}[labels[i]]
				images[i*size*size+p] = float32(0.3 * r.NormFloat64())
				if inside && on {
					images[i*size*size+p]++
				}
			}
		}
		return data.Batch{"images": tensor.New(tensor.WithShape(rows, 1, size, size), tensor.WithBacking(images)),
			"labels": tensor.New(tensor.WithShape(rows), tensor.WithBacking(labels))}, nil
	}
}

func main() {
	p := nn.NewParameters(1)
	loop := nn.Must(train.NewLoop(train.LoopConfig{Data: draw(1), Validation: draw(2), Steps: 300, EvalEvery: 100,
		Hooks:     []train.Hook{watch.Progress(os.Stdout)},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)},
		Model: func(g *G.ExprGraph, in train.Inputs) (train.Outputs, error) {
			embed := nn.Must(nn.NewPatchEmbedding(g, nn.PatchEmbeddingConfig{Parameters: p, Channels: 1, Height: size, Width: size, Patch: 4, Dim: dim}))
			body := nn.Must(nn.NewStack(g, nn.StackConfig{Parameters: p, Layers: 3, Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 4}}}))
			head := nn.Must(nn.NewClassifier(g, nn.ClassifierConfig{Parameters: p, Name: "head", Dim: dim, Classes: 4, Pool: nn.MeanPool}))
			logits := nn.Must(nn.Chain(in["images"], embed, body, head))
			loss, err := ops.SoftmaxCrossEntropy(logits, in["labels"], ops.CrossEntropyOptions{})
			return train.Outputs{Loss: loss, Parameters: p.Nodes(g), Metrics: []train.Metric{train.Accuracy(logits, in["labels"])}}, err
		}}))
	defer loop.Close()
	nn.Must(loop.Run(context.Background()))
}
