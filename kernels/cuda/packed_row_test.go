//go:build gpu

package cuda_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// A product of one row by packed matrices that is no link of a chain gives what the definition does
// with the floats that they stand for.
func TestRowsProductOfPackedMatrices(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.Int8, kernels.Int4} {
		for _, c := range []struct {
			depth       int
			columns     []int
			gated, wide bool
		}{
			{2048, []int{512, 128, 128}, false, false}, {1184, []int{320, 320}, true, false}, {512, []int{1000}, false, true},
		} {
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			if !r.d.HasMaps() {
				t.Skip("this GPU has no kernel for it")
			}
			x := r.normals(kernels.BF16, 0, 1, c.depth)
			gamma := r.normals(kernels.F32, 0, c.depth)
			p, host := kernels.RowsProduct{X: x.Tensor, Gated: c.gated}, kernels.RowsProduct{X: x.host, Gated: c.gated}
			p.Norm, host.Norm = &kernels.RowNorm{Gamma: gamma.Tensor, Eps: 0.1}, &kernels.RowNorm{Gamma: gamma.host, Eps: 0.1}
			for n, columns := range c.columns {
				on, floats := packedMatrix(t, r.d, dtype, columns, c.depth, uint64(n))
				wide := make([]float64, len(floats))
				for i, v := range floats {
					wide[i] = float64(v)
				}
				bias := r.normals(kernels.F32, 0, columns)
				p.Weights, host.Weights = append(p.Weights, on.Permute(1, 0)), append(host.Weights, kernels.Of(wide, columns, c.depth).Permute(1, 0))
				p.Biases, host.Biases = append(p.Biases, bias.Tensor), append(host.Biases, bias.host)
			}
			out := r.empty(kernels.BF16, 0, 1, p.Columns())
			if c.wide {
				out = r.empty(kernels.F32, 0, 1, p.Columns())
			} else {
				residual := r.normals(kernels.BF16, 0, 1, p.Columns())
				p.Residual, host.Residual = residual.Tensor, residual.host
			}
			if !r.d.TakesRowsProduct(&p) {
				t.Fatalf("%s: there is no kernel", r.name)
			}
			r.must(r.d.RowsProductForward(&p, out.Tensor))
			r.near("c", r.values(out), reference.RowsProduct(&host), kernels.BF16, 12)
			p.Weights[0].DType = kernels.NF4
			if r.d.TakesRowsProduct(&p) {
				t.Fatalf("%s: it takes weights of several types", r.name)
			}
		}
	}
}
