//go:build gpu

package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// packedRowsCase is a product of few rows by packed matrices.
type packedRowsCase struct {
	rows, depth int
	columns     []int
	with        packedRowsWith
}

// packedRowsWith is what a product has besides.
type packedRowsWith struct{ gated, norm, wide, add bool }

// A product of few rows by packed matrices that is no link of a chain gives what the definition
// does with the floats that they stand for.
func TestRowsProductOfPackedMatrices(t *testing.T) {
	for _, weights := range packedTypes {
		for n, c := range []packedRowsCase{
			{1, 2048, []int{512, 128, 128}, packedRowsWith{norm: true, add: true}},
			{1, 1216, []int{320, 320}, packedRowsWith{gated: true, norm: true, add: true}},
			{1, 512, []int{1000}, packedRowsWith{norm: true, wide: true}},
			{2, 4096, []int{4096}, packedRowsWith{add: true}},
			{16, 2048, []int{2048, 256, 256}, packedRowsWith{norm: true}},
			{9, 1152, []int{1000, 1000}, packedRowsWith{gated: true, norm: true, add: true}},
			{16, 14336, []int{520}, packedRowsWith{add: true}},
			{8, 128, []int{8}, packedRowsWith{norm: true, wide: true, add: true}},
			{5, 3136, []int{136, 72, 40}, packedRowsWith{norm: true, wide: true}},
			{16, 1024, []int{8000}, packedRowsWith{wide: true, add: true}},
			{16, 2048, []int{1408, 1408}, packedRowsWith{gated: true}},
		} {
			for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
				t.Run(fmt.Sprintf("%v/%v/%d", weights, dtype, n), func(t *testing.T) { c.test(t, weights, dtype) })
			}
		}
	}
}

func (c packedRowsCase) test(t *testing.T, weights, dtype kernels.DType) {
	t.Helper()
	r := newRowwiseTest(t, "%v of %v %+v", weights, dtype, c)
	if !r.d.HasMaps() {
		t.Skip("this GPU has no kernel for it")
	}
	if weights != kernels.NF4 && c.depth%256 != 0 {
		c.depth -= 32 // half of a block of NF4
	}
	x := r.normals(dtype, 8, c.rows, c.depth)
	p, host := kernels.RowsProduct{X: x.Tensor, Gated: c.with.gated}, kernels.RowsProduct{X: x.host, Gated: c.with.gated}
	if c.with.norm {
		gamma := r.normals([]kernels.DType{kernels.F32, dtype}[c.rows%2], 0, c.depth)
		p.Norm, host.Norm = &kernels.RowNorm{Gamma: gamma.Tensor, Eps: 0.1}, &kernels.RowNorm{Gamma: gamma.host, Eps: 0.1}
	}
	for n, columns := range c.columns {
		on, floats := packedMatrix(t, r.d, weights, columns, c.depth, uint64(n))
		wide := make([]float64, len(floats))
		for i, v := range floats {
			wide[i] = float64(v)
		}
		bias := r.normals(kernels.F32, 0, columns)
		p.Weights, host.Weights = append(p.Weights, on.Permute(1, 0)), append(host.Weights, kernels.Of(wide, columns, c.depth).Permute(1, 0))
		p.Biases, host.Biases = append(p.Biases, bias.Tensor), append(host.Biases, bias.host)
	}
	to := dtype
	if c.with.wide {
		to = kernels.F32
	}
	out := r.empty(to, 8, c.rows, p.Columns())
	if c.with.add {
		residual := r.normals(dtype, 8, c.rows, p.Columns())
		p.Residual, host.Residual = residual.Tensor, residual.host
	}
	if !r.d.TakesRowsProduct(&p) {
		t.Fatalf("%s: there is no kernel", r.name)
	}
	r.must(r.d.RowsProductForward(&p, out.Tensor))
	units := 3.0
	switch {
	case c.with.gated && (c.with.norm || weights == kernels.NF4): // what gates multiplies errors
		units = 24
	case weights == kernels.NF4: // its numbers are rounded to 16 bits
		units = 12
	case c.with.norm: // X·γ is rounded
		units = 8
	case c.with.wide: // nothing is rounded to 16 bits
		units = 0.2
	}
	r.near("c", r.values(out), reference.RowsProduct(&host), dtype, units)
	r.checkGaps("c", out)
}
