package cpu

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// indexRange is which indices are right: those from 0 to limit−1, and one more.
type indexRange struct {
	limit  int
	ignore *int   // the one more, nil for none
	named  string // what it is, in errors; empty for nothing to say
}

// noIndex is the index in a place of a list that is empty.
var noIndex = -1

func (r indexRange) has(i int64) bool {
	return i >= 0 && i < int64(r.limit) || r.ignore != nil && i == int64(*r.ignore)
}

func (r indexRange) String() string {
	switch {
	case r.named == "":
		return fmt.Sprintf("from 0 to %d", r.limit-1)
	case r.ignore == nil:
		return fmt.Sprintf("from 0 to %d, or %s, which is not set", r.limit-1, r.named)
	}
	return fmt.Sprintf("from 0 to %d, or %d, which is %s", r.limit-1, *r.ignore, r.named)
}

// readIndices copies a tensor of indices into to, row-major, and makes sure that each is one of a
// range.
func readIndices(to []int64, kernel, name string, t kernels.Tensor, valid indexRange) error {
	copyIndices(to, t)
	for i, x := range to {
		if uint64(x) >= uint64(valid.limit) && !valid.has(x) {
			return callError(kernel, fmt.Errorf("%s%v is %d, it needs to be %v", name, position(t.Shape, i), x, valid))
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
