package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// tiles calls a test for tiles of all ragged sizes.
func tiles(call func(r *rand.Rand, rows, n int, what string)) {
	const seed = 8
	r := rand.New(rand.NewPCG(seed, 0))
	for _, rows := range []int{0, 1, 2, 5, 13} {
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100} {
			call(r, rows, n, fmt.Sprintf("rows=%d n=%d seed=%d", rows, n, seed))
		}
	}
}

// newRoom is a tile with room for whole vectors, which a kernel may change beyond column n.
func newRoom[T kernels.Float](r *rand.Rand, rows, n int) fenced[T] {
	return newFenced[T](r, rows, roundUp[T](n), roundUp[T](n)+3)
}

func TestSoftCap(t *testing.T) { everywhere(t, testSoftCap[float32], testSoftCap[float64]) }

func testSoftCap[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		for _, spread := range []float64{1e-6, 0.1, 1, 40, 1e30} {
			const scale, cap = 0.25, 20
			s := newRoom[T](r, rows, n)
			for i := range rows {
				for j := range n {
					*s.at(i, j) *= T(spread)
				}
			}
			if rows > 2 && n > 4 {
				*s.at(1, 2), *s.at(2, 0), *s.at(2, 1), *s.at(2, 3) = T(math.NaN()), T(math.Inf(1)), T(math.Inf(-1)), 0
			}
			slope, before, alone := newRoom[T](r, rows, n), s.clone(), s.clone()
			SoftCap(rows, n, s.first(), slope.first(), s.stride, scale, cap)
			tanh := func(i, j int) float64 { return math.Tanh(float64(*before.at(i, j) * scale)) }
			eps := epsilon[T]()
			visible := func(f fenced[T]) fenced[T] { f.n = min(f.n, n); return f }
			fence := func(f fenced[T]) { // the room behind n may hold anything
				for i := range rows {
					for j := n; j < f.n; j++ {
						*f.at(i, j) = canary
					}
				}
			}
			fence(s)
			fence(slope)
			what := fmt.Sprintf("%s spread=%g", what, spread)
			visible(s).check(t, "s", what, func(i, j int) float64 { return cap * tanh(i, j) },
				func(i, j int) float64 { return 4 * eps * math.Abs(cap*tanh(i, j)) })
			visible(slope).check(t, "slope", what, func(i, j int) float64 { return 1 - tanh(i, j)*tanh(i, j) },
				func(i, j int) float64 { return 8 * eps })
			SoftCap(rows, n, alone.first(), nil, alone.stride, scale, cap)
			fence(alone)
			visible(alone).check(t, "s without slope", what, func(i, j int) float64 { return float64(*s.at(i, j)) }, same)
		}
	})
}

func TestALiBi(t *testing.T) { everywhere(t, testALiBi[float32], testALiBi[float64]) }

func testALiBi[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		for _, c := range []int{0, 7, -30, 100000} {
			const scale, slope = 0.25, 0.375
			s := newRoom[T](r, rows, n)
			before := s.clone()
			ALiBi(rows, n, s.first(), s.stride, scale, slope, c)
			s.n = n
			for i := range rows {
				for j := n; j < roundUp[T](n); j++ {
					*s.at(i, j) = canary
				}
			}
			want := func(i, j int) float64 {
				return float64(*before.at(i, j))*scale - slope*math.Abs(float64(c+i-j))
			}
			s.check(t, "s", fmt.Sprintf("%s c=%d", what, c), want,
				func(i, j int) float64 { return epsilon[T]() * (math.Abs(want(i, j)) + 1) })
		}
	})
}

func TestAddBias(t *testing.T) { everywhere(t, testAddBias[float32], testAddBias[float64]) }

func testAddBias[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		for _, ldb := range []int{0, n, n + 5} {
			const scale = 0.25
			s := newFenced[T](r, rows, n, n+3)
			bias := make([]T, max(0, rows-1)*ldb+n+1)
			for i := range bias {
				bias[i] = T(r.NormFloat64())
			}
			before := s.clone()
			AddBias(rows, n, s.first(), s.stride, scale, &bias[0], ldb)
			s.check(t, "s", fmt.Sprintf("%s ldb=%d", what, ldb),
				func(i, j int) float64 { return float64(*before.at(i, j))*scale + float64(bias[i*ldb+j]) },
				func(i, j int) float64 { return epsilon[T]() * 4 })
		}
	})
}
