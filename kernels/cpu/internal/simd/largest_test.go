package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestLargest(t *testing.T) { everywhere(t, testLargest[float32], testLargest[float64]) }

func testLargest[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		x := c.row()
		for j := range c.n {
			if *x.at(0, j) = T(math.Round(3 * f64(x, j))); c.r.IntN(40) == 0 { // many are equal
				*x.at(0, j) = T(math.Inf(1 - 2*c.r.IntN(2)))
			}
		}
		for _, room := range []int{1, 3, c.n + 1} {
			for _, least := range []float64{-2, 0, 3, math.Inf(1), math.Inf(-1)} {
				var want []int64
				for j := range c.n {
					if f64(x, j) >= least && len(want) < room {
						want = append(want, int64(j))
					}
				}
				list := make([]int64, room+1)
				list[room] = -7
				count := NotBelow(c.n, x.first(), T(least), list[:room])
				if !slices.Equal(list[:count], want) || list[room] != -7 {
					t.Fatalf("%s: not below %v are %v, room for %d, want %v", c.what, least, list[:count], room, want)
				}
			}
		}
		if c.n%Columns != 0 {
			return
		}
		var columns, want [Columns]T
		finite := true
		for j := range c.n {
			finite = finite && !math.IsInf(f64(x, j), 0)
		}
		if got := Maxima(c.n, x.first(), &columns); got != finite {
			t.Fatalf("%s: finite is %v, want %v", c.what, got, finite)
		}
		if !finite {
			for j := range c.n {
				*x.at(0, j) = min(max(*x.at(0, j), -9), 9)
			}
			if !Maxima(c.n, x.first(), &columns) {
				t.Fatalf("%s: not finite", c.what)
			}
		}
		for j := range want {
			want[j] = T(math.Inf(-1))
			for i := j; i < c.n; i += Columns {
				want[j] = max(want[j], *x.at(0, i))
			}
		}
		if columns != want {
			t.Fatalf("%s: maxima are %v, want %v", c.what, columns, want)
		}
		slices.Sort(want[:])
		for k := 1; k <= Columns; k++ {
			if got := Kth(&columns, k); got != want[Columns-k] {
				t.Fatalf("%s: number %d of %v is %v, want %v", c.what, k, columns, got, want[Columns-k])
			}
		}
	})
}

func TestProbabilities(t *testing.T) {
	everywhere(t, testProbabilities[float32], testProbabilities[float64])
}

func testProbabilities[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		x, dy, y, dx := c.row(), c.row(), c.row(), c.row()
		if c.n > 1 {
			*x.at(0, c.n-1) = -200 // e⁻²⁰⁰ counts as 0 in float32
		}
		most, sum, want := Greatest(c.n, x.first()), T(0.75), 0.0
		exp := func(v float64) float64 {
			if e := math.Exp(v); e >= leastOfExp[T]() {
				return e
			}
			return 0
		}
		total := Exponentials(c.n, y.first(), x.first(), most)
		c.near("exponentials", y, 4, func(j int) float64 { return exp(f64(x, j) - float64(most)) })
		for j := range c.n {
			want += f64(y, j)
		}
		c.scalarNear("their sum", total, want, float64(8+c.n)*epsilon[T]()*want+leastOfExp[T]())
		if c.n > 1 && size[T]() == 4 && f64(y, c.n-1) != 0 {
			t.Fatalf("%s: the exponential of -200 is %v, want 0", c.what, f64(y, c.n-1))
		}
		LogProbabilities(c.n, y.first(), x.first(), most, sum, false)
		c.near("log-probabilities", y, 2, func(j int) float64 { return f64(x, j) - float64(most) - float64(sum) })
		SoftmaxRowGrad(c.n, dx.first(), x.first(), dy.first(), sum, false)
		c.near("softmax's dx", dx, 4, func(j int) float64 { return f64(x, j) * (f64(dy, j) - float64(sum)) })
		LogSoftmaxRowGrad(c.n, dx.first(), y.first(), dy.first(), sum, false)
		c.near("log-softmax's dx", dx, 8, func(j int) float64 { return f64(dy, j) - exp(f64(y, j))*float64(sum) })
		LogSoftmaxRowGrad(c.n, dy.first(), y.first(), dy.first(), sum, false)
		for j := range c.n {
			if *dy.at(0, j) != *dx.at(0, j) {
				t.Fatalf("%s: element %d in place is %v, want %v", c.what, j, *dy.at(0, j), *dx.at(0, j))
			}
		}
	})
}

// TestPast compares what is stored past the caches with what is not, wherever a row starts and
// ends.
func TestPast(t *testing.T) { everywhere(t, testPast[float32], testPast[float64]) }

func testPast[T kernels.Float](t *testing.T) {
	const longest, around = 100, 16
	r := rand.New(rand.NewPCG(31, 32))
	x, dy := make([]T, longest), make([]T, longest)
	for i := range x {
		x[i], dy[i] = T(-r.Float64()), T(r.NormFloat64())
	}
	for name, call := range map[string]func(n int, to *T, past bool){
		"probabilities":     func(n int, to *T, past bool) { Probabilities(n, to, &x[0], 0.75, past) },
		"log-probabilities": func(n int, to *T, past bool) { LogProbabilities(n, to, &x[0], 0.5, 0.25, past) },
		"softmax's dx":      func(n int, to *T, past bool) { SoftmaxRowGrad(n, to, &x[0], &dy[0], 0.5, past) },
		"log-softmax's dx":  func(n int, to *T, past bool) { LogSoftmaxRowGrad(n, to, &x[0], &dy[0], 0.5, past) },
	} {
		for from := range around {
			for _, n := range []int{1, 7, 16, 31, 64, longest} {
				var got, want [longest + 3*around]T
				call(n, &got[around+from], true)
				call(n, &want[around+from], false)
				EndPast()
				if got != want {
					t.Fatalf("%s of %d elements from %d on: past the caches %v, else %v", name, n, from, got, want)
				}
			}
		}
	}
}
