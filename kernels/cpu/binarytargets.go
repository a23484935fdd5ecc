package cpu

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// BinaryTargets copies targets, which need to be from 0 to 1.
func (b *Backend) BinaryTargets(targets, y kernels.Tensor) (err error) {
	const kernel = "binary cross-entropy"
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckBinaryTargets(targets, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y := h.read(targets), h.write(y)
	if inTypeOf(x, copyBinaryTargets[float32], copyBinaryTargets[float64])(b, x, y) {
		return nil
	}
	for n := range x.Elements() {
		at := position(x.Shape, n)
		if t := kernels.HostElement(x, x.Offset(at...)); !(t >= 0 && t <= 1) {
			return callError(kernel, fmt.Errorf("targets%v is %v, it needs to be from 0 to 1", at, t))
		}
	}
	return nil
}

// copyBinaryTargets reports whether all are from 0 to 1.
func copyBinaryTargets[T kernels.Float](b *Backend, x, y kernels.Tensor) bool {
	var wrong atomic.Bool
	eachPiece(b, func(n int, at [5]*T) {
		from, to := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n)
		fine := true
		for i, t := range from {
			fine = fine && t >= 0 && t <= 1
			to[i] = t
		}
		if !fine {
			wrong.Store(true)
		}
	}, x, y)
	return !wrong.Load()
}
