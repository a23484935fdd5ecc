package reference

import "github.com/stheno-ml/stheno/kernels"

// Add returns a + b, row-major.
func Add[T kernels.Float](a, b kernels.Tensor) []T {
	sum := elements[T](a)
	add(sum, 1, elements[T](b))
	return sum
}
