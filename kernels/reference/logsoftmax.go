package reference

import "github.com/stheno-ml/stheno/kernels"

// LogSoftmax returns y and the gradient of x for the gradient dy, row-major.
func LogSoftmax[T kernels.Float](x kernels.Tensor, dy []T) (y, dx []T) {
	y, dx = elements[T](x), make([]T, x.Elements())
	length := lastAxis(x)
	for from := 0; from < len(y); from += length {
		row, dRow := y[from:][:length], dy[from:][:length]
		// y = x − log Σ exp x
		lse := logSumExp(row)
		var sum T
		for v := range row {
			row[v] -= lse
			sum += dRow[v]
		}
		// dx = dy − exp(y)·Σ dy
		for v := range row {
			dx[from+v] = dRow[v] - exp(row[v])*sum
		}
	}
	return y, dx
}
