//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Copy writes the elements of src into dst, which has the same shape. Each may lie on the device or on the host.
func (d *Device) Copy(dst, src kernels.Tensor) error {
	for _, o := range []operand{{"dst", dst}, {"src", src}} {
		if err := o.check(o.tensor.Shape); err != nil {
			return fmt.Errorf("cuda:%d: copy: %w", d.index, err)
		}
	}
	switch {
	case !slices.Equal(dst.Shape, src.Shape):
		return fmt.Errorf("cuda:%d: copy: src has shape %v, it needs dst's %v", d.index, src.Shape, dst.Shape)
	case dst.DType != src.DType && !(dst.DType.IsFloat() && src.DType.IsFloat()):
		return fmt.Errorf("cuda:%d: copy: dst is %v and src is %v, there is no conversion between them", d.index, dst.DType, src.DType)
	case dst.Elements() == 0:
		return nil
	case src.Owner != nil && dst.Owner != nil:
		return d.copies([]pair{{dst, src}})
	case src.Owner != nil:
		return d.copyDown(dst, src)
	case dst.Owner != nil:
		return d.copyUp(dst, src)
	}
	kernels.CopyHost(dst, src)
	return nil
}

// copyUp copies from the host to the device.
func (d *Device) copyUp(dst, src kernels.Tensor) error {
	if !src.IsRowMajor() {
		dense := onHost(src.DType, src.Shape)
		kernels.CopyHost(dense, src)
		src = dense
	}
	if dst.DType == src.DType && dst.IsRowMajor() {
		return d.UploadBytes(dst, src.Data)
	}
	up, err := d.Alloc(src.DType, src.Shape...)
	if err != nil {
		return err
	}
	if err := d.UploadBytes(up, src.Data); err != nil {
		return err
	}
	return d.copies([]pair{{dst, up}})
}

// copyDown copies from the device to the host, and waits for what is there.
func (d *Device) copyDown(dst, src kernels.Tensor) error {
	if dst.DType != src.DType || !src.IsRowMajor() {
		dense, err := d.Alloc(dst.DType, dst.Shape...)
		if err != nil {
			return err
		}
		if err := d.copies([]pair{{dense, src}}); err != nil {
			return err
		}
		src = dense
	}
	if dst.IsRowMajor() {
		return d.DownloadBytes(src, dst.Data)
	}
	down := onHost(dst.DType, dst.Shape)
	if err := d.DownloadBytes(src, down.Data); err != nil {
		return err
	}
	kernels.CopyHost(dst, down)
	return nil
}

// onHost is a new row-major tensor in the host's memory.
func onHost(dtype kernels.DType, shape []int) kernels.Tensor {
	t := kernels.Contiguous(nil, dtype, shape...)
	t.Data = unsafe.Pointer(unsafe.SliceData(make([]uint64, (t.Elements()*dtype.Size()+7)/8)))
	return t
}

// pair is a tensor and what is to be copied into it.
type pair struct{ dst, src kernels.Tensor }

// kinds chooses the kernel that copies.
func (p pair) kinds() [2]kernels.DType { return [2]kernels.DType{p.dst.DType, p.src.DType} }

// module is where that kernel is.
func (p pair) module() string {
	if p.dst.DType != p.src.DType && (p.dst.DType == kernels.F64 || p.src.DType == kernels.F64) {
		return "copy_f64"
	}
	return "copy"
}

// copyList is Copies in src/copy.cu.
type copyList [4]elementwise

// copies is Copy for many pairs. Neighbours that need the same kernel go into one launch, which saves the time that a
// launch takes.
func (d *Device) copies(list []pair) error {
	defer runtime.KeepAlive(list)
	for len(list) > 0 {
		var c copyList
		together, blocks := 0, 0
		for together < min(len(list), len(c)) && list[together].kinds() == list[0].kinds() {
			e := &c[together]
			src := list[together].src
			src.Owner = nil // nothing is written there
			if err := e.describe(operand{"dst", list[together].dst}, operand{"src", src}); err != nil {
				return fmt.Errorf("cuda:%d: copy: %w", d.index, err)
			}
			blocks = max(blocks, d.elementwiseBlocks(e.count))
			together++
		}
		entry, ok := copyKernels[list[0].kinds()]
		if !ok {
			return fmt.Errorf("cuda:%d: copy: dst is %v and src is %v, there is no conversion between them",
				d.index, list[0].dst.DType, list[0].src.DType)
		}
		if blocks > 0 {
			s := launchShape{kernelName{list[0].module(), entry}, [3]int{blocks, together, 1}, elementwiseThreads, 0}
			if err := d.launch(s, nil, unsafe.Pointer(&c)); err != nil {
				return err
			}
		}
		list = list[together:]
	}
	return nil
}

var copyKernels = map[[2]kernels.DType]string{
	{kernels.F32, kernels.F32}: "copy_4", {kernels.I32, kernels.I32}: "copy_4",
	{kernels.F64, kernels.F64}: "copy_8", {kernels.I64, kernels.I64}: "copy_8",
	{kernels.BF16, kernels.BF16}: "copy_2", {kernels.F16, kernels.F16}: "copy_2",
	{kernels.F32, kernels.F64}: "copy_f32_f64", {kernels.F32, kernels.BF16}: "copy_f32_bf16", {kernels.F32, kernels.F16}: "copy_f32_f16",
	{kernels.F64, kernels.F32}: "copy_f64_f32", {kernels.F64, kernels.BF16}: "copy_f64_bf16", {kernels.F64, kernels.F16}: "copy_f64_f16",
	{kernels.BF16, kernels.F32}: "copy_bf16_f32", {kernels.BF16, kernels.F64}: "copy_bf16_f64", {kernels.BF16, kernels.F16}: "copy_bf16_f16",
	{kernels.F16, kernels.F32}: "copy_f16_f32", {kernels.F16, kernels.F64}: "copy_f16_f64", {kernels.F16, kernels.BF16}: "copy_f16_bf16",
}

// Zero writes zeros into row-major tensors.
func (d *Device) Zero(x []kernels.Tensor) error {
	defer runtime.KeepAlive(x)
	for _, t := range x {
		if !t.IsRowMajor() {
			return fmt.Errorf("cuda:%d: zero: a tensor has strides %v for shape %v, it needs to be row-major", d.index, t.Strides, t.Shape)
		}
		if err := d.zero(addressOf(t), t.Elements()*t.DType.Size()); err != nil {
			return err
		}
	}
	return nil
}

// Fill sets every element to x, rounded to the tensor's type.
func (d *Device) Fill(t kernels.Tensor, x float64) error {
	entry, ok := fillKernels[t.DType.Size()]
	if err := (operand{"t", t}).check(t.Shape); err != nil {
		return fmt.Errorf("cuda:%d: fill: %w", d.index, err)
	}
	switch {
	case !ok || t.Owner == nil:
		return fmt.Errorf("cuda:%d: fill: t is not in the memory of a device", d.index)
	case t.DType.IsInteger() && x != math.Trunc(x):
		return fmt.Errorf("cuda:%d: fill: x is %v, a tensor of %v needs a whole number", d.index, x, t.DType)
	}
	element := onHost(t.DType, nil)
	kernels.FillHost(element, x)
	return d.launchElementwise("fill", kernelName{"copy", entry}, &elementwise{bits: *(*uint64)(element.Data)}, operand{"t", t})
}

// fillKernels are the kernels that write elements of so many bytes.
var fillKernels = map[int]string{2: "fill_2", 4: "fill_4", 8: "fill_8"}

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
	name := kernelName{"elementwise" + suffix, entry + suffix}
	return d.launchElementwise(kernel, name, &elementwise{}, operand{"c", c}, operand{"a", a}, operand{"b", b})
}

// Mul computes c = a·b, element by element.
func (d *Device) Mul(a, b, c kernels.Tensor) error {
	const kernel = "mul"
	if err := d.checked(kernel, kernels.CheckMul(a, b, c), a.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "elementwise", "mul", elementwise{}, operand{"c", c}, operand{"a", a}, operand{"b", b})
}

// MulScalar computes y = factor·x.
func (d *Device) MulScalar(factor float64, x, y kernels.Tensor) error {
	const kernel = "mul scalar"
	if err := d.checked(kernel, kernels.CheckMulScalar(factor, x, y), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "elementwise", "scale", elementwise{factor: float32(factor)}, operand{"y", y}, operand{"x", x})
}

// checked returns the error of a call of a kernel: what the kernel's own check found, or that a GPU does not compute in the
// dtype of its tensors.
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

// operand is a tensor and what messages call it.
type operand struct {
	name   string
	tensor kernels.Tensor
}

const maxAxes = 6

// elementwise is Elementwise in src/elementwise.cuh.
type elementwise struct {
	data        [5]address
	strides     [5][maxAxes]int64
	dims        [maxAxes]int64
	count       int64
	axes, width int32
	factor      float32
	mode        int32
	bits        uint64
}

// elementwise runs a kernel over tensors of one shape, the outputs first. The module and the entry point are those of the first
// tensor's type.
func (d *Device) elementwise(name, module, entry string, e elementwise, operands ...operand) error {
	suffix := entrySuffixes[operands[0].tensor.DType]
	return d.launchElementwise(name, kernelName{module + suffix, entry + suffix}, &e, operands...)
}

func (d *Device) launchElementwise(name string, kernel kernelName, e *elementwise, operands ...operand) error {
	if err := e.describe(operands...); err != nil {
		return d.callError(name, err)
	}
	if e.count == 0 {
		return d.spare(1)
	}
	err := d.launch(launchShape{kernel, [3]int{d.elementwiseBlocks(e.count), 1, 1}, elementwiseThreads, 0}, nil, unsafe.Pointer(e))
	runtime.KeepAlive(operands)
	return err
}

const elementwiseThreads = 256

// elementwiseBlocks are enough for so many threads, or to fill the device, whose threads then take several turns.
func (d *Device) elementwiseBlocks(threads int64) int {
	return int(min((threads+elementwiseThreads-1)/elementwiseThreads, int64(d.multiprocessors*16)))
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

// describe tells the kernel of operands, which have one shape, with as few axes as possible: an axis of one element is left
// out, and one that begins where the axis inside it ends is joined to that.
func (e *elementwise) describe(operands ...operand) error {
	shape := operands[0].tensor.Shape
	for _, o := range operands {
		if err := o.check(shape); err != nil {
			return err
		}
	}
	if operands[0].tensor.Elements() == 0 {
		return nil
	}
	// These begin on the stack: a launch is a matter of microseconds.
	dims := make([]int, 0, maxAxes)
	var places [len(e.data)][maxAxes]int
	var strides [len(e.data)][]int
	for i := range strides {
		strides[i] = places[i][:0]
	}
	for axis := len(shape) - 1; axis >= 0; axis-- { // from the innermost
		if shape[axis] == 1 {
			continue
		}
		last := len(dims) - 1
		joins := last >= 0
		for i, o := range operands {
			joins = joins && o.tensor.Strides[axis] == strides[i][last]*dims[last]
		}
		if joins {
			dims[last] *= shape[axis]
			continue
		}
		dims = append(dims, shape[axis])
		for i, o := range operands {
			strides[i] = append(strides[i], o.tensor.Strides[axis])
		}
	}
	if len(dims) == 0 {
		dims = append(dims, 1)
		for i := range operands {
			strides[i] = append(strides[i], 1)
		}
	}
	if len(dims) > maxAxes {
		return fmt.Errorf("a tensor of shape %v has %d axes that lie apart, at most %d are possible", shape, len(dims), maxAxes)
	}
	e.axes, e.count = int32(len(dims)), 1
	largest := 0
	for _, o := range operands {
		largest = max(largest, o.tensor.DType.Size())
	}
	e.width = int32(accessBytes / largest)
	for n := range dims {
		at := len(dims) - 1 - n
		e.dims[at] = int64(dims[n])
		e.count *= int64(dims[n])
		for i := range operands {
			e.strides[i][at] = int64(strides[i][n])
			if n == 0 && strides[i][n] != 1 || n > 0 && strides[i][n]%(accessBytes/largest) != 0 {
				e.width = 1
			}
		}
	}
	for i, o := range operands {
		e.data[i] = addressOf(o.tensor)
		if e.data[i]%address(accessBytes/largest*o.tensor.DType.Size()) != 0 {
			e.width = 1
		}
	}
	if dims[0]%(accessBytes/largest) != 0 {
		e.width = 1
	}
	e.count /= int64(e.width)
	return nil
}

// accessBytes is what a thread moves at once where it can.
const accessBytes = 16
