package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// everyHalf runs a test at every level of the machine, for both types of 16 bits.
func everyHalf(t *testing.T, test func(t *testing.T, dtype kernels.DType)) {
	for _, level := range Levels() {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			t.Run(fmt.Sprintf("%v/%v", level, dtype), func(t *testing.T) {
				defer SetLevel(level)()
				test(t, dtype)
			})
		}
	}
}

// halfTile is a tile of 16-bit numbers whose gaps, and what lies before and behind it, are NaN.
type halfTile struct {
	cells           []uint16
	values          []float64 // row-major
	rows, n, stride int
}

func newHalfTile(r *rand.Rand, dtype kernels.DType, rows, n, stride int) halfTile {
	h := halfTile{make([]uint16, 2*margin+rows*stride), make([]float64, rows*n), rows, n, stride}
	for i := range h.cells {
		h.cells[i] = 0x7fff // NaN in both types
	}
	for i := range rows {
		for j := range n {
			bits, value := uint16(kernels.ToBFloat16(float32(r.NormFloat64()))), float32(0)
			if value = fromBFloat16(bits); dtype == kernels.F16 {
				bits = uint16(kernels.ToFloat16(value))
				value = kernels.Float16(bits).Float32()
			}
			h.cells[margin+i*stride+j], h.values[i*n+j] = bits, float64(value)
		}
	}
	return h
}

func (h halfTile) first() *uint16 { return &h.cells[margin] }

func TestHalfDots(t *testing.T) {
	everyHalf(t, func(t *testing.T, dtype kernels.DType) {
		tiles(func(r *rand.Rand, rows, n int, what string) {
			a, b, out := newHalfTile(r, dtype, rows, n, n+3), newFenced[float32](r, 1, n, 0), newFenced[float32](r, 1, rows, 0)
			HalfDots(dtype, rows, n, a.first(), a.stride, b.first(), out.cells[margin:margin+rows])
			sum := func(i int, term func(float64) float64) (total float64) {
				for j := range n {
					total += term(a.values[i*n+j] * float64(*b.at(0, j)))
				}
				return total
			}
			out.check(t, "out", what,
				func(_, i int) float64 { return sum(i, func(x float64) float64 { return x }) },
				func(_, i int) float64 { return epsilon[float32]() * float64(1+n/4) * sum(i, math.Abs) })
		})
	})
}

func TestHalfCombine(t *testing.T) {
	everyHalf(t, func(t *testing.T, dtype kernels.DType) {
		tiles(func(r *rand.Rand, rows, n int, what string) {
			a, x := newHalfTile(r, dtype, rows, n, n+5), newFenced[float32](r, rows, 1, 3)
			for _, accumulate := range []bool{false, true} {
				c := newFenced[float32](r, 1, n, 0)
				before := c.clone()
				HalfCombine(dtype, rows, n, a.first(), a.stride, x.first(), x.stride, c.first(), accumulate)
				sum := func(j int, term func(float64) float64) (total float64) {
					if accumulate {
						total = term(float64(*before.at(0, j)))
					}
					for i := range rows {
						total += term(float64(*x.at(i, 0)) * a.values[i*n+j])
					}
					return total
				}
				c.check(t, "c", what,
					func(_, j int) float64 { return sum(j, func(x float64) float64 { return x }) },
					func(_, j int) float64 { return epsilon[float32]() * float64(1+rows/2) * sum(j, math.Abs) })

				// A sum that is cut between two rows is the same to the last bit.
				cut := before
				HalfCombine(dtype, rows/2, n, a.first(), a.stride, x.first(), x.stride, cut.first(), accumulate)
				rest := &a.cells[margin+rows/2*a.stride]
				HalfCombine(dtype, rows-rows/2, n, rest, a.stride, x.at(min(rows/2, max(0, rows-1)), 0), x.stride, cut.first(), true)
				cut.check(t, "c in two calls", what, func(_, j int) float64 { return float64(*c.at(0, j)) }, same)
			}
		})
	})
}

// Every number of 16 bits is widened to itself.
func TestHalfNumbers(t *testing.T) {
	everyHalf(t, func(t *testing.T, dtype kernels.DType) {
		const n = 1 << 16
		all, c, one := make([]uint16, n), make([]float32, n), float32(1)
		for i := range all {
			all[i] = uint16(i)
		}
		HalfCombine(dtype, 1, n, &all[0], n, &one, 1, &c[0], false)
		for i, got := range c {
			want := fromBFloat16(uint16(i))
			if dtype == kernels.F16 {
				want = kernels.Float16(i).Float32()
			}
			if got != want && !(got != got && want != want) {
				t.Fatalf("%#04x is %v, want %v", i, got, want)
			}
		}
	})
}
