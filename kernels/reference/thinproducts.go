package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// ThinProducts returns Across and Down, row-major; one that the problem does not have is nil.
func ThinProducts(p *kernels.ThinProducts) (across, down []float64) {
	rows, columns, ranks, x := p.X.Shape[0], p.X.Shape[1], p.Ranks(), elements[float64](p.X)
	if p.Up.IsSet() {
		for i, up := range elements[float64](p.Up) {
			x[i] *= up / (1 + math.Exp(-x[i]))
		}
	}
	if p.Right.IsSet() {
		across = make([]float64, rows*ranks)
		right := elements[float64](p.Right)
		eachRow(rows, func(row int) {
			for column := range columns {
				for rank := range ranks {
					across[row*ranks+rank] += p.Scale * x[row*columns+column] * right[column*ranks+rank]
				}
			}
		})
	}
	if p.Left.IsSet() {
		down = make([]float64, ranks*columns)
		left := elements[float64](p.Left)
		eachRow(ranks, func(rank int) {
			for row := range rows {
				for column := range columns {
					down[rank*columns+column] += left[row*ranks+rank] * x[row*columns+column]
				}
			}
		})
	}
	return across, down
}
