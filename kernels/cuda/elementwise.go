//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// Add computes c = a + b.
func (d *Device) Add(a, b, c kernels.Tensor) error {
	const kernel = "add"
	if err := d.checked(kernel, kernels.CheckAdd(a, b, c), a.DType); err != nil {
		return err
	}
	entry, suffix := "add", entrySuffixes[b.DType]
	if b.DType != c.DType {
		entry = "add_wide"
	}
	name := driver.Kernel{Module: "elementwise" + suffix, Entry: entry + suffix}
	return d.launchElementwise(kernel, name, &elementwise{}, []output{{"c", c}}, input{"a", a}, input{"b", b})
}

// Mul computes c = a·b, element by element.
func (d *Device) Mul(a, b, c kernels.Tensor) error {
	const kernel = "mul"
	if err := d.checked(kernel, kernels.CheckMul(a, b, c), a.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "elementwise", "mul", elementwise{}, []output{{"c", c}}, input{"a", a}, input{"b", b})
}

// MulScalar computes y = factor·x.
func (d *Device) MulScalar(factor float64, x, y kernels.Tensor) error {
	const kernel = "mul scalar"
	if err := d.checked(kernel, kernels.CheckMulScalar(factor, x, y), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "elementwise", "scale", elementwise{factor: float32(factor)}, []output{{"y", y}}, input{"x", x})
}

// checked returns the error of a call of a kernel: what the kernel's own check found, or that a GPU
// does not compute in the dtype of its tensors.
func (d *Device) checked(kernel string, err error, dtype kernels.DType) error {
	switch {
	case err != nil:
		return d.callError(kernel, err)
	case entrySuffixes[dtype] == "":
		return kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("%s of %v", kernel, dtype)}
	}
	return nil
}

func (d *Device) callError(kernel string, err error) error {
	return &kernels.CallError{Device: d.Name(), Kernel: kernel, Err: err}
}

// entrySuffixes is how the names of entry points end for a type of elements.
var entrySuffixes = map[kernels.DType]string{kernels.F32: "_f32", kernels.BF16: "_bf16", kernels.F16: "_f16"}

// operand is a tensor and what messages call it. A kernel reads inputs and writes outputs.
type operand struct {
	name   string
	tensor kernels.Tensor
}

type (
	input  operand
	output operand
)

const maxAxes, mostOperands = 6, 5

// elementwise is Elementwise in src/elementwise.cuh.
type elementwise struct {
	data        [mostOperands]address
	strides     [mostOperands][maxAxes]int64
	dims        [maxAxes]int64
	count       int64
	axes, width int32
	factor      float32
	mode        int32
	bits        uint64
}

// elementwise runs a kernel over tensors of one shape. The module and the entry point are those of
// the first output's type.
func (d *Device) elementwise(name, module, entry string, e elementwise, outputs []output, inputs ...input) error {
	suffix := entrySuffixes[outputs[0].tensor.DType]
	return d.launchElementwise(name, driver.Kernel{Module: module + suffix, Entry: entry + suffix}, &e, outputs, inputs...)
}

func (d *Device) launchElementwise(name string, kernel driver.Kernel, e *elementwise, outputs []output, inputs ...input) error {
	if err := e.describe(outputs, inputs...); err != nil {
		return d.callError(name, err)
	}
	if e.count == 0 {
		return d.queue().Spare(1)
	}
	err := d.launch(shapeOf(kernel.Module, kernel.Entry, [3]int{d.elementwiseBlocks(e.count), 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(e))
	runtime.KeepAlive(outputs)
	runtime.KeepAlive(inputs)
	return err
}

const elementwiseThreads = 256

// elementwiseBlocks are enough for so many threads, or to fill the device, whose threads then take
// several turns.
func (d *Device) elementwiseBlocks(threads int64) int {
	return int(min((threads+elementwiseThreads-1)/elementwiseThreads, int64(d.Multiprocessors*16)))
}

func (o operand) check(shape []int) error {
	t := o.tensor
	switch {
	case !t.IsSet():
		return fmt.Errorf("%s is missing", o.name)
	case !slices.Equal(t.Shape, shape) || len(t.Strides) != len(shape):
		return fmt.Errorf("%s has shape %v and %d strides, it needs shape %v", o.name, t.Shape, len(t.Strides), shape)
	case t.Data == nil && t.Elements() > 0:
		return fmt.Errorf("%s has shape %v but no data", o.name, shape)
	}
	return nil
}

// describe tells the kernel of operands, which have one shape.
func (e *elementwise) describe(outputs []output, inputs ...input) error {
	// These begin on the stack: a launch is a matter of microseconds.
	var list [mostOperands]operand
	var tensors [mostOperands]kernels.Tensor
	for i, o := range outputs {
		list[i] = operand(o)
	}
	for i, o := range inputs {
		list[len(outputs)+i] = operand(o)
	}
	operands := list[:len(outputs)+len(inputs)]
	shape := operands[0].tensor.Shape
	largest := 0 // element
	for i, o := range operands {
		if err := o.check(shape); err != nil {
			return err
		}
		tensors[i] = o.tensor
		largest = max(largest, o.tensor.DType.Size())
	}
	if tensors[0].Elements() == 0 {
		return nil
	}
	joined, err := joinAxes(tensors[:len(operands)], len(shape), maxAxes)
	if err != nil {
		return err
	}
	wide := int64(accessBytes / largest)
	aligned := joined.dims[0]%wide == 0
	e.axes, e.count, e.width = int32(joined.count), 1, 1
	for n, size := range joined.dims[:joined.count] {
		at := joined.count - 1 - n
		e.dims[at] = size
		e.count *= size
		for i := range operands {
			stride := joined.strides[i][n]
			if size == 1 { // all that there is
				stride = 1
			}
			e.strides[i][at] = stride
			aligned = aligned && (n == 0 && stride == 1 || n > 0 && stride%wide == 0)
		}
	}
	for i, o := range operands {
		if e.data[i] = address(read(o.tensor)); i < len(outputs) {
			e.data[i] = written(o.tensor).Address()
		}
		aligned = aligned && e.data[i]%address(int(wide)*o.tensor.DType.Size()) == 0
	}
	if aligned {
		e.width = int32(wide)
		e.count /= wide
	}
	return nil
}

// accessBytes is what a thread moves at once where it can.
const accessBytes = 16
