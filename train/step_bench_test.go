package train_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// BenchmarkStep is one step of training a GPT on characters: forward, backward, clipping by the
// global norm and AdamW. The first shape is the one that nanoGPT recommends for a laptop's CPU.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct{ layers, heads, dim, length, batch int }{{4, 4, 128, 64, 12}, {6, 6, 384, 256, 8}} {
		b.Run(fmt.Sprintf("%dx%d,T=%d,B=%d", c.layers, c.dim, c.length, c.batch), func(b *testing.B) {
			const vocab = 65
			g, random := gorgonia.NewGraph(), rand.New(rand.NewPCG(1, 2))
			s := nn.NewScope(g, nn.NewParameters(0))
			model := nn.NewGPT(s, nn.GPTConfig{Vocab: vocab, Context: c.length, Layers: c.layers, Heads: c.heads, Dim: c.dim})
			tokens := func(name string) nn.Tensor {
				ids := make([]int, c.batch*c.length)
				for i := range ids {
					ids[i] = random.IntN(vocab)
				}
				return s.Constant(name, data.Ints(ids, c.batch, c.length))
			}
			loss := model.Loss(tokens("tokens"), tokens("targets")).Node()
			if s.Err() != nil {
				b.Fatal(s.Err())
			}
			if _, err := gorgonia.Grad(loss, s.Parameters()...); err != nil {
				b.Fatal(err)
			}
			ops.ReuseMemory(g)
			machine, err := ops.NewMachine(g, gorgonia.BindDualValues(s.Parameters()...))
			if err != nil {
				b.Fatal(err)
			}
			defer machine.Close()
			optimizer, err := train.NewStepper(s.Parameters(), train.AdamW{WeightDecay: 0.1}, train.Options{Schedule: train.ConstantRate(1e-3), ClipNorm: 1, Groups: []train.Group{{Match: train.Vectors, NoDecay: true}}})
			if err != nil {
				b.Fatal(err)
			}
			var seconds []float64
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				if err := machine.RunAll(); err != nil {
					b.Fatal(err)
				}
				machine.Reset()
				if _, err := optimizer.Step(); err != nil {
					b.Fatal(err)
				}
				seconds = append(seconds, time.Since(start).Seconds())
			}
			slices.Sort(seconds)
			b.ReportMetric(seconds[len(seconds)/2]*1e3, "ms/step")
			b.ReportMetric(seconds[0]*1e3, "best-ms/step")
			b.ReportMetric(float64(c.batch*c.length)/seconds[len(seconds)/2], "tokens/s")
		})
	}
}
