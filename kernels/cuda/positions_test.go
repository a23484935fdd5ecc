//go:build gpu

package cuda_test

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Rows along the edges of warps and of what a block takes at a time, of either integer type, with
// padding anywhere and gaps between rows, which stay as they were.
func TestTokenPositions(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.I32, kernels.I64} {
		for _, shape := range [][]int{{1, 1}, {3, 31}, {2, 32}, {5, 33}, {2, 255}, {3, 256}, {1, 257}, {700, 17}, {4, 5000}, {0, 5}, {2, 0}} {
			for _, padding := range []int{0, 1, 3} {
				const gap = 3
				r := newRowwiseTest(t, "%v %v padding %d", dtype, shape, padding)
				ids, hostIDs := r.indices(dtype, func() int { return r.random.IntN(5) }, shape[0], shape[1]+gap)
				out, _ := r.indices(dtype, func() int { return -7 }, shape[0], shape[1]+gap)
				problem := kernels.TokenPositions{IDs: ids.Slice(1, 0, shape[1]), Padding: padding}
				r.must(r.d.TokenPositions(&problem, out.Slice(1, 0, shape[1])))
				got := hostTensor(dtype, out.Shape...)
				r.must(r.d.Copy(got, out))
				problem.IDs = hostIDs.Slice(1, 0, shape[1])
				want := reference.TokenPositions(&problem)
				for row := range shape[0] {
					list := append(slices.Clone(want[row*shape[1]:][:shape[1]]), slices.Repeat([]int{-7}, gap)...)
					for column, want := range list {
						if got := kernels.HostElement(got, row*(shape[1]+gap)+column); int(got) != want {
							t.Fatalf("%s: row %d, column %d is %v, it needs to be %d", r.name, row, column, got, want)
						}
					}
				}
			}
		}
	}
}
