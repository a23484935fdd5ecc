//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// Activate computes y = act(x).
func (d *Device) Activate(act kernels.Activation, x, y kernels.Tensor) error {
	const kernel = "activation"
	if err := d.checked(kernel, act.CheckForward(x, y), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "activation", "activate", elementwise{mode: int32(act)}, []output{{"y", y}}, input{"x", x})
}

// ActivateBackward computes dx = dy·act'(x).
func (d *Device) ActivateBackward(act kernels.Activation, x, dy, dx kernels.Tensor) error {
	const kernel = "activation backward"
	if err := d.checked(kernel, act.CheckBackward(x, dy, dx), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "activation", "activate_backward", elementwise{mode: int32(act)},
		[]output{{"dx", dx}}, input{"x", x}, input{"dy", dy})
}

// SwiGLU computes y = silu(gate)·up.
func (d *Device) SwiGLU(gate, up, y kernels.Tensor) error {
	const kernel = "swiglu"
	if err := d.checked(kernel, kernels.CheckSwiGLU(gate, up, y), gate.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "activation", "swiglu", elementwise{}, []output{{"y", y}}, input{"gate", gate}, input{"up", up})
}

// SwiGLUBackward computes dGate = dy·up·silu'(gate) and dUp = dy·silu(gate).
func (d *Device) SwiGLUBackward(gate, up, dy, dGate, dUp kernels.Tensor) error {
	const kernel = "swiglu backward"
	if err := d.checked(kernel, kernels.CheckSwiGLUBackward(gate, up, dy, dGate, dUp), gate.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "activation", "swiglu_backward", elementwise{},
		[]output{{"dGate", dGate}, {"dUp", dUp}}, input{"gate", gate}, input{"up", up}, input{"dy", dy})
}
