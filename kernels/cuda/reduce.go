//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Sum computes the sum of all elements of a float32 tensor.
func (d *Device) Sum(x, out kernels.Tensor) error { return d.sum("sum", x, out, 1) }

// Mean computes the mean of all elements of a float32 tensor.
func (d *Device) Mean(x, out kernels.Tensor) error {
	return d.sum("mean", x, out, float32(1/float64(x.Elements())))
}

// sum adds in float64, in an order that depends on the shape alone.
func (d *Device) sum(name string, x, out kernels.Tensor, factor float32) error {
	if err := scalarAnd(x, "out", out); err != nil {
		return fmt.Errorf("cuda:%d: %s: %w", d.index, name, err)
	}
	e := &elementwise{}
	if err := e.describe(operand{"x", x}); err != nil {
		return fmt.Errorf("cuda:%d: %s: %w", d.index, name, err)
	}
	const most = 512
	blocks := min(d.elementwiseBlocks(e), most)
	parts, err := d.memory.get(most * 8)
	if err != nil {
		return fmt.Errorf("cuda:%d: %s: %w", d.index, name, err)
	}
	defer parts.free()
	e.data[1] = parts.at
	if blocks > 0 {
		if err := d.launchElementwise("sum_f32", [3]int{blocks, 1, 1}, unsafe.Pointer(e)); err != nil {
			return err
		}
	}
	total := &elementwise{data: [3]address{addressOf(out), parts.at}, count: int64(blocks), bits: factorBits(factor)}
	err = d.launchElementwise("sum_f64", [3]int{1, 1, 1}, unsafe.Pointer(total))
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(out.Owner)
	return err
}

// Broadcast writes value·factor to every element of a float32 tensor.
func (d *Device) Broadcast(value kernels.Tensor, factor float64, x kernels.Tensor) error {
	err := scalarAnd(x, "value", value)
	if err == nil && math.IsNaN(factor) {
		err = fmt.Errorf("factor is %v, it needs to be a number", factor)
	}
	if err != nil {
		return fmt.Errorf("cuda:%d: broadcast: %w", d.index, err)
	}
	if x.Elements() == 0 {
		return nil
	}
	e := &elementwise{}
	if err := e.describe(operand{"x", x}); err != nil {
		return fmt.Errorf("cuda:%d: broadcast: %w", d.index, err)
	}
	e.data[1], e.bits = addressOf(value), factorBits(float32(factor))
	err = d.launchElementwise("spread_f32", [3]int{d.elementwiseBlocks(e), 1, 1}, unsafe.Pointer(e))
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(value.Owner)
	return err
}

// scalarAnd checks a tensor and a scalar that goes with it.
func scalarAnd(x kernels.Tensor, name string, scalar kernels.Tensor) error {
	for _, o := range []operand{{"x", x}, {name, scalar}} {
		if o.tensor.DType != kernels.F32 {
			return fmt.Errorf("%s is %v, it needs to be float32", o.name, o.tensor.DType)
		}
	}
	if err := (operand{"x", x}).check(x.Shape); err != nil {
		return err
	}
	return operand{name, scalar}.check([]int{})
}
