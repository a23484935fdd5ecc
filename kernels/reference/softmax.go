package reference

import "github.com/stheno-ml/stheno/kernels"

// Softmax returns y and the gradient of x for the gradient dy, row-major.
func Softmax[T kernels.Float](x kernels.Tensor, dy []T) (y, dx []T) {
	y, dx = elements[T](x), make([]T, x.Elements())
	length := lastAxis(x)
	for from := 0; from < len(y); from += length {
		row, dRow := y[from:][:length], dy[from:][:length]
		// y = exp(x − log Σ exp x)
		lse := logSumExp(row)
		for v := range row {
			row[v] = exp(row[v] - lse)
		}
		// dx = y·(dy − Σ y·dy)
		sum := dot(row, dRow)
		for v := range row {
			dx[from+v] = row[v] * (dRow[v] - sum)
		}
	}
	return y, dx
}
