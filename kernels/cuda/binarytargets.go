//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// binaryTargets is BinaryTargets in src/function.cu.
type binaryTargets struct {
	elementwise
	fault fault
}

// BinaryTargets copies targets, which need to be from 0 to 1.
func (d *Device) BinaryTargets(targets, y kernels.Tensor) error {
	const kernel = "binary cross-entropy"
	if err := d.checked(kernel, kernels.CheckBinaryTargets(targets, y), targets.DType); err != nil {
		return err
	}
	g := &binaryTargets{}
	if err := g.describe([]output{{"y", y}}, input{"targets", targets}); err != nil {
		return d.callError(kernel, err)
	}
	if g.count == 0 {
		return d.queue().Spare(1)
	}
	var err error
	if g.fault, err = d.fault(faultBinaryTargets); err != nil {
		return d.failed(kernel, err)
	}
	suffix := entrySuffixes[y.DType]
	err = d.launch(shapeOf("function"+suffix, "binary_targets"+suffix, [3]int{d.elementwiseBlocks(g.count), 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(targets.Owner)
	runtime.KeepAlive(y.Owner)
	return err
}
