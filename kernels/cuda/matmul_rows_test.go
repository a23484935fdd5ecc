//go:build gpu

package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Products of few rows: of several weights of any sizes side by side or gated, in both orders of
// their axes, with a norm before, and biases and a residual behind.
func TestRowsProduct(t *testing.T) {
	for _, c := range []struct {
		rows, depth int
		columns     []int
		gated, norm bool
		wide        bool // gamma, biases and C are float32
		biased, add bool
	}{
		{1, 2048, []int{2048, 256, 256}, false, true, false, false, false},
		{1, 2048, []int{1408, 1408}, true, true, true, false, false},
		{1, 5632, []int{2048}, false, false, false, false, true},
		{4, 512, []int{512, 128, 128}, false, true, true, true, false},
		{16, 1024, []int{1000, 1000}, true, false, false, true, true},
		{7, 136, []int{40, 8, 72}, false, false, true, true, true},
		{3, 8, []int{8}, false, true, false, true, true},
		{16, 14336, []int{512}, false, false, false, false, true},
		{16, 2048, []int{2048, 256, 256}, false, true, false, false, false},
		{9, 1000, []int{320, 320}, true, true, true, true, false},
		{2, 320, []int{8000}, false, true, false, false, false},
	} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			for _, transposed := range []bool{false, true} {
				r := newRowwiseTest(t, "%v %+v transposed %v", dtype, c, transposed)
				if !r.d.HasMaps() {
					t.Skip("this GPU has no kernel for it")
				}
				small := func() float64 { return r.random.NormFloat64() / math.Sqrt(float64(c.depth)) }
				wide := dtype
				if c.wide {
					wide = kernels.F32
				}
				x := r.normals(dtype, 8, c.rows, c.depth)
				p, host := kernels.RowsProduct{X: x.Tensor, Gated: c.gated}, kernels.RowsProduct{X: x.host, Gated: c.gated}
				for _, n := range c.columns {
					w := field{}
					if transposed {
						w = r.filled(dtype, 8, small, n, c.depth)
						w.Tensor, w.host = w.Tensor.Permute(1, 0), w.host.Permute(1, 0)
					} else {
						w = r.filled(dtype, 0, small, c.depth, n)
					}
					bias := field{}
					if c.biased {
						bias = r.normals(wide, 0, n)
					}
					p.Weights, p.Biases = append(p.Weights, w.Tensor), append(p.Biases, bias.Tensor)
					host.Weights, host.Biases = append(host.Weights, w.host), append(host.Biases, bias.host)
				}
				if c.norm {
					gamma := r.normals(wide, 0, c.depth)
					p.Norm, host.Norm = &kernels.RowNorm{Gamma: gamma.Tensor, Eps: 0.1}, &kernels.RowNorm{Gamma: gamma.host, Eps: 0.1}
				}
				if c.add {
					residual := r.normals(dtype, 8, c.rows, p.Columns())
					p.Residual, host.Residual = residual.Tensor, residual.host
				}
				out := r.empty(wide, 8, c.rows, p.Columns())
				if !r.d.TakesRowsProduct(&p) {
					t.Fatalf("%s: there is no kernel", r.name)
				}
				r.must(r.d.RowsProductForward(&p, out.Tensor))
				units := 3.0
				if c.norm && c.gated { // X·γ is rounded, and what gates multiplies what that costs
					units = 6
				}
				r.near("c", r.values(out), reference.RowsProduct(&host), dtype, units)
				r.checkGaps("c", out)
			}
		}
	}
}

// A kernel that begins early does not read weights that the one before it still writes: launches of
// a recording, each with other rows, where one product is the other's weights.
func TestRowsProductOfAProduct(t *testing.T) {
	const rows, depth, columns = 16, 8192, 2048
	r := newRowwiseTest(t, "a product of a product")
	if !r.d.HasMaps() {
		t.Skip("this GPU has no kernel for it")
	}
	x, y := r.normals(kernels.BF16, 0, rows, depth), r.normals(kernels.BF16, 0, 1, rows)
	w := r.filled(kernels.BF16, 0, func() float64 { return r.random.NormFloat64() / math.Sqrt(depth) }, depth, columns)
	first, second := r.empty(kernels.BF16, 0, rows, columns), r.empty(kernels.BF16, 0, 1, columns)
	call := func() error {
		if err := r.d.RowsProductForward(&kernels.RowsProduct{X: x.Tensor, Weights: []kernels.Tensor{w.Tensor}}, first.Tensor); err != nil {
			return err
		}
		return r.d.RowsProductForward(&kernels.RowsProduct{X: y.Tensor, Weights: []kernels.Tensor{first.Tensor}}, second.Tensor)
	}
	r.must(call())
	recording, err := r.d.Capture(call)
	r.must(err)
	for step := range 20 {
		list := kernels.Host[float64](x.host)
		for i := range list {
			list[i] = -list[i]
		}
		r.must(r.d.Copy(x.Tensor, x.host))
		r.must(recording.Launch())
		first.host = kernels.Of(r.values(first), rows, columns)
		want := reference.RowsProduct(&kernels.RowsProduct{X: y.host, Weights: []kernels.Tensor{first.host}})
		r.near(fmt.Sprintf("step %d: c", step), r.values(second), want, kernels.BF16, 6)
	}
}
