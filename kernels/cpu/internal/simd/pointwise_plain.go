//go:build !amd64

package simd

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// pointwiseVector reports that there is no vector kernel.
func pointwiseVector[T kernels.Float](score.Op, int, int, *T, int, Points[T], Points[T], Points[T]) bool {
	return false
}
