package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// cacheRows are rows of a type whose gaps, and what lies before and behind them, are NaN.
func cacheRows(r *rand.Rand, dtype kernels.DType, rows, n, stride int) (first unsafe.Pointer, values []float64) {
	if dtype != kernels.F32 {
		h := newHalfTile(r, dtype, rows, n, stride)
		return unsafe.Pointer(h.first()), h.values
	}
	cells := slices.Repeat([]float32{float32(math.NaN())}, 2*margin+rows*stride)
	for i := range rows {
		for j := range n {
			x := float32(r.NormFloat64())
			cells[margin+i*stride+j] = x
			values = append(values, float64(x))
		}
	}
	return unsafe.Pointer(&cells[margin]), values
}

func TestCache(t *testing.T) {
	for _, level := range Levels() {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
			t.Run(fmt.Sprintf("%v/%v", level, dtype), func(t *testing.T) {
				defer SetLevel(level)()
				for n, shape := range [][3]int{{1, 1, 16}, {1, 16, 64}, {2, 3, 48}, {3, 17, 80}, {4, 1, 16}, {4, 16, 128}, {5, 7, 112}, {8, 5, 64}, {11, 6, 144}, {4, 0, 64}, {1, 0, 16}} {
					heads, rows, d := shape[0], shape[1], shape[2]
					r, what := rand.New(rand.NewPCG(uint64(n), 1)), fmt.Sprint(shape)
					ahead := []int{0, -4096, 1 << 40}[n%3] // nobody needs to have the memory
					a, values := cacheRows(r, dtype, rows, d, d+n)
					b, out := newFenced[float32](r, heads, d, d+3), newFenced[float32](r, heads, rows, rows+2)
					CacheDots(dtype, heads, rows, d, a, d+n, b.first(), b.stride, out.first(), out.stride, ahead)
					sum := func(h, i int, term func(float64) float64) (total float64) {
						for j := range d {
							total += term(values[i*d+j] * float64(*b.at(h, j)))
						}
						return total
					}
					out.check(t, "out", what,
						func(h, i int) float64 { return sum(h, i, func(x float64) float64 { return x }) },
						func(h, i int) float64 { return epsilon[float32]() * float64(1+d/4) * sum(h, i, math.Abs) })

					to := newFenced[float32](r, heads, d, d+5)
					before := to.clone()
					CacheCombine(dtype, heads, rows, d, a, d+n, out.first(), out.stride, to.first(), to.stride, ahead)
					sum = func(h, j int, term func(float64) float64) float64 {
						total := term(float64(*before.at(h, j)))
						for i := range rows {
							total += term(float64(*out.at(h, i)) * values[i*d+j])
						}
						return total
					}
					to.check(t, "to", what,
						func(h, j int) float64 { return sum(h, j, func(x float64) float64 { return x }) },
						func(h, j int) float64 { return epsilon[float32]() * float64(1+rows/2) * sum(h, j, math.Abs) })
				}
			})
		}
	}
}
