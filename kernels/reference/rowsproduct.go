package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// RowsProduct returns C, row-major.
func RowsProduct(p *kernels.RowsProduct) (c []float64) {
	columns := p.Columns()
	residual := make([]float64, p.X.Shape[0]*columns)
	if p.Residual.IsSet() {
		residual = elements[float64](p.Residual)
	}
	for row := range p.X.Shape[0] {
		a := normedRow(p, elements[float64](p.X.Slice(0, row, row+1)))
		var sums []float64
		for n, w := range p.Weights {
			sums = append(sums, timesWeight(a, elements[float64](w), w.Shape[1])...)
			if p.Biases != nil && p.Biases[n].IsSet() {
				for j, b := range elements[float64](p.Biases[n]) {
					sums[len(sums)-w.Shape[1]+j] += b
				}
			}
		}
		for j := range columns {
			x := sums[j]
			if p.Gated {
				x = x / (1 + math.Exp(-x)) * sums[columns+j]
			}
			c = append(c, x+residual[row*columns+j])
		}
	}
	return c
}

// normedRow is a row of X after the norm, if there is one.
func normedRow(p *kernels.RowsProduct, x []float64) []float64 {
	if p.Norm == nil {
		return x
	}
	squares := 0.0
	for _, v := range x {
		squares += v * v
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+p.Norm.Eps)
	for i := range x {
		x[i] *= scale
	}
	if p.Norm.Gamma.IsSet() {
		for i, g := range elements[float64](p.Norm.Gamma) {
			x[i] *= g
		}
	}
	return x
}

// timesWeight is a row times a matrix.
func timesWeight(a, w []float64, columns int) []float64 {
	sums := make([]float64, columns)
	for i, v := range a {
		for j := range sums {
			sums[j] += v * w[i*columns+j]
		}
	}
	return sums
}
