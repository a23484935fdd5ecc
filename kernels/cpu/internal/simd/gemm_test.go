package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestGemm(t *testing.T) { everywhere(t, testGemm[float32], testGemm[float64]) }

func testGemm[T kernels.Float](t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for _, m := range []int{0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 64} {
		for nv := range 6 {
			for _, k := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 64, 129} {
				if m == 64 && k > 9 && nv != 3 {
					continue // the sizes are covered by the others
				}
				oneGemm[T](t, r, m, nv, k, (m+nv+k)%2 == 0, k%3 == 0, seed)
			}
		}
	}
	oneGemm[T](t, r, 64, 3, 8192/Lanes[T](), false, true, seed) // more than is done in one go
}

// oneGemm compares one product, with A stored by rows or by columns, and B in panels that have gaps
// between their rows and between one another.
func oneGemm[T kernels.Float](t *testing.T, r *rand.Rand, m, nv, k int, transposed, accumulate bool, seed uint64) {
	t.Helper()
	lanes := Lanes[T]()
	what := fmt.Sprintf("m=%d nv=%d k=%d transposed=%t accumulate=%t seed=%d", m, nv, k, transposed, accumulate, seed)
	a, rs, cs := newFenced[T](r, m, k, k+3), k+3, 1
	if transposed {
		a, rs, cs = newFenced[T](r, k, m, m+3), 1, m+3
	}
	ldb := 2*lanes + 5
	bp := k*ldb + 7
	b := make([]T, (nv+1)/2*bp+1)
	for i := range b {
		b[i] = T(r.NormFloat64())
	}
	c := newFenced[T](r, m, nv*lanes, nv*lanes+9)
	before := c.clone()
	Gemm(m, nv, k, a.first(), rs, cs, &b[0], ldb, bp, c.first(), c.stride, accumulate)
	sum := func(i, j int, term func(float64) float64) float64 {
		total := 0.0
		if accumulate {
			total = term(float64(*before.at(i, j)))
		}
		for p := range k {
			x := a.cells[margin+i*rs+p*cs]
			y := b[j/(2*lanes)*bp+p*ldb+j%(2*lanes)]
			total += term(float64(x) * float64(y))
		}
		return total
	}
	c.check(t, "c", what,
		func(i, j int) float64 { return sum(i, j, func(x float64) float64 { return x }) },
		func(i, j int) float64 { return epsilon[T]() * (1 + float64(k)/4) * sum(i, j, math.Abs) })
}

func TestGemmNaN(t *testing.T) { everywhere(t, testGemmNaN[float32], testGemmNaN[float64]) }

// testGemmNaN puts a NaN in one row of A, and in one column of B, and looks for it in the product.
func testGemmNaN[T kernels.Float](t *testing.T) {
	const m, k, seed = 13, 9, 2
	r := rand.New(rand.NewPCG(seed, 0))
	width := Panel[T]()
	for bad := range m {
		a, b, c := newFenced[T](r, m, k, k), newFenced[T](r, k, width, width), newFenced[T](r, m, width, width)
		*a.at(bad, bad%k) = T(math.NaN())
		*b.at(bad%k, bad%width) = T(math.Inf(1))
		Gemm(m, 2, k, a.first(), k, 1, b.first(), width, 0, c.first(), width, false)
		for i := range m {
			for j := range width {
				x := float64(*c.at(i, j))
				switch {
				case i == bad && !math.IsNaN(x), i != bad && j == bad%width && !math.IsInf(x, 0),
					i != bad && j != bad%width && (math.IsNaN(x) || math.IsInf(x, 0)):
					t.Fatalf("NaN in row %d, Inf in column %d: c[%d][%d] is %g; seed=%d", bad, bad%width, i, j, x, seed)
				}
			}
		}
	}
}

func TestPackTransposed(t *testing.T) {
	everywhere(t, testPackTransposed[float32], testPackTransposed[float64])
}

func testPackTransposed[T kernels.Float](t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 0))
	width := Panel[T]()
	for _, rows := range []int{0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 64, 65} {
		for _, d := range []int{0, 1, 3, 4, 5, 8, 9, 32, 59} {
			panels := (rows + width - 1) / width
			src, dst := newFenced[T](r, rows, d, d+3), newFenced[T](r, 1, panels*d*width, 0)
			PackTransposed(dst.cells[margin:], src.cells[margin:], rows, d, src.stride)
			dst.check(t, "dst", fmt.Sprintf("rows=%d d=%d seed=%d", rows, d, seed), func(_, at int) float64 {
				j, e := at/(d*width)*width+at%width, at%(d*width)/width
				if j >= rows {
					return 0
				}
				return float64(*src.at(j, e))
			}, same)
		}
	}
}

// The last row of the source may be the end of its memory.
func TestPackTransposedReadsNoFurther(t *testing.T) {
	everywhere(t, testPackTransposedReadsNoFurther[float32], testPackTransposedReadsNoFurther[float64])
}

func testPackTransposedReadsNoFurther[T kernels.Float](t *testing.T) {
	const rows, d, stride = 33, 9, 11
	dst := make([]T, (rows+Panel[T]()-1)/Panel[T]()*d*Panel[T]())
	PackTransposed(dst, make([]T, (rows-1)*stride+d), rows, d, stride)
}

// A matrix is turned whatever its sizes and strides are, and nothing is written beside it.
func TestTranspose(t *testing.T) { everywhere(t, testTranspose[float32], testTranspose[float64]) }

func testTranspose[T kernels.Float](t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 0))
	for _, rows := range []int{1, 3, 8, 9, 16, 33} {
		for _, columns := range []int{1, 4, 5, 8, 11, 24} {
			src, dst := newFenced[T](r, rows, columns, columns+3), newFenced[T](r, columns, rows, rows+5)
			Transpose(rows, columns, &dst.cells[margin], dst.stride, &src.cells[margin], src.stride)
			dst.check(t, "dst", fmt.Sprintf("rows=%d columns=%d seed=%d", rows, columns, seed), func(j, i int) float64 { return float64(*src.at(i, j)) }, same)
		}
	}
}

func BenchmarkPeak(b *testing.B) {
	benchmarkEverywhere(b, benchmarkPeak[float32], benchmarkPeak[float64])
}

func benchmarkPeak[T kernels.Float](b *testing.B) {
	best := math.Inf(1)
	for b.Loop() {
		var flops float64
		time := seconds(func() { flops = Peak[T](1000) })
		best = min(best, time/flops)
	}
	b.ReportMetric(1e-9/best, "GFLOP/s")
}

// BenchmarkGemm multiplies the tiles that attention has: 64 rows, a block of 128 columns, and heads
// of 64 and 128.
func BenchmarkGemm(b *testing.B) {
	benchmarkEverywhere(b, benchmarkGemm[float32], benchmarkGemm[float64])
}

func benchmarkGemm[T kernels.Float](b *testing.B) {
	for _, c := range []struct {
		m, n, k    int
		transposed bool
	}{{64, 128, 64, false}, {64, 128, 128, false}, {64, 64, 128, false}, {128, 64, 64, true}, {1, 128, 64, false}} {
		b.Run(fmt.Sprintf("m=%d/n=%d/k=%d/transposed=%t", c.m, c.n, c.k, c.transposed), func(b *testing.B) {
			at, bt, ct := make([]T, c.m*c.k), make([]T, c.k*c.n), make([]T, c.m*c.n)
			rs, cs := c.k, 1
			if c.transposed {
				rs, cs = 1, c.m
			}
			// Peak is measured in between, so that both see the same clock and the same neighbours;
			// the fastest rounds of each are compared.
			repeat := 1 + 100/c.m // so that a measurement is longer than the clock's grain
			gemm, peak := math.Inf(1), math.Inf(1)
			b.ReportAllocs()
			for b.Loop() {
				peak = min(peak, seconds(func() { Peak[T](1000) })/Peak[T](1000))
				gemm = min(gemm, seconds(func() {
					for range repeat {
						Gemm(c.m, c.n/Lanes[T](), c.k, &at[0], rs, cs, &bt[0], Panel[T](), c.k*Panel[T](), &ct[0], c.n, false)
					}
				})/float64(repeat*2*c.m*c.n*c.k))
			}
			b.ReportMetric(1e-9/gemm, "GFLOP/s")
			b.ReportMetric(100*peak/gemm, "%peak")
		})
	}
}

func BenchmarkPackTransposed(b *testing.B) {
	benchmarkEverywhere(b, benchmarkPackTransposed[float32], benchmarkPackTransposed[float64])
}

func benchmarkPackTransposed[T kernels.Float](b *testing.B) {
	const rows, d = 128, 64
	src, dst := make([]T, rows*d), make([]T, rows*d)
	perElement(b, rows*d, func() { PackTransposed(dst, src, rows, d, d) })
}
