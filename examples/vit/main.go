// Vit trains a vision transformer to tell apart four shapes in noisy images that it draws itself.
package main

import (
	"context"
	"log"
	"math/rand/v2"
	"os"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
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
		return data.Batch{"images": data.Floats(images, rows, 1, size, size), "labels": data.Ints(labels, rows)}, nil
	}
}

func vit(s *nn.Scope, images nn.Tensor) nn.Tensor {
	x := s.Patches("", images, 4, dim)
	x = s.Stack("", x, 3, nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Heads: 4}})
	return s.Linear("head.out", nn.Pool(x, nn.MeanPool, nn.Tensor{}), 4)
}

func main() {
	_, err := train.Run(context.Background(), train.LoopConfig{
		Parameters: nn.NewParameters(1),
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			logits, labels := vit(s, in.Get("images")), in.Get("labels")
			return train.Outputs{Loss: logits.CrossEntropy(labels), Metrics: []train.Metric{train.Accuracy(logits, labels)}}
		},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)},
		Data: draw(1), Evaluations: train.Evaluations{Every: 100, Validation: draw(2)}, Steps: 300, Hooks: []train.Hook{watch.Progress(os.Stdout)},
	})
	if err != nil {
		log.Fatal(err)
	}
}
