package simd

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestFunctions(t *testing.T) { everywhere(t, testFunctions[float32], testFunctions[float64]) }

func testFunctions[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		x, y, out := c.row(), c.row(), c.row()
		Div(c.n, out.first(), x.first(), y.first())
		out.check(c.t, "x/y", c.what, func(_, j int) float64 { return float64(*x.at(0, j) / *y.at(0, j)) }, func(int, int) float64 { return 0 })
		AbsGrad(c.n, out.first(), x.first(), y.first())
		out.check(c.t, "slope of |x|", c.what, func(_, j int) float64 {
			return math.Copysign(1, f64(x, j)) * f64(y, j)
		}, func(int, int) float64 { return 0 })
		Sqrt(c.n, out.first(), x.first())
		for j := range c.n {
			got, want := float64(*out.at(0, j)), float64(T(math.Sqrt(f64(x, j))))
			if got != want && (got == got || want == want) {
				t.Fatalf("%s: √%v is %v, want %v", c.what, f64(x, j), got, want)
			}
		}
	})
}

// Logarithms are right to two units in the last place, whatever the exponent, and next to 1 too.
func TestLog(t *testing.T) { everywhere(t, testLog[float32], testLog[float64]) }

func testLog[T kernels.Float](t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	list := []T{0, T(math.Copysign(0, -1)), 1, -1, T(inf), T(-inf), T(nan), T(math.Sqrt2), T(math.Sqrt2 / 2)}
	lowest, highest := -1074, 1023
	if size[T]() == 4 {
		lowest, highest = -149, 127
	}
	for e := lowest; e <= highest; e++ {
		for _, m := range []float64{1, 1 + 1e-6, 1.3, 1.41421, 1.41422, 1.7, 1.999999} {
			list = append(list, T(math.Ldexp(m, e)))
		}
	}
	for i := -200; i <= 200; i++ {
		list = append(list, T(1+float64(i)*epsilon[T]()), T(1+float64(i)/500))
	}
	out := make([]T, len(list))
	Log(len(list), &out[0], &list[0])
	worst := 0.0
	for i, x := range list {
		got, want := float64(out[i]), logOf(float64(x))
		if math.IsNaN(want) || math.IsInf(want, 0) {
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("log %v is %v, want %v", x, got, want)
			}
			continue
		}
		error := math.Abs(got-want) / epsilon[T]()
		if want != 0 {
			error /= math.Abs(want)
		}
		if worst = max(worst, error); !(error <= 2) {
			t.Errorf("log %v is %v, want %v: %.3g units off", x, got, want, error)
		}
	}
	t.Logf("at most %.3g units off", worst)
}
