//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// Copy writes the elements of src into dst, which has the same shape. Each may lie on the device or
// on the host.
func (d *Device) Copy(dst, src kernels.Tensor) error {
	for _, o := range []operand{{"dst", dst}, {"src", src}} {
		if err := o.check(o.tensor.Shape); err != nil {
			return fmt.Errorf("%s: copy: %w", d.Name(), err)
		}
	}
	switch {
	case !slices.Equal(dst.Shape, src.Shape):
		return fmt.Errorf("%s: copy: src has shape %v, it needs dst's %v", d.Name(), src.Shape, dst.Shape)
	case dst.DType != src.DType && !(dst.DType.IsFloat() && src.DType.IsFloat()):
		return fmt.Errorf("%s: copy: dst is %v and src is %v, there is no conversion between them", d.Name(), dst.DType, src.DType)
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

// Upload gives a copy of a tensor on the host, row-major in the device's memory.
func (d *Device) Upload(host kernels.Tensor) (kernels.Tensor, error) {
	t, err := d.Alloc(host.DType, host.Shape...)
	if err != nil {
		return t, err
	}
	return t, d.Copy(t, host)
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

// copies is Copy for many pairs. Neighbours that need the same kernel go into one launch, which
// saves the time that a launch takes.
func (d *Device) copies(list []pair) error {
	defer runtime.KeepAlive(list)
	for len(list) > 0 {
		var c copyList
		together, blocks := 0, 0
		for together < min(len(list), len(c)) && list[together].kinds() == list[0].kinds() {
			e := &c[together]
			if err := e.describe([]output{{"dst", list[together].dst}}, input{"src", list[together].src}); err != nil {
				return fmt.Errorf("%s: copy: %w", d.Name(), err)
			}
			blocks = max(blocks, d.elementwiseBlocks(e.count))
			together++
		}
		entry, ok := copyKernels[list[0].kinds()]
		if !ok {
			return fmt.Errorf("%s: copy: dst is %v and src is %v, there is no conversion between them",
				d.Name(), list[0].dst.DType, list[0].src.DType)
		}
		if blocks > 0 {
			s := shapeOf(list[0].module(), entry, [3]int{blocks, together, 1}, elementwiseThreads, 0)
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
			return fmt.Errorf("%s: zero: a tensor has strides %v for shape %v, it needs to be row-major", d.Name(), t.Strides, t.Shape)
		}
		if err := d.zero(written(t).Address(), t.Elements()*t.DType.Size()); err != nil {
			return err
		}
	}
	return nil
}

// Fill sets every element to x, rounded to the tensor's type.
func (d *Device) Fill(t kernels.Tensor, x float64) error {
	entry, ok := fillKernels[t.DType.Size()]
	if err := (operand{"t", t}).check(t.Shape); err != nil {
		return fmt.Errorf("%s: fill: %w", d.Name(), err)
	}
	switch {
	case !ok || t.Owner == nil:
		return fmt.Errorf("%s: fill: t is not in the memory of a device", d.Name())
	case t.DType.IsInteger() && x != math.Trunc(x):
		return fmt.Errorf("%s: fill: x is %v, a tensor of %v needs a whole number", d.Name(), x, t.DType)
	}
	element := onHost(t.DType, nil)
	kernels.FillHost(element, x)
	return d.launchElementwise("fill", driver.Kernel{Module: "copy", Entry: entry}, &elementwise{bits: *(*uint64)(element.Data)}, []output{{"t", t}})
}

// fillKernels are the kernels that write elements of so many bytes.
var fillKernels = map[int]string{2: "fill_2", 4: "fill_4", 8: "fill_8"}
