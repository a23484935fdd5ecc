package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestMulTile(t *testing.T) { everywhere(t, testMulTile[float32], testMulTile[float64]) }

func testMulTile[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		dst, src := newRoom[T](r, rows, n), newRoom[T](r, rows, n)
		before := dst.clone()
		MulTile(rows, n, dst.first(), src.first(), dst.stride)
		dst.n = n
		for i := range rows {
			for j := n; j < roundUp[T](n); j++ {
				*dst.at(i, j) = canary
			}
		}
		dst.check(t, "dst", what, func(i, j int) float64 { return float64(*before.at(i, j) * *src.at(i, j)) }, same)
	})
}

func TestAddTile(t *testing.T) { everywhere(t, testAddTile[float32], testAddTile[float64]) }

func testAddTile[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		dst, src := newFenced[T](r, rows, n, n+3), newFenced[T](r, rows, n, n+1)
		before := dst.clone()
		AddTile(rows, n, dst.first(), dst.stride, src.first(), src.stride)
		dst.check(t, "dst", what, func(i, j int) float64 { return float64(*before.at(i, j) + *src.at(i, j)) }, same)
	})
}

func TestScaleRows(t *testing.T) { everywhere(t, testScaleRows[float32], testScaleRows[float64]) }

func testScaleRows[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		dst, src := newFenced[T](r, rows, n, n+3), newFenced[T](r, rows, n, n+1)
		f := newFenced[T](r, 1, rows, 0)
		factors := f.cells[margin : margin+rows]
		want := func(i, j int) float64 { return float64(*src.at(i, j) * factors[i]) }
		ScaleRows(rows, n, dst.first(), dst.stride, src.first(), src.stride, factors)
		dst.check(t, "dst", what, want, same)
		inPlace := src.clone()
		ScaleRows(rows, n, inPlace.first(), inPlace.stride, inPlace.first(), inPlace.stride, factors)
		inPlace.check(t, "dst in place", what, want, same)
	})
}

func TestDots(t *testing.T) { everywhere(t, testDots[float32], testDots[float64]) }

func testDots[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		a, b, out := newFenced[T](r, rows, n, n+3), newFenced[T](r, rows, n, n), newFenced[T](r, 1, rows, 0)
		if rows > 2 && n > 0 {
			*a.at(1, n-1) = T(math.NaN())
		}
		Dots(rows, n, a.first(), a.stride, b.first(), b.stride, out.cells[margin:margin+rows])
		sum := func(i int, term func(float64) float64) (total float64) {
			for j := range n {
				total += term(float64(*a.at(i, j)) * float64(*b.at(i, j)))
			}
			return total
		}
		out.check(t, "out", what,
			func(_, i int) float64 { return sum(i, func(x float64) float64 { return x }) },
			func(_, i int) float64 { return epsilon[T]() * float64(1+n/4) * sum(i, math.Abs) })

		// With one b for all rows the sums are those of as many copies of it, bit for bit.
		one, copies := newFenced[T](r, 1, rows, 0), newFenced[T](r, 1, rows, 0)
		for i := range rows {
			copy(b.cells[margin+i*b.stride:][:n], b.cells[margin:])
		}
		Dots(rows, n, a.first(), a.stride, b.first(), b.stride, copies.cells[margin:margin+rows])
		Dots(rows, n, a.first(), a.stride, b.first(), 0, one.cells[margin:margin+rows])
		one.check(t, "out with one b", what, func(_, i int) float64 { return float64(*copies.at(0, i)) }, same)
	})
}

func TestFinite(t *testing.T) { everywhere(t, testFinite[float32], testFinite[float64]) }

func testFinite[T kernels.Float](t *testing.T) {
	tiles(func(r *rand.Rand, rows, n int, what string) {
		a := newFenced[T](r, rows, n, n+1)
		for i := range a.cells { // what lies around the tile does not count
			if a.cells[i] == canary {
				a.cells[i] = T(math.NaN())
			}
		}
		if rows*n > 0 {
			*a.at(rows-1, 0) = T(maxFloat[T]())
		}
		if !Finite(rows, n, a.first(), a.stride) {
			t.Fatalf("%s: a finite tile is said not to be", what)
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for try := 0; try < 5 && rows*n > 0; try++ {
				i, j := r.IntN(rows), r.IntN(n)
				good := *a.at(i, j)
				*a.at(i, j) = T(bad)
				if Finite(rows, n, a.first(), a.stride) {
					t.Fatalf("%s: a tile with %g at [%d][%d] is said to be finite", what, bad, i, j)
				}
				*a.at(i, j) = good
			}
		}
	})
}
