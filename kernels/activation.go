package kernels

import (
	"fmt"
	"strings"
)

// Activation is a function that is applied to every element:
//
//	NoActivation  x
//	GELUTanh      x·σ(2z), z = √(2/π)·(x + 0.044715·x³): ½x(1 + tanh z)
//	GELUErf       x·Φ(x) = ½x(1 + erf(x/√2))
//	SiLU          x·σ(x) = x/(1 + e⁻ˣ)
//	ReLUSquared   max(x, 0)²
//	ReLU          max(x, 0)
//	QuickGELU     x·σ(1.702·x)
//	Sigmoid       σ(x) = 1/(1 + e⁻ˣ)
//	Tanh          tanh(x)
type Activation int

// The values of [Activation], which says what each computes.
const (
	NoActivation Activation = iota
	GELUTanh
	GELUErf
	SiLU
	ReLUSquared
	ReLU
	QuickGELU
	Sigmoid
	Tanh
)

var activationNames = [...]string{
	"NoActivation", "GELUTanh", "GELUErf", "SiLU", "ReLUSquared", "ReLU", "QuickGELU", "Sigmoid", "Tanh",
}

// Activations lists all activations.
func Activations() []Activation {
	list := make([]Activation, len(activationNames))
	for i := range list {
		list[i] = Activation(i)
	}
	return list
}

func (a Activation) String() string {
	if a >= 0 && int(a) < len(activationNames) {
		return activationNames[a]
	}
	return fmt.Sprintf("Activation(%d)", int(a))
}

// Validate returns an error unless the activation is one of the known ones.
func (a Activation) Validate() error {
	if last := len(activationNames) - 1; a < 0 || int(a) > last {
		return fmt.Errorf("activation is %d, it needs to be %s or %s", int(a), strings.Join(activationNames[:last], ", "), activationNames[last])
	}
	return nil
}

// CheckForward returns what is wrong with a call of Activate.
func (a Activation) CheckForward(x, y Tensor) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}}, operandList{{"y", y}})
}

// CheckBackward returns what is wrong with a call of ActivateBackward.
func (a Activation) CheckBackward(x, dy, dx Tensor) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return checkAlike(x, "x", operandList{{"x", x}, {"dy", dy}}, operandList{{"dx", dx}})
}

// CheckSwiGLU returns what is wrong with a call of SwiGLU.
func CheckSwiGLU(gate, up, y Tensor) error {
	return checkAlike(gate, "gate", operandList{{"gate", gate}, {"up", up}}, operandList{{"y", y}})
}

// CheckSwiGLUBackward returns what is wrong with a call of SwiGLUBackward.
func CheckSwiGLUBackward(gate, up, dy, dGate, dUp Tensor) error {
	return checkAlike(gate, "gate", operandList{{"gate", gate}, {"up", up}, {"dy", dy}}, operandList{{"dGate", dGate}, {"dUp", dUp}})
}

// ActivationKernels apply activations and their derivatives. All tensors of a call have one shape
// and one dtype, and contiguous rows; an output may be one of the inputs. 16-bit tensors are
// computed in float32 and rounded once.
type ActivationKernels interface {
	// Activate computes y = act(x).
	Activate(act Activation, x, y Tensor) error
	// ActivateBackward computes dx = dy·act'(x).
	ActivateBackward(act Activation, x, dy, dx Tensor) error
	// SwiGLU computes y = silu(gate)·up.
	SwiGLU(gate, up, y Tensor) error
	// SwiGLUBackward computes dGate = dy·up·silu'(gate) and dUp = dy·silu(gate).
	SwiGLUBackward(gate, up, dy, dGate, dUp Tensor) error
}
