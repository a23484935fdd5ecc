//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// keyMaskArguments is KeyMaskArguments in src/elementwise.cu.
type keyMaskArguments struct {
	mask, bias                readable
	out                       writable
	maskRow, perItem, count   int64
	keys                      int32
	maskBytes, floats, shared int32
}

// KeyMask computes out, which is bias where the mask is true, −∞ elsewhere.
func (d *Device) KeyMask(mask, bias, out kernels.Tensor) error {
	const kernel = "key mask"
	if err := d.checked(kernel, kernels.CheckKeyMask(mask, bias, out), out.DType); err != nil {
		return err
	}
	g := &keyMaskArguments{mask: read(mask), bias: read(bias), out: written(out), maskRow: int64(mask.Strides[0]),
		count: int64(out.Elements()), keys: int32(out.Shape[3]), maskBytes: int32(mask.DType.Size())}
	if g.count == 0 {
		return nil
	}
	g.perItem = g.count / int64(out.Shape[0])
	if mask.DType.IsFloat() {
		g.floats = 1
	}
	if bias.IsSet() && bias.Shape[0] == 1 {
		g.shared = 1
	}
	suffix := entrySuffixes[out.DType]
	s := shapeOf("elementwise"+suffix, "key_mask"+suffix, [3]int{d.elementwiseBlocks(g.count), 1, 1}, elementwiseThreads, 0)
	err := d.launch(s, nil, unsafe.Pointer(g))
	for _, t := range []kernels.Tensor{mask, bias, out} {
		runtime.KeepAlive(t.Owner)
	}
	return err
}
