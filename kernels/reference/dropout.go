package reference

import "github.com/stheno-ml/stheno/kernels"

// Dropout returns x with elements dropped, row-major. The gradient is the same of dy.
func Dropout[T kernels.Float](d kernels.Dropout, x kernels.Tensor) []T {
	y := elements[T](x)
	for i := range y {
		row, column := 0, 0
		if len(x.Shape) > 0 {
			row, column = i/lastAxis(x), i%lastAxis(x)
		}
		if d.Keep(0, row, column) {
			y[i] *= T(d.Scale())
		} else {
			y[i] = 0
		}
	}
	return y
}
