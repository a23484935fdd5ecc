package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// RowsProduct returns C, row-major.
func RowsProduct(p *kernels.RowsProduct) []float64 {
	columns := p.Columns()
	c, residual := make([]float64, p.X.Shape[0]*columns), make([]float64, p.X.Shape[0]*columns)
	if p.Residual.IsSet() {
		residual = elements[float64](p.Residual)
	}
	var weights, biases [][]float64
	for n, w := range p.Weights {
		weights = append(weights, elements[float64](w))
		bias := make([]float64, w.Shape[1])
		if p.Biases != nil && p.Biases[n].IsSet() {
			bias = elements[float64](p.Biases[n])
		}
		biases = append(biases, bias)
	}
	eachRow(p.X.Shape[0], func(row int) {
		a := normedRow(p, elements[float64](p.X.Slice(0, row, row+1)))
		var sums []float64
		for n, w := range weights {
			sums = append(sums, make([]float64, len(biases[n]))...)
			last := sums[len(sums)-len(biases[n]):]
			addProduct(last, a, w)
			for j, b := range biases[n] {
				last[j] += b
			}
		}
		for j := range columns {
			x := sums[j]
			if p.Gated {
				x = x / (1 + math.Exp(-x)) * sums[columns+j]
			}
			c[row*columns+j] = x + residual[row*columns+j]
		}
	})
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
