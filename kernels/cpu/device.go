package cpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/memory"
	"github.com/stheno-ml/stheno/kernels"
)

// Name is "cpu".
func (b *Backend) Name() string { return "cpu" }

// Alloc returns a row-major tensor in Go's memory, aligned to a cache line.
func (b *Backend) Alloc(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	size := dtype.Size()
	if size == 0 {
		return kernels.Tensor{}, fmt.Errorf("cpu: cannot allocate a tensor of %v", dtype)
	}
	bytes, most := size, math.MaxInt-cacheLine
	for _, d := range shape {
		if d < 0 || d > 0 && bytes > most/d {
			return kernels.Tensor{}, fmt.Errorf("cpu: cannot allocate a tensor of shape %v", shape)
		}
		bytes *= d
	}
	if total, known := memory.Total(); known && uint64(bytes) > total {
		return kernels.Tensor{}, fmt.Errorf("cpu: cannot allocate a tensor of shape %v: it takes %d bytes, the machine has %d", shape, bytes, total)
	}
	return kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(alignedBytes(bytes))), dtype, shape...), nil
}

// Owner is nil: Go's collector knows the host's memory.
func (b *Backend) Owner(kernels.Tensor) any { return nil }

// Synchronize has nothing to wait for: a call has done its work when it returns.
func (b *Backend) Synchronize() error { return nil }

// number is a number that was there when it was asked for.
type number float64

func (n number) Float64() (float64, error) { return float64(n), nil }

// Read reads the element of a tensor that has one.
func (b *Backend) Read(t kernels.Tensor) (kernels.Number, error) {
	if err := checkLies("read", "t", t); err != nil {
		return nil, err
	}
	if t.Elements() != 1 {
		return nil, callError("read", fmt.Errorf("t has shape %v, it needs one element", t.Shape))
	}
	return number(kernels.HostElement(t, 0)), nil
}

// event is the time at which it was recorded.
type event time.Time

// Record marks now.
func (b *Backend) Record() (kernels.Event, error) { return event(time.Now()), nil }

func (e event) Wait() error { return nil }

func (e event) Since(earlier kernels.Event) (time.Duration, error) {
	from, ok := earlier.(event)
	if !ok {
		return 0, errors.New("cpu: the events are of two devices")
	}
	return time.Time(e).Sub(time.Time(from)), nil
}

// Copy writes the elements of src, which may lie anywhere on the host, into dst, rounded to its
// type.
func (b *Backend) Copy(dst, src kernels.Tensor) (err error) {
	defer catch("copy", &err)
	if err := checkLies("copy", "dst", dst); err != nil {
		return err
	}
	if err := checkLies("copy", "src", src); err != nil {
		return err
	}
	if !slices.Equal(dst.Shape, src.Shape) {
		return callError("copy", fmt.Errorf("src has shape %v, it needs dst's %v", src.Shape, dst.Shape))
	}
	if dst.DType != src.DType && !(dst.DType.IsFloat() && src.DType.IsFloat()) {
		return callError("copy", fmt.Errorf("dst is %v and src is %v, there is no conversion between them", dst.DType, src.DType))
	}
	b.convert(dst, src)
	return nil
}

// Fill sets every element of a tensor.
func (b *Backend) Fill(t kernels.Tensor, x float64) (err error) {
	defer catch("fill", &err)
	if err := checkLies("fill", "t", t); err != nil {
		return err
	}
	if t.DType.IsInteger() && x != math.Trunc(x) {
		return callError("fill", fmt.Errorf("x is %v, a tensor of %v needs a whole number", x, t.DType))
	}
	if x == 0 && !math.Signbit(x) && t.IsRowMajor() {
		b.clear(t)
	} else {
		kernels.FillHost(t, x)
	}
	return nil
}

// clear writes zeros to a row-major tensor, in tasks that threads share.
func (b *Backend) clear(t kernels.Tensor) {
	n, size := t.Elements(), t.DType.Size()
	memory := unsafe.Slice((*byte)(t.Data), n*size)
	per := b.perTask(n)
	b.each(ceilDiv(n, per), elementFLOPs*float64(n), func(task int) {
		clear(memory[task*per*size : min(n, (task+1)*per)*size])
	})
}

// checkLies makes sure that a tensor lies on the host, with a stride an axis.
func checkLies(kernel, name string, t kernels.Tensor) error {
	switch {
	case !t.IsSet():
		return callError(kernel, fmt.Errorf("%s is missing", name))
	case t.Owner != nil:
		return callError(kernel, fmt.Errorf("%s is in the memory of another device", name))
	}
	if t.DType.IsPacked() {
		return callError(kernel, fmt.Errorf("%s is %v, whose elements can only be multiplied by", name, t.DType))
	}
	if err := kernels.CheckTensor(name, t); err != nil {
		return callError(kernel, err)
	}
	return nil
}
