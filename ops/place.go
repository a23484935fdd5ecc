package ops

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A value's place is the backend of the device in whose memory it lies. This file finds it, and
// goes from values to tensors and back.

// host is the place of values in Go's memory.
var host kernels.Backend = cpu.New()

// opened are the places besides the host: a *Device an index.
var opened sync.Map

// PlaceOf returns the backend that computes where a value lives. A value on a device that is not
// open, or a view of a value that is gone, is an error.
func PlaceOf(v gorgonia.Value) (kernels.Backend, error) {
	t, ok := v.(*tensor.Dense)
	if !ok || t == nil {
		return nil, fmt.Errorf("is %s, it needs to be a *tensor.Dense", kindOf(v))
	}
	if t.IsNativelyAccessible() {
		return host, nil
	}
	// Gorgonia gives values new engines as it pleases, so the address is what tells.
	at, _ := dataOf(t)
	var place kernels.Backend
	opened.Range(func(_, d any) bool {
		if b := d.(*Device).backend; b.Owner(kernels.Tensor{Data: at}) != nil {
			place = b
		}
		return place == nil
	})
	if place == nil {
		return nil, errors.New("is not in the memory of a device that is open, or is a view of a value that is gone")
	}
	return place, nil
}

// kindOf says for a message what a value is that is no tensor.
func kindOf(v gorgonia.Value) string {
	if t, ok := v.(*tensor.Dense); v == nil || ok && t == nil {
		return "nil"
	}
	return fmt.Sprintf("a %T", v)
}

// copierOf is the one of two places that copies between them: a device reaches the host's memory
// too.
func copierOf(a, b kernels.Backend) kernels.Backend {
	if a == host {
		return b
	}
	return a
}

// DeviceOf returns the device on which a value lives, nil for the host.
func DeviceOf(v gorgonia.Value) (*Device, error) {
	place, err := PlaceOf(v)
	if err != nil {
		return nil, err
	}
	var device *Device
	opened.Range(func(_, d any) bool {
		if d.(*Device).backend == place {
			device = d.(*Device)
		}
		return device == nil
	})
	return device, nil
}

// TensorOf describes a value to a kernel, wherever it lives. The description is good while the
// value itself is there and is not reshaped.
func TensorOf(v gorgonia.Value) (kernels.Tensor, error) {
	t, _, err := located(v)
	return t, err
}

// located is a value's tensor, and its place.
func located(v gorgonia.Value) (kernels.Tensor, kernels.Backend, error) {
	place, err := PlaceOf(v)
	if err != nil {
		return kernels.Tensor{}, nil, err
	}
	t := v.(*tensor.Dense)
	if dtype := packedDTypeOf(t.Dtype()); dtype != kernels.NoDType {
		seen, err := viewPacked(place, t, dtype)
		return seen, place, err
	}
	dtype := anyDTypeOf(t.Dtype())
	if dtype == kernels.NoDType {
		return kernels.Tensor{}, nil, fmt.Errorf("is %v, it needs to be %s, or int, int32 or int64", t.Dtype(), floatTypes)
	}
	seen, err := view(place, t, dtype, t.Shape())
	return seen, place, err
}

// copied is a row-major copy of a tensor in a type and at a place, made by one that reaches both.
func copied(t kernels.Tensor, dtype kernels.DType, to, by kernels.Backend) (kernels.Tensor, error) {
	c, err := to.Alloc(dtype, t.Shape...)
	if err == nil {
		err = by.Copy(c, t)
	}
	return c, err
}

// ValueOf makes a row-major tensor a value that keeps the tensor's memory alive.
func ValueOf(t kernels.Tensor) *tensor.Dense {
	if t.Owner == nil {
		return hostValue(t)
	}
	return deviceValue(t, nodeDtype(t.DType), t.Shape...)
}

// deviceValue makes the memory of a tensor on a device a value of a type and a shape.
func deviceValue(t kernels.Tensor, dtype tensor.Dtype, shape ...int) *tensor.Dense {
	v := tensor.New(tensor.Of(dtype), tensor.WithShape(shape...),
		tensor.FromMemory(uintptr(t.Data), uintptr(t.Elements()*t.DType.Size())), tensor.WithEngine(inaccessible{}))
	runtime.AddCleanup(v, func(any) {}, t.Owner)
	return v
}

// inaccessible is the engine that a device's values are made with: it tells tensor that Go cannot
// read them, which the values remember when Gorgonia gives them another engine.
type inaccessible struct{ engine }

func (inaccessible) AllocAccessible() bool { return false }

func hostValue(t kernels.Tensor) *tensor.Dense {
	switch t.DType {
	case kernels.F32:
		return backed[float32](t)
	case kernels.F64:
		return backed[float64](t)
	case kernels.BF16:
		return adding(backed[kernels.BFloat16](t))
	case kernels.F16:
		return adding(backed[kernels.Float16](t))
	case kernels.I32:
		return backed[int32](t)
	}
	return backed[int64](t)
}

// adding gives a value the engine that can add it, which a lispMachine leaves it with.
func adding(v *tensor.Dense) *tensor.Dense {
	tensor.WithEngine(engine{})(v)
	return v
}

func backed[T kernels.Element](t kernels.Tensor) *tensor.Dense {
	data := kernels.Host[T](t)
	if len(t.Shape) == 0 {
		return tensor.New(tensor.FromScalar(data[0]))
	}
	return tensor.New(tensor.WithShape(t.Shape...), tensor.WithBacking(data))
}

// resultOf is the value of an op's output. The host's scalars are Gorgonia's own, whose ops take no
// others.
func resultOf(t kernels.Tensor) gorgonia.Value {
	if len(t.Shape) > 0 || t.Owner != nil {
		return ValueOf(t)
	}
	switch x := kernels.HostElement(t, 0); t.DType {
	case kernels.F64:
		return gorgonia.NewF64(x)
	default:
		return gorgonia.NewF32(float32(x))
	}
}

// placeOfAll finds the one place where all values live. The names are for the message.
func placeOfAll(names []string, values []gorgonia.Value) (kernels.Backend, error) {
	var common kernels.Backend
	var lead string
	for i, v := range values {
		if v == nil {
			continue
		}
		b, err := PlaceOf(v)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s %w", names[i], err)
		case common == nil:
			common, lead = b, names[i]
		case b != common:
			return nil, fmt.Errorf("%s is on %s, %s is on %s: all inputs need one place", names[i], b.Name(), lead, common.Name())
		}
	}
	return common, nil
}

// dataOf is where a value's elements lie, and the bytes from there to its end.
func dataOf(t *tensor.Dense) (at unsafe.Pointer, bytes int) {
	if t.MemSize() == 0 {
		return nil, 0
	}
	address := t.Uintptr()
	at = *(*unsafe.Pointer)(unsafe.Pointer(&address))
	runtime.KeepAlive(t)
	return at, int(t.MemSize())
}

// view describes a value to a kernel. The value must have the shape and type that its node
// promised. The view is good while neither the shape nor the value is changed, that is for the run
// of an op.
func view(b kernels.Backend, v gorgonia.Value, dtype kernels.DType, shape []int) (kernels.Tensor, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return kernels.Tensor{}, fmt.Errorf("is a %T, it needs to be a *tensor.Dense", v)
	}
	if anyDTypeOf(t.Dtype()) != dtype || !slices.Equal(t.Shape(), shape) {
		return kernels.Tensor{}, fmt.Errorf("is %v of shape %v, its node promised %v of shape %v", t.Dtype(), []int(t.Shape()), dtype, shape)
	}
	strides := t.Strides()
	if len(strides) != len(shape) {
		return kernels.Tensor{}, fmt.Errorf("has %d strides for its %d axes", len(strides), len(shape))
	}
	last := 0
	for axis, d := range shape {
		last += (d - 1) * strides[axis]
	}
	at, bytes := dataOf(t)
	if elements := bytes / dtype.Size(); last >= elements && !slices.Contains(shape, 0) {
		return kernels.Tensor{}, fmt.Errorf("has strides %v for shape %v, which reach beyond its %d elements", strides, shape, elements)
	}
	seen := kernels.Tensor{Data: at, DType: dtype, Shape: shape, Strides: strides}
	seen.Owner = b.Owner(seen)
	return seen, nil
}

// hasDenseAxes reports whether the last axes of a tensor, of the given number, have the strides of
// a row-major one.
func hasDenseAxes(t kernels.Tensor, axes int) bool {
	from := len(t.Shape) - axes
	return kernels.Tensor{Shape: t.Shape[from:], Strides: t.Strides[from:]}.IsRowMajor()
}
