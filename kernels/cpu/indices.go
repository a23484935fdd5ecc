package cpu

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// readIndices copies a tensor of indices into to, row-major, and makes sure that each is from 0 to
// limit−1 or one that the caller ignores.
func readIndices(to []int64, kernel, name string, t kernels.Tensor, limit int, ignores func(int) bool) error {
	copyIndices(to, t)
	for i := range to {
		if (to[i] < 0 || to[i] >= int64(limit)) && !ignores(int(to[i])) {
			return callError(kernel, fmt.Errorf("%s%v is %d, it needs to be from 0 to %d", name, position(t.Shape, i), to[i], limit-1))
		}
	}
	return nil
}

// copyIndices copies a tensor of indices, row-major.
func copyIndices(to []int64, t kernels.Tensor) {
	if t.IsRowMajor() {
		if t.DType == kernels.I64 {
			copy(to, kernels.Host[int64](t))
			return
		}
		for i, x := range kernels.Host[int32](t)[:len(to)] {
			to[i] = int64(x)
		}
		return
	}
	for i := range to {
		offset, rest := 0, i
		for axis := len(t.Shape) - 1; axis >= 0; axis-- {
			offset += rest % t.Shape[axis] * t.Strides[axis]
			rest /= t.Shape[axis]
		}
		if t.DType == kernels.I32 {
			to[i] = int64(kernels.Host[int32](t)[offset])
		} else {
			to[i] = kernels.Host[int64](t)[offset]
		}
	}
}

// position is the index of the n-th element in row-major order.
func position(shape []int, n int) []int {
	at := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at[axis], n = n%shape[axis], n/shape[axis]
	}
	return at
}
