package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The two benchmarks train the same causal attention, B=1 H=4 D=64 in float32, forward and backward
// through a tapeMachine: with this package, and with Gorgonia's own ops, which is what one would
// write without it.

func BenchmarkFlashAttention(b *testing.B) {
	benchmarkAttention(b, func(q, k, v *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(ops.FlashAttention(q, k, v, ops.AttentionOptions{Causal: kernels.CausalBottomRight}))
	})
}

func BenchmarkGorgoniaAttention(b *testing.B) {
	benchmarkAttention(b, func(q, k, v *gorgonia.Node) *gorgonia.Node {
		g, shape := q.Graph(), q.Shape()
		heads, length, size := shape[1], shape[2], shape[3]
		flat := func(n *gorgonia.Node) *gorgonia.Node {
			return gorgonia.Must(gorgonia.Reshape(n, tensor.Shape{heads, length, size}))
		}
		hidden := make([]float32, length*length)
		for i := range length {
			for j := i + 1; j < length; j++ {
				hidden[i*length+j] = -1e9
			}
		}
		mask := input(g, "mask", tensor.New(tensor.WithShape(1, length, length), tensor.WithBacking(hidden)))
		s := gorgonia.Must(gorgonia.BatchedMatMul(flat(q), flat(k), false, true))
		s = gorgonia.Must(gorgonia.Mul(s, gorgonia.NewConstant(float32(1/math.Sqrt(float64(size))))))
		s = gorgonia.Must(gorgonia.BroadcastAdd(s, mask, nil, []byte{0}))
		p := gorgonia.Must(gorgonia.SoftMax(s, 2))
		out := gorgonia.Must(gorgonia.BatchedMatMul(p, flat(v)))
		return gorgonia.Must(gorgonia.Reshape(out, shape))
	})
}

func benchmarkAttention(b *testing.B, attend func(q, k, v *gorgonia.Node) *gorgonia.Node) {
	const heads, size = 4, 64
	for _, length := range []int{512, 1024, 2048} {
		b.Run(fmt.Sprintf("S=%d", length), func(b *testing.B) {
			g, r := gorgonia.NewGraph(), rand.New(rand.NewPCG(1, 1))
			random := func(name string) *gorgonia.Node {
				return input(g, name, dense(tensor.Float32, normal(r, heads*length*size), 1, heads, length, size))
			}
			q, k, v := random("q"), random("k"), random("v")
			out := attend(q, k, v)
			loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(out, random("w")))))
			if _, err := gorgonia.Grad(loss, q, k, v); err != nil {
				b.Fatal(err)
			}
			m := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(q, k, v))
			run(b, m)
			b.ReportAllocs()
			for b.Loop() {
				run(b, m)
			}
			// Forward and backward over the pairs that the mask shows, whether or not the ops
			// compute more.
			flops := 14 * size * heads * float64(length*(length+1)/2)
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
