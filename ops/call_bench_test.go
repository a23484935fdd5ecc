package ops_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BenchmarkMLP trains the MLP of a transformer's block with its norm and residual connection, 2048
// rows of 384 features in float32, forward and backward through a tapeMachine.
func BenchmarkMLP(b *testing.B) {
	const rows, width, wider = 2048, 384, 1536
	g, r := gorgonia.NewGraph(), rand.New(rand.NewPCG(1, 1))
	random := func(name string, shape ...int) *gorgonia.Node {
		data := normal(r, elements(shape))
		for i := range data {
			data[i] *= 0.02
		}
		return input(g, name, dense(tensor.Float32, data, shape...))
	}
	x, gamma := random("x", rows, width), random("gamma", width)
	up, upBias, down := random("up", width, wider), random("upBias", wider), random("down", wider, width)
	h := gorgonia.Must(ops.LayerNorm(x, gamma, nil, ops.NormOptions{}))
	h = gorgonia.Must(ops.Linear(h, up, upBias, ops.LinearOptions{Activation: kernels.GELUTanh}))
	h = gorgonia.Must(ops.Linear(h, down, nil, ops.LinearOptions{}))
	loss := gorgonia.Must(ops.Mean(gorgonia.Must(ops.Add(x, h))))
	if _, err := gorgonia.Grad(loss, x, gamma, up, upBias, down); err != nil {
		b.Fatal(err)
	}
	m := gorgonia.NewTapeMachine(g)
	const flops = 3 * 2 * 2 * float64(rows*width*wider)
	b.ReportAllocs()
	for b.Loop() {
		run(b, m)
	}
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
