//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// dropoutArguments is DropoutArguments in src/dropout.cu.
type dropoutArguments struct {
	lines                       lines
	y                           writable
	x                           readable
	threshold, key0, key1, step uint32
	scale                       float32
	firstRow                    uint32
}

// Dropout computes y = x·keep·scale, the mask being that of plane 0 at the element's row and
// column.
func (d *Device) Dropout(o kernels.Dropout, x, y kernels.Tensor) error {
	const kernel = "dropout"
	if err := d.checked(kernel, o.Check(x, y), x.DType); err != nil {
		return err
	}
	if x.Elements() == 0 {
		return nil
	}
	l, err := linesOf(y, x)
	if err != nil {
		return d.failed(kernel, err)
	}
	key := kernels.PhiloxKey(o.Seed)
	g := &dropoutArguments{lines: l, y: written(y), x: read(x),
		threshold: o.Threshold(), key0: key[0], key1: key[1], step: d.queue().Step(o.Step), scale: float32(o.Scale()), firstRow: uint32(o.Row)}
	const columns = 8 // of a thread
	threads := l.count * ((int64(l.length) + columns - 1) / columns)
	s := shapeOf("dropout", "dropout"+entrySuffixes[x.DType], [3]int{d.elementwiseBlocks(threads), 1, 1}, elementwiseThreads, 0)
	s.Step = &driver.StepField{Offset: unsafe.Offsetof(g.step), Bytes: unsafe.Sizeof(*g)}
	err = d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(y.Owner)
	return err
}
