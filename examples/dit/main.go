// Dit trains a small Diffusion Transformer: it tells the noise from the waves that the noise was
// added to.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
)

const rows, length, channels, dim, heads = 32, 16, 8, 64, 4

func modulate(x, shift, scale nn.Tensor) nn.Tensor { return x.LayerNorm().Mul(scale.Add(1)).Add(shift) }

func block(s *nn.Scope, x, c nn.Tensor) nn.Tensor {
	m := s.Linear("ada", c, 6*dim, nn.Zero).Reshape(-1, 6, 1, dim).Unbind(1, 6)
	x = x.Add(m[2].Mul(s.Attention("attn", modulate(x, m[0], m[1]), heads)))
	return x.Add(m[5].Mul(s.MLP("mlp", modulate(x, m[3], m[4]))))
}

func dit(s *nn.Scope, x, t nn.Tensor) nn.Tensor {
	c := s.Linear("t2", s.Linear("t1", t, dim).SiLU(), dim).SiLU()
	x = s.Positions("places", s.Linear("in", x, dim), nn.Normal(0.5))
	for i := range 3 {
		x = block(s.Sub(fmt.Sprint("block", i)), x, c)
	}
	return s.Linear("out", x.LayerNorm(), channels, nn.Zero)
}

// waves gives noisy waves, the noise in them, and how much there is, as sines and cosines of the
// time.
func waves(seed uint64) data.Func {
	return func(n int) (data.Batch, error) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		x, noise, times := make([]float32, rows*length*channels), make([]float32, rows*length*channels), make([]float32, rows*dim)
		for row := range rows {
			time, phase := r.Float64(), 2*math.Pi*r.Float64()
			for j := range dim / 2 {
				angle := 1000 * time * math.Pow(1e4, -float64(j)/(dim/2))
				times[row*dim+j], times[row*dim+dim/2+j] = float32(math.Cos(angle)), float32(math.Sin(angle))
			}
			for j := range length * channels {
				k, e := row*length*channels+j, r.NormFloat64()
				noise[k] = float32(e)
				x[k] = float32(math.Sqrt(1-time)*math.Sin(phase+float64(j)/5) + math.Sqrt(time)*e)
			}
		}
		return data.Batch{
			"x": data.Floats(x, rows, length, channels), "noise": data.Floats(noise, rows, length, channels), "t": data.Floats(times, rows, dim),
		}, nil
	}
}

func main() {
	cli.Alone("dit trains a diffusion transformer for some seconds to tell noise from the waves that it was added to.")
	_, err := train.Run(context.Background(), train.LoopConfig{
		Parameters: nn.NewParameters(1),
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			return train.Outputs{Loss: dit(s, in.Get("x"), in.Get("t")).Sub(in.Get("noise")).Square().Mean()}
		},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)},
		Data: waves(1), Evaluations: train.Evaluations{Every: 100, Validation: waves(2)}, Steps: 300, Hooks: []train.Hook{watch.Progress(os.Stdout)},
	})
	if err != nil {
		log.Fatal(err)
	}
}
