package nn_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BenchmarkToken is the time of a token with a cache, the window sliding as it does, and without:
// the whole window in each run of a graph that was built once.
func BenchmarkToken(b *testing.B) {
	for _, shape := range []struct{ layers, heads, dim, context int }{{4, 4, 128, 64}, {6, 6, 384, 256}} {
		parameters, config := nn.NewParameters(1), nn.GPTConfig{
			Vocab: 65, Context: shape.context, Layers: shape.layers, Heads: shape.heads, Dim: shape.dim,
		}
		name := fmt.Sprintf("%dx%d,T=%d", shape.layers, shape.dim, shape.context)
		b.Run(name+"/cached", func(b *testing.B) {
			d, err := nn.NewDecoder(nn.DecoderConfig{Parameters: parameters, Model: func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s, config) }})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := d.Logits([]int{i % 65}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/prompt", func(b *testing.B) { // of half a window, the time of a token
			d, err := nn.NewDecoder(nn.DecoderConfig{Parameters: parameters, Model: func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s, config) }})
			if err != nil {
				b.Fatal(err)
			}
			tokens := make([]int, shape.context/2)
			for b.Loop() {
				d.Reset()
				if _, err := d.Logits(tokens); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(tokens)), "µs/token")
		})
		b.Run(name+"/whole", func(b *testing.B) {
			g := gorgonia.NewGraph()
			m := nn.NewGPT(nn.NewScope(g, parameters), config)
			value := tensor.New(tensor.WithShape(1, shape.context), tensor.Of(tensor.Int))
			tokens := gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, shape.context), gorgonia.WithName("tokens"), gorgonia.WithValue(value))
			must(m.Forward(on(tokens)))
			machine := gorgonia.NewTapeMachine(g)
			for b.Loop() {
				if err := machine.RunAll(); err != nil {
					b.Fatal(err)
				}
				machine.Reset()
			}
		})
	}
}
