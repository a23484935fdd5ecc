//go:build gpu

package cuda_test

import (
	"errors"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestRoPE(t *testing.T) {
	cases := []struct {
		shape []int
		gap   int
		rope  kernels.RoPE
	}{
		{[]int{1, 1, 1, 2}, 0, kernels.RoPE{}},
		{[]int{2, 3, 17, 64}, 0, kernels.RoPE{}},
		{[]int{2, 3, 17, 64}, 8, kernels.RoPE{Pairing: kernels.Interleaved, Offset: 5}},
		{[]int{1, 5, 9, 128}, 1, kernels.RoPE{Base: 500000, Amplitude: 1.5}},
		{[]int{1, 2, 33, 40}, 0, kernels.RoPE{Pairing: kernels.Interleaved, RotaryDim: 24, PositionScale: 4}},
		{[]int{3, 2, 7, 80}, 0, kernels.RoPE{RotaryDim: 32, Offset: 1 << 20}},
		{[]int{1, 2, 7, 12}, 0, kernels.RoPE{RotaryDim: 10, Divisors: []float64{1, 2, 4, 8, 8}}},
		{[]int{1, 2, 7, 9}, 0, kernels.RoPE{RotaryDim: 6, Pairing: kernels.Interleaved}},
		{[]int{0, 2, 7, 8}, 0, kernels.RoPE{}},
		{[]int{4, 64, 1024, 8}, 0, kernels.RoPE{}},
	}
	for _, dtype := range halfAndFull {
		for _, c := range cases {
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			x, y := r.normals(dtype, c.gap, c.shape...), r.empty(dtype, 2*c.gap, c.shape...)
			r.must(r.d.RoPEForward(&c.rope, x.Tensor, y.Tensor))
			r.check("y", y, reference.RoPE[float64](&c.rope, x.host), reference.RoPE[float32](&c.rope, x.host))
			r.must(r.d.RoPEBackward(&c.rope, x.Tensor, x.Tensor))
			r.check("dx in place", x, reference.RoPEGrad[float64](&c.rope, x.host), reference.RoPEGrad[float32](&c.rope, x.host))
		}
	}
}

// Each row of each batch item has a position of its own.
func TestRoPEOfPositions(t *testing.T) {
	for _, dtype := range halfAndFull {
		for i, index := range []kernels.DType{kernels.I32, kernels.I64} {
			r := newRowwiseTest(t, "%v %v", dtype, index)
			x, y := r.normals(dtype, 0, 3, 5, 40, 64), r.empty(dtype, 0, 3, 5, 40, 64)
			onDevice, onHost := r.indices(index, func() int { return r.random.IntN(100000) - 10 }, 3, 40)
			rope, host := &kernels.RoPE{Pairing: kernels.Pairing(i), Offset: 4, RotaryDim: 32, Positions: onDevice}, &kernels.RoPE{}
			*host = *rope
			host.Positions = onHost
			r.must(r.d.RoPEForward(rope, x.Tensor, y.Tensor))
			r.check("y", y, reference.RoPE[float64](host, x.host), reference.RoPE[float32](host, x.host))
			r.must(r.d.RoPEBackward(rope, x.Tensor, x.Tensor))
			r.check("dx in place", x, reference.RoPEGrad[float64](host, x.host), reference.RoPEGrad[float32](host, x.host))
		}
	}
}

// Heads that lie side by side in each row of (batch, length, heads, size), as a projection leaves
// them.
func TestRoPEOfInterlacedHeads(t *testing.T) {
	for _, dtype := range halfAndFull {
		r := newRowwiseTest(t, "%v", dtype)
		x, y := r.normals(dtype, 0, 2, 100, 6, 64), r.empty(dtype, 0, 2, 100, 6, 64)
		rope := &kernels.RoPE{}
		heads := func(t kernels.Tensor) kernels.Tensor { return t.Permute(0, 2, 1, 3) }
		r.must(errors.Join(r.d.RoPEForward(rope, heads(x.Tensor), heads(y.Tensor))))
		y.Tensor, y.host = heads(y.Tensor), heads(y.host)
		r.check("y", y, reference.RoPE[float64](rope, heads(x.host)), reference.RoPE[float32](rope, heads(x.host)))
	}
}
