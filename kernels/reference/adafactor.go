package reference

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// Adafactor returns one tensor's weights and means after a step: r and c of a matrix, v of a
// vector. ϵ is that of the dtype for which the result is computed.
func Adafactor[T kernels.Float](o kernels.Adafactor, ϵ float64, shape []int, w, g, r, c, v []T) (newW, newR, newC, newV []T) {
	newW, newR, newC, newV = slices.Clone(w), slices.Clone(r), slices.Clone(c), slices.Clone(v)
	if len(w) == 0 {
		return newW, newR, newC, newV
	}
	step, n := float64(o.Step), float64(len(w))
	forget, u := T(math.Pow(step, o.Beta2Decay)), make([]T, len(w))
	for i := range g {
		u[i] = T(o.EffectiveScale()) * g[i]
	}
	if len(shape) < 2 {
		for i, x := range u {
			newV[i] += forget * (x*x - v[i])
			u[i] = x / sqrt(max(newV[i], T(ϵ*ϵ)))
		}
	}
	if count, rows, columns := o.Matrices(shape); len(shape) >= 2 {
		for i := range count {
			r, c := newR[i*rows:][:rows], newC[i*columns:][:columns]
			at := func(row, column int) *T { return &u[(i*rows+row)*columns+column] }
			var total float64
			for row := range r {
				sum := 0.0
				for column := range c {
					sum += float64(*at(row, column)) * float64(*at(row, column))
				}
				r[row] += forget * (T(sum/float64(columns)) - r[row])
				total += float64(r[row])
			}
			for column := range c {
				sum := 0.0
				for row := range r {
					sum += float64(*at(row, column)) * float64(*at(row, column))
				}
				c[column] += forget * (T(sum/float64(rows)) - c[column])
			}
			mean := max(T(total/float64(rows)), T(ϵ))
			for row := range r {
				for column := range c {
					*at(row, column) /= sqrt(max(r[row]*c[column]/mean, T(ϵ*ϵ)))
				}
			}
		}
	}
	rate := max(o.Epsilon, math.Sqrt(SumSquares(w)/n)) * min(o.LearningRate, 1/math.Sqrt(step))
	rate /= max(1, math.Sqrt(SumSquares(u)/n)/o.Clip)
	for i := range w {
		newW[i] = T(1-o.LearningRate*o.WeightDecay)*w[i] - T(rate)*u[i]
	}
	return newW, newR, newC, newV
}
