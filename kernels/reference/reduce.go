package reference

import "github.com/stheno-ml/stheno/kernels"

// Sum returns the sum of all elements.
func Sum[T kernels.Float](x kernels.Tensor) T {
	var sum T
	for _, v := range elements[T](x) {
		sum += v
	}
	return sum
}

// Mean returns the mean of all elements.
func Mean[T kernels.Float](x kernels.Tensor) T { return Sum[T](x) / T(x.Elements()) }
