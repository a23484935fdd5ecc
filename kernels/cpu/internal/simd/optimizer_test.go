package simd

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestOptimizerRows(t *testing.T) {
	everywhere(t, testOptimizerRows[float32], testOptimizerRows[float64])
}

func testOptimizerRows[T kernels.Float](t *testing.T) {
	const scale, beta1, beta2, decay, rate, pull, ahead, epsilon, root = 0.5, 0.75, 0.875, 0.9375, 0.25, 0.125, 0.0625, 1e-3, 1.5
	what := ""
	eachRowCase(t, func(c *rowCase[T]) {
		what = c.what
		rows := func() (before, after fenced[T]) {
			before = c.row()
			return before, before.clone()
		}
		g := c.row()
		gradient := func(j int) float64 { return scale * f64(g, j) }

		c.what = what + " AdamW"
		w0, w := rows()
		m0, m := rows()
		v0, v := rows()
		for j := range c.n {
			*v0.at(0, j) *= *v0.at(0, j)
			*v.at(0, j) = *v0.at(0, j)
		}
		AdamW(c.n, w.first(), g.first(), m.first(), v.first(), scale, 1-beta1, beta2, 1-beta2, root, epsilon, decay, rate)
		mean := func(beta float64, j int) float64 { return beta*f64(m0, j) + (1-beta)*gradient(j) }
		square := func(j int) float64 { return beta2*f64(v0, j) + (1-beta2)*gradient(j)*gradient(j) }
		c.near("m", m, 4, func(j int) float64 { return mean(beta1, j) })
		c.near("v", v, 4, square)
		c.near("w", w, 8, func(j int) float64 {
			return decay*f64(w0, j) - rate*mean(beta1, j)/(root*math.Sqrt(square(j))+epsilon)
		})

		c.what = what + " SGD"
		w0, w = rows()
		pulled := func(j int) float64 { return gradient(j) + pull*f64(w0, j) }
		SGD(c.n, w.first(), g.first(), scale, pull, decay, rate)
		c.near("w", w, 4, func(j int) float64 { return decay*f64(w0, j) - rate*pulled(j) })

		c.what = what + " SGDMomentum"
		w0, w = rows()
		m0, m = rows()
		SGDMomentum(c.n, w.first(), g.first(), m.first(), scale, pull, beta1, decay, rate, ahead)
		momentum := func(j int) float64 { return beta1*f64(m0, j) + pulled(j) }
		c.near("m", m, 4, momentum)
		c.near("w", w, 4, func(j int) float64 { return decay*f64(w0, j) - rate*pulled(j) - ahead*momentum(j) })

		c.what = what + " Lion"
		w0, w = rows()
		m0, m = rows()
		Lion(c.n, w.first(), g.first(), m.first(), scale, beta1, 1-beta1, beta2, 1-beta2, decay, rate)
		c.near("m", m, 4, func(j int) float64 { return mean(beta2, j) })
		c.near("w", w, 4, func(j int) float64 { return decay*f64(w0, j) - math.Copysign(rate, mean(beta1, j)) })

		sum := 0.0
		for j := range c.n {
			sum += f64(g, j) * f64(g, j)
		}
		if got := SumSquares(c.n, g.first()); !(math.Abs(got-sum) <= 1e-14*sum) {
			t.Errorf("%s: the sum of squares is %.17g, want %.17g", what, got, sum)
		}
	})
}

// The direction of Lion's step, from the smallest normal numbers to infinity, with zero and NaN.
func TestLionSign(t *testing.T) { everywhere(t, testLionSign[float32], testLionSign[float64]) }

func testLionSign[T kernels.Float](t *testing.T) {
	least, most := 0x1p-126, math.MaxFloat32
	if !single32[T]() {
		least, most = 0x1p-1022, math.MaxFloat64
	}
	for _, x := range []float64{0, least, 1, 3e-20, most, math.Inf(1), math.NaN()} {
		for _, sign := range []float64{1, -1} {
			g, w, m := []T{T(sign * x)}, []T{5}, []T{0}
			Lion(1, &w[0], &g[0], &m[0], 1, 0, 1, 0.5, 0.5, 1, 2)
			want := 5 - 2*sign
			if x == 0 {
				want = 5
			}
			if got := float64(w[0]); got != want && !(math.IsNaN(x) && math.IsNaN(got)) {
				t.Errorf("a gradient of %v takes 5 to %v, want %v", g[0], got, want)
			}
		}
	}
}
