package train

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file is what an optimiser knows of the place where its parameters live.

// control is the vector that steps are decided by, and what lies beside it.
type control struct {
	vector  kernels.Tensor // see kernels.ControlSteps
	window  kernels.Tensor // the part of it that has learning rates
	rates   []float64      // what goes there
	squares kernels.Tensor // the sum of the squares of each gradient
	current bool           // the vector holds the counts and the scale
	scaling kernels.LossScaling
	scale   lossScale // that the vector begins with
}

// ready finds that place, and makes the state and the control vector there.
func (o *Stepper) ready() error {
	if len(o.parameters) == 0 {
		return errors.New("there are no parameters, a Stepper needs to be made by NewStepper")
	}
	first := o.parameters[0].node
	if first.Value() == nil {
		return fmt.Errorf("%s has no value, it needs one", first.Name())
	}
	at, err := ops.PlaceOf(first.Value())
	if err != nil {
		return fmt.Errorf("the value of %s %w", first.Name(), err)
	}
	if o.backend == nil {
		o.backend = at
	}
	if at.Name() != o.backend.Name() {
		return fmt.Errorf("%s is on %s, the optimiser began on %s", first.Name(), at.Name(), o.backend.Name())
	}
	if !o.vector.IsSet() {
		if err := o.begin(); err != nil {
			return err
		}
	}
	if o.current {
		return nil
	}
	counts := make([]float64, kernels.ControlSize)
	counts[kernels.ControlSteps], counts[kernels.ControlSkipped] = float64(o.step), float64(o.skipped)
	counts[kernels.ControlSkippedInARow] = float64(o.skippedInARow)
	counts[kernels.ControlLossScale], counts[kernels.ControlGoodSteps] = o.scale.factor, float64(o.scale.goodSteps)
	if err := o.backend.Copy(o.vector, kernels.Of(counts, len(counts))); err != nil {
		return err
	}
	o.current = true
	return nil
}

// begin makes a state of zeros.
func (o *Stepper) begin() (err error) {
	alloc := func(dtype kernels.DType, shape ...int) (t kernels.Tensor) {
		if err == nil {
			t, err = o.backend.Alloc(dtype, shape...)
		}
		return t
	}
	dtype := dtypeOf(o.parameters[0].node)
	var list []kernels.Tensor
	for _, t := range o.stateTensors() {
		if *t.view = alloc(dtype, o.stateShape(t)...); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		list = append(list, *t.view)
	}
	if err := o.backend.Zero(list); err != nil {
		return err
	}
	o.squares = alloc(kernels.F64, len(o.parameters))
	control := alloc(kernels.F64, kernels.ControlSize)
	if err != nil {
		return err
	}
	o.vector, o.window = control, control.Slice(0, kernels.ControlFirstRate, kernels.ControlSize)
	o.rates = make([]float64, o.window.Elements())
	return nil
}

// isHost reports whether the parameters live in Go's memory.
func (o *Stepper) isHost() bool { return o.vector.Owner == nil }

// viewHere describes a value that needs to be where the parameters live.
func (o *Stepper) viewHere(v gorgonia.Value, dtype tensor.Dtype, shape []int) (kernels.Tensor, error) {
	view, err := viewOf(v, dtype, shape)
	if err == nil && (view.Owner == nil) != o.isHost() {
		err = fmt.Errorf("is not on %s, where %s is", o.backend.Name(), o.parameters[0].node.Name())
	}
	return view, err
}

// viewOf describes a value to a kernel; shape must be the value's.
func viewOf(v gorgonia.Value, dtype tensor.Dtype, shape []int) (kernels.Tensor, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return kernels.Tensor{}, fmt.Errorf("is a %T, it needs to be a *tensor.Dense", v)
	}
	if t.Dtype() != dtype || !slices.Equal(t.Shape(), shape) {
		return kernels.Tensor{}, fmt.Errorf("is %v of shape %v, it needs to be %v of shape %v", t.Dtype(), []int(t.Shape()), dtype, shape)
	}
	if !t.IsNativelyAccessible() {
		return ops.TensorOf(t)
	}
	view := kernels.Tensor{DType: kernels.F32, Shape: shape, Strides: t.Strides()}
	if dtype == tensor.Float32 {
		view.Data = unsafe.Pointer(unsafe.SliceData(t.Float32s()))
	} else {
		view.DType, view.Data = kernels.F64, unsafe.Pointer(unsafe.SliceData(t.Float64s()))
	}
	return view, nil
}
