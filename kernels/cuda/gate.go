//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// gateArguments is GateArguments in src/gate.cu.
type gateArguments struct {
	lines        lines
	x, dy        readable
	y            writable
	slope, limit float32
}

// ClampedGate computes the gate of pairs.
func (d *Device) ClampedGate(g kernels.ClampedGate, x, y kernels.Tensor) error {
	if err := d.checked("clamped gate", g.CheckForward(x, y), x.DType); err != nil {
		return err
	}
	return d.gate("clamped_gate", &gateArguments{x: read(x), y: written(y), slope: float32(g.Slope), limit: float32(g.Limit)}, y, x, x)
}

// ClampedGateBackward computes the gradient of pairs.
func (d *Device) ClampedGateBackward(g kernels.ClampedGate, x, dy, dx kernels.Tensor) error {
	if err := d.checked("clamped gate backward", g.CheckBackward(x, dy, dx), x.DType); err != nil {
		return err
	}
	a := &gateArguments{x: read(x), dy: read(dy), y: written(dx), slope: float32(g.Slope), limit: float32(g.Limit)}
	return d.gate("clamped_gate_backward", a, dy, x, dx)
}

// gate queues a kernel over half as many elements as there are in pairs.
func (d *Device) gate(entry string, a *gateArguments, half, x, dx kernels.Tensor) (err error) {
	if a.lines, err = linesOf(half, x, dx); err != nil {
		return d.failed(entry, err)
	}
	count := a.lines.count * int64(a.lines.length)
	if count == 0 {
		return nil
	}
	s := shapeOf("gate", entry+entrySuffixes[x.DType], [3]int{d.elementwiseBlocks(count), 1, 1}, elementwiseThreads, 0)
	err = d.launch(s, nil, unsafe.Pointer(a))
	runtime.KeepAlive(half.Owner)
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(dx.Owner)
	return err
}
