package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
)

// lengths are rows shorter and longer than any vector, whole vectors and every kind of rest.
var lengths = []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 64, 100, 129}

// rowCase is one call on rows of n elements: inputs and outputs in fenced memory.
type rowCase[T kernels.Float] struct {
	t    *testing.T
	what string
	r    *rand.Rand
	n    int
}

func eachRowCase[T kernels.Float](t *testing.T, do func(c *rowCase[T])) {
	for _, n := range lengths {
		const seed = 3
		do(&rowCase[T]{t, fmt.Sprintf("n=%d seed=%d", n, seed), rand.New(rand.NewPCG(seed, uint64(n))), n})
	}
}

func (c *rowCase[T]) row() fenced[T] { return newFenced[T](c.r, 1, c.n, c.n) }

// near checks an output against a formula in float64, to within some roundings of the largest
// value.
func (c *rowCase[T]) near(name string, out fenced[T], roundings float64, want func(j int) float64) {
	c.t.Helper()
	largest := 0.0
	for j := range c.n {
		if w := math.Abs(want(j)); !math.IsInf(w, 0) && w > largest {
			largest = w
		}
	}
	bound := roundings * epsilon[T]() * largest
	out.check(c.t, name, c.what, func(_, j int) float64 { return want(j) }, func(int, int) float64 { return bound })
}

func (c *rowCase[T]) scalarNear(name string, got T, want, bound float64) {
	c.t.Helper()
	if !(math.Abs(float64(got)-want) <= bound) {
		c.t.Fatalf("%s: %s is %.9g, want %.9g: off by %.3g, allowed are %.3g", c.what, name, got, want, float64(got)-want, bound)
	}
}

func f64[T kernels.Float](f fenced[T], j int) float64 { return float64(*f.at(0, j)) }

func TestActivations(t *testing.T) { everywhere(t, testActivations[float32], testActivations[float64]) }

func testActivations[T kernels.Float](t *testing.T) {
	for _, act := range kernels.Activations() {
		eachRowCase(t, func(c *rowCase[T]) {
			c.what += " " + act.String()
			x, dy, y, dx := c.row(), c.row(), c.row(), c.row()
			if c.n > 2 {
				*x.at(0, c.n/2) = T(math.NaN())
			}
			Activate(act, c.n, y.first(), x.first())
			ActivateGrad(act, c.n, dx.first(), x.first(), dy.first())
			c.near("y", y, 4, func(j int) float64 { return activation(act, f64(x, j)) })
			c.near("dx", dx, 8, func(j int) float64 { return f64(dy, j) * slope(act, f64(x, j)) })
		})
	}
}

// TestActivationAccuracy looks at the relative error all the way to where the results vanish.
func TestActivationAccuracy(t *testing.T) {
	everywhere(t, testActivationAccuracy[float32], testActivationAccuracy[float64])
}

func testActivationAccuracy[T kernels.Float](t *testing.T) {
	const n = 4001
	for _, c := range []struct {
		act           kernels.Activation
		from, to      float64 // in float32; in float64 the range is three times as wide
		value, slope  float64 // allowed, in units of epsilon; the slope's beside the greatest, for it goes through zero
		argumentError float64 // the same for each unit of |x|³, for the error of rounding what is exponentiated
	}{
		{kernels.GELUErf, -12.5, 12.5, 4, 8, 0},
		{kernels.SiLU, -80, 80, 3, 8, 0},
		{kernels.GELUTanh, -8, 8, 4, 8, 0.2},
		{kernels.ReLUSquared, -30, 30, 1, 1, 0},
		{kernels.ReLU, -30, 30, 0, 0, 0},
		{kernels.QuickGELU, -8, 8, 4, 8, 1},
		{kernels.Sigmoid, -80, 80, 3, 8, 0},
		{kernels.Tanh, -20, 20, 4, 8, 0},
	} {
		x, y, one, dx := make([]T, n), make([]T, n), make([]T, n), make([]T, n)
		widen := 1.0
		if !single32[T]() {
			widen = 2.9
		}
		for j := range x {
			x[j], one[j] = T(widen*(c.from+(c.to-c.from)*float64(j)/(n-1))), 1
		}
		Activate(c.act, n, &y[0], &x[0])
		ActivateGrad(c.act, n, &dx[0], &x[0], &one[0])
		for j, v := range x {
			want, slope := activation(c.act, float64(v)), slope(c.act, float64(v))
			if math.Abs(want) < 100*tiny[T]() {
				continue
			}
			allowed := (c.value + c.argumentError*math.Abs(float64(v*v*v))) * epsilon[T]()
			allowed += 0x1p-52 * float64(v*v) // the wanted value's own, from rounding x/√2
			if e := math.Abs(float64(y[j])/want - 1); want != 0 && !(e <= allowed) {
				t.Errorf("%v(%.9g) is %.9g, want %.9g: relative error %.3g, allowed are %.3g", c.act, v, y[j], want, e, allowed)
				break
			}
			if e := math.Abs(float64(dx[j]) - slope); !(e <= c.slope*epsilon[T]()*max(1, math.Abs(slope))) {
				t.Errorf("the slope of %v at %.9g is %.9g, want %.9g: error %.3g", c.act, v, dx[j], slope, e)
				break
			}
		}
	}
}

// Far out, an activation is 0 or x.
func TestActivationExtremes(t *testing.T) {
	everywhere(t, testActivationExtremes[float32], testActivationExtremes[float64])
}

func testActivationExtremes[T kernels.Float](t *testing.T) {
	for _, act := range []kernels.Activation{kernels.GELUTanh, kernels.GELUErf, kernels.SiLU} {
		for _, v := range []float64{100, 1e4, 1e10, 1e30, math.Inf(1)} {
			x := []T{T(v), -T(v)}
			y := []T{1, 1}
			Activate(act, 2, &y[0], &x[0])
			zero := y[1] == 0 || act == kernels.SiLU && v == 100 && math.Abs(float64(y[1])) < 1e-40
			if math.IsInf(v, 1) {
				zero = y[1] != y[1] // −∞·0
			}
			if y[0] != x[0] || !zero {
				t.Errorf("%v(±%v) is %v", act, v, y)
			}
		}
	}
}

func TestSwiGLU(t *testing.T) {
	slow.Emulated(t)
	everywhere(t, testSwiGLU[float32], testSwiGLU[float64])
}

func testSwiGLU[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		gate, up, dy, y, dGate, dUp := c.row(), c.row(), c.row(), c.row(), c.row(), c.row()
		SwiGLU(c.n, y.first(), gate.first(), up.first())
		SwiGLUGrad(c.n, dGate.first(), dUp.first(), gate.first(), up.first(), dy.first())
		silu := func(j int) float64 { return activation(kernels.SiLU, f64(gate, j)) }
		c.near("y", y, 4, func(j int) float64 { return silu(j) * f64(up, j) })
		c.near("dUp", dUp, 4, func(j int) float64 { return silu(j) * f64(dy, j) })
		c.near("dGate", dGate, 8, func(j int) float64 { return slope(kernels.SiLU, f64(gate, j)) * f64(dy, j) * f64(up, j) })
	})
}

func TestAdd(t *testing.T) { everywhere(t, testAdd[float32], testAdd[float64]) }

func testAdd[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		a, b, out := c.row(), c.row(), c.row()
		Add(c.n, out.first(), a.first(), b.first())
		c.near("c", out, 0, func(j int) float64 { return float64(*a.at(0, j) + *b.at(0, j)) })
	})
}

func TestMul(t *testing.T) { everywhere(t, testMul[float32], testMul[float64]) }

func testMul[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		a, b, out := c.row(), c.row(), c.row()
		Mul(c.n, out.first(), a.first(), b.first())
		c.near("c", out, 0, func(j int) float64 { return float64(*a.at(0, j) * *b.at(0, j)) })
	})
}

func TestNormRows(t *testing.T) { everywhere(t, testNormRows[float32], testNormRows[float64]) }

func testNormRows[T kernels.Float](t *testing.T) {
	eachRowCase(t, func(c *rowCase[T]) {
		x, dy, gamma, beta := c.row(), c.row(), c.row(), c.row()
		y, dx, dGamma, dBeta := c.row(), c.row(), c.row(), c.row()
		beforeGamma, beforeBeta := dGamma.clone(), dBeta.clone()
		const centre, rstd, shift, mean, meanX = 0.25, 0.75, -0.5, 0.125, -0.375
		xHat := func(j int) float64 { return (f64(x, j) - centre) * rstd }
		g := func(j int) float64 { return f64(dy, j) * f64(gamma, j) }
		var sum, deviation, squares, sumG, sumGX, scale float64
		for j := range c.n {
			sum += f64(x, j)
			deviation += f64(x, j) - centre
			squares += (f64(x, j) - centre) * (f64(x, j) - centre)
			sumG += g(j)
			sumGX += g(j) * xHat(j)
			scale += math.Abs(f64(x, j)) + math.Abs(g(j)) + math.Abs(g(j)*xHat(j)) + 1
		}
		bound := 4 * epsilon[T]() * scale
		c.scalarNear("sum", T(Sum(c.n, x.first())), sum, epsilon[T]()*math.Abs(sum)+0x1p-50*scale)
		gotD, gotS := Deviations(c.n, x.first(), centre)
		c.scalarNear("the sum of deviations", gotD, deviation, bound)
		c.scalarNear("the sum of squares", gotS, squares, bound)
		gotG, gotGX := NormalizeDots(c.n, x.first(), dy.first(), gamma.first(), centre, rstd)
		c.scalarNear("Σ g", gotG, sumG, bound)
		c.scalarNear("Σ g·x̂", gotGX, sumGX, bound)
		Normalize(c.n, y.first(), x.first(), centre, rstd, shift, gamma.first(), beta.first())
		c.near("y", y, 4, func(j int) float64 { return (xHat(j)+shift)*f64(gamma, j) + f64(beta, j) })
		NormalizeGrad(c.n, dx.first(), x.first(), dy.first(), gamma.first(), centre, rstd, mean, meanX, dGamma.first(), dBeta.first())
		c.near("dx", dx, 6, func(j int) float64 { return rstd * (g(j) - mean - xHat(j)*meanX) })
		c.near("dGamma", dGamma, 4, func(j int) float64 { return f64(beforeGamma, j) + f64(dy, j)*xHat(j) })
		c.near("dBeta", dBeta, 4, func(j int) float64 { return f64(beforeBeta, j) + f64(dy, j) })
	})
}

func TestCrossEntropyRows(t *testing.T) {
	everywhere(t, testCrossEntropyRows[float32], testCrossEntropyRows[float64])
}

func testCrossEntropyRows[T kernels.Float](t *testing.T) {
	for _, offset := range []float64{0, -50, 80} { // a row of negative numbers alone, and one of great ones
		eachRowCase(t, func(c *rowCase[T]) {
			z, y := c.row(), c.row()
			most := math.Inf(-1)
			for j := range c.n {
				*z.at(0, j) += T(offset)
				most = max(most, f64(z, j))
			}
			c.scalarNear("the maximum", Greatest(c.n, z.first()), most, 0)
			sumExp := 0.0
			for j := range c.n {
				sumExp += math.Exp(f64(z, j) - most)
			}
			c.scalarNear("the sum of exponentials", SumExp(c.n, z.first(), T(most)), sumExp, 6*epsilon[T]()*sumExp)
			lse := T(most + math.Log(sumExp))
			ScaledExp(c.n, y.first(), z.first(), lse, 0.5, 0.125)
			c.near("y", y, 6, func(j int) float64 { return math.Exp(f64(z, j)-float64(lse))*0.5 - 0.125 })
		})
	}
	limit := T(leastExp64)
	if single32[T]() {
		limit = leastExp32
	}
	far := T(math.Log(float64(limit)))
	tiny := []T{0, far + 1, far - 1, 10 * far, T(math.Inf(-1)), T(math.NaN())}
	out := make([]T, len(tiny))
	ScaledExp(len(tiny), &out[0], &tiny[0], 0, 1, 0)
	if out[0] != 1 || !(out[1] > limit) || out[2] != 0 || out[3] != 0 || out[4] != 0 || out[5] == out[5] {
		t.Errorf("the exponentials of %v are %v", tiny, out)
	}
	x := []T{1, T(math.NaN()), 2}
	if got := SumExp(3, &x[0], 2); got == got {
		t.Errorf("the sum of exponentials of %v is %v, want NaN", x, got)
	}
	x[1] = T(math.Inf(-1))
	if got := float64(SumExp(3, &x[0], 2)); !(math.Abs(got-1-math.Exp(-1)) <= 4*epsilon[T]()) {
		t.Errorf("the sum of exponentials of %v less 2 is %v", x, got)
	}
}

func TestRotate(t *testing.T) { everywhere(t, testRotate[float32], testRotate[float64]) }

func testRotate[T kernels.Float](t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 0))
	for _, rows := range []int{1, 3} {
		for _, n := range lengths {
			what := fmt.Sprintf("rows=%d n=%d seed=%d", rows, n, seed)
			tile := func(stride int) fenced[T] { return newFenced[T](r, rows, n, stride) }
			x1, x2, y1, y2, cos, sin := tile(n+3), tile(n+3), tile(n+1), tile(n+1), tile(n), tile(n)
			v := func(f fenced[T], i, j int) float64 { return float64(*f.at(i, j)) }
			bound := func(int, int) float64 { return 20 * epsilon[T]() }
			Rotate(rows, n, y1.first(), y2.first(), n+1, x1.first(), x2.first(), n+3, cos.first(), sin.first(), n)
			y1.check(t, "y1", what, func(i, j int) float64 { return v(x1, i, j)*v(cos, i, j) - v(x2, i, j)*v(sin, i, j) }, bound)
			y2.check(t, "y2", what, func(i, j int) float64 { return v(x2, i, j)*v(cos, i, j) + v(x1, i, j)*v(sin, i, j) }, bound)
			if n%2 == 1 {
				continue
			}
			y := tile(n + 1)
			RotateNeighbours(rows, n, y.first(), n+1, x1.first(), n+3, cos.first(), sin.first(), n)
			y.check(t, "y", what, func(i, j int) float64 { return v(x1, i, j)*v(cos, i, j) + v(x1, i, j^1)*v(sin, i, j) }, bound)
		}
	}
}
