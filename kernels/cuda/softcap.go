//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// SoftCap computes y = cap·tanh(x/cap).
func (d *Device) SoftCap(cap float64, x, y kernels.Tensor) error {
	const kernel = "soft cap"
	if err := d.checked(kernel, kernels.CheckSoftCap(cap, x, y), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "activation", "soft_cap", elementwise{factor: float32(cap)}, []output{{"y", y}}, input{"x", x})
}

// SoftCapBackward computes dx = dy·(1 − (y/cap)²).
func (d *Device) SoftCapBackward(cap float64, y, dy, dx kernels.Tensor) error {
	const kernel = "soft cap backward"
	if err := d.checked(kernel, kernels.CheckSoftCapBackward(cap, y, dy, dx), y.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "activation", "soft_cap_backward", elementwise{factor: float32(cap)},
		[]output{{"dx", dx}}, input{"y", y}, input{"dy", dy})
}
