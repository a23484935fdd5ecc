package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Select is the part of x at one index of an axis, which goes away: of (B, S, C), Select(x, 1, 3)
// is (B, C), the rows of position 3. In contrast to Gorgonia's Slice it works on a device too.
func Select(x *gorgonia.Node, axis, index int) (*gorgonia.Node, error) {
	part := func(t kernels.Tensor) kernels.Tensor { // the part of a tensor like x
		t = t.Slice(axis, index, index+1)
		t.Shape, t.Strides = slices.Delete(t.Shape, axis, axis+1), slices.Delete(t.Strides, axis, axis+1)
		return t
	}
	return apply("Select", kernel{
		describe: func(in tensors) (is description, err error) {
			switch shape := in[0].Shape; {
			case len(shape) < 2:
				return is, fmt.Errorf("x has shape %v, it needs at least two axes", shape)
			case axis < 0 || axis >= len(shape):
				return is, fmt.Errorf("axis is %d, it needs to be from 0 to x's last, %d", axis, len(shape)-1)
			case index < 0 || index >= shape[axis]:
				return is, fmt.Errorf("index is %d, it needs to be from 0 to %d: x has shape %v", index, shape[axis]-1, shape)
			}
			return described(in[0].DType, part(in[0]).Shape...), nil
		},
		forward: func(r *run, in, out tensors) error { return r.Copy(out[0], part(in[0])) },
		backward: func(r *run, _, dOut, d tensors) error { // zeros around the part
			if err := r.Fill(d[0], 0); err != nil {
				return err
			}
			return r.Copy(part(d[0]), dOut[0])
		},
	}, input{name: "x", node: x, form: stridedForm, unread: true})
}
