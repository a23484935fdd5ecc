//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// Apply computes y = f(x).
func (d *Device) Apply(f kernels.Function, x, y kernels.Tensor) error {
	const kernel = "function"
	if err := d.checked(kernel, f.CheckForward(x, y), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "function", "function", elementwise{mode: int32(f)}, []output{{"y", y}}, input{"x", x})
}

// ApplyBackward computes dx = dy·f'(x).
func (d *Device) ApplyBackward(f kernels.Function, x, dy, dx kernels.Tensor) error {
	const kernel = "function backward"
	if err := d.checked(kernel, f.CheckBackward(x, dy, dx), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "function", "function_backward", elementwise{mode: int32(f)},
		[]output{{"dx", dx}}, input{"x", x}, input{"dy", dy})
}

// AddScalar computes y = x + number.
func (d *Device) AddScalar(number float64, x, y kernels.Tensor) error {
	const kernel = "add scalar"
	if err := d.checked(kernel, kernels.CheckAddScalar(number, x, y), x.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "function", "add_scalar", elementwise{factor: float32(number)}, []output{{"y", y}}, input{"x", x})
}

// Div computes c = a/b, element by element.
func (d *Device) Div(a, b, c kernels.Tensor) error {
	const kernel = "div"
	if err := d.checked(kernel, kernels.CheckDiv(a, b, c), a.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "function", "div", elementwise{}, []output{{"c", c}}, input{"a", a}, input{"b", b})
}

// DivBackward computes da = dc/b and db = −dc·a/b².
func (d *Device) DivBackward(a, b, dc, da, db kernels.Tensor) error {
	const kernel = "div backward"
	if err := d.checked(kernel, kernels.CheckDivBackward(a, b, dc, da, db), a.DType); err != nil {
		return err
	}
	return d.elementwise(kernel, "function", "div_backward", elementwise{},
		[]output{{"da", da}, {"db", db}}, input{"a", a}, input{"b", b}, input{"dc", dc})
}
