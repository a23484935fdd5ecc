package ops

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Cast rounds x to another type of floats, to nearest, ties to even: float32, float64, [BFloat16]
// or [Float16]; a scalar to float32 or float64. Its gradient is rounded to the type of x. A node
// that has the type already is returned as it is.
func Cast(x *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	if x != nil && x.Type() != nil && x.Dtype() == dtype {
		return x, nil
	}
	return apply("Cast", kernel{
		describe: func(in tensors) (description, error) {
			to := dtypeOf(dtype)
			if to == kernels.NoDType {
				return description{}, fmt.Errorf("dtype is %v, it needs to be %s", dtype, floatTypes)
			}
			if len(in[0].Shape) == 0 && to != to.Wide() {
				return description{}, fmt.Errorf("x is a scalar, it needs to stay float32 or float64: of a cost of 16 bits gorgonia.Grad gives nothing")
			}
			return described(to, in[0].Shape...), nil
		},
		linear:   true,
		forward:  func(r *run, in, out tensors) error { return r.Copy(out[0], in[0]) },
		backward: func(r *run, _, dOut, d tensors) error { return r.Copy(d[0], dOut[0]) },
	}, input{name: "x", node: x, unread: true, scalars: true})
}

// Converted is a copy of a value in another type of floats, rounded as [Cast] rounds a node, where
// the value lives.
func Converted(v gorgonia.Value, dtype tensor.Dtype) (*tensor.Dense, error) {
	to := dtypeOf(dtype)
	switch {
	case v == nil:
		return nil, errors.New("Converted: the value is nil")
	case to == kernels.NoDType:
		return nil, fmt.Errorf("Converted: dtype is %v, it needs to be %s", dtype, floatTypes)
	case dtypeOf(v.Dtype()) == kernels.NoDType:
		return nil, fmt.Errorf("Converted: the value is %v, it needs to be %s", v.Dtype(), floatTypes)
	}
	from, place, err := located(v)
	if err != nil {
		return nil, fmt.Errorf("Converted: the value %w", err)
	}
	t, err := copied(from, to, place, place)
	if err != nil {
		return nil, fmt.Errorf("Converted: %w", err)
	}
	runtime.KeepAlive(v)
	return ValueOf(t), nil
}
