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
	k := selection{axis: axis, index: index}
	return apply("Select", kernel{k.describe, k.forward, k.backward}, input{name: "x", node: x, form: stridedForm, unread: true})
}

type selection struct{ axis, index int }

func (k selection) describe(in tensors) (description, error) {
	shape := in[0].Shape
	switch {
	case len(shape) < 2:
		return description{}, fmt.Errorf("x has shape %v, it needs at least two axes", shape)
	case k.axis < 0 || k.axis >= len(shape):
		return description{}, fmt.Errorf("axis is %d, it needs to be from 0 to x's last, %d", k.axis, len(shape)-1)
	case k.index < 0 || k.index >= shape[k.axis]:
		return description{}, fmt.Errorf("index is %d, it needs to be from 0 to %d: x has shape %v", k.index, shape[k.axis]-1, shape)
	}
	return described(in[0].DType, slices.Delete(slices.Clone(shape), k.axis, k.axis+1)...), nil
}

// of views the part of a tensor like x.
func (k selection) of(t kernels.Tensor) kernels.Tensor {
	part := t.Slice(k.axis, k.index, k.index+1)
	part.Shape = slices.Delete(part.Shape, k.axis, k.axis+1)
	part.Strides = slices.Delete(part.Strides, k.axis, k.axis+1)
	return part
}

func (k selection) forward(r *run, in, out tensors) error {
	return r.Copy(out[0], k.of(in[0]))
}

// backward leaves zeros around the part.
func (k selection) backward(r *run, _, dOut, d tensors) error {
	if err := r.Fill(d[0], 0); err != nil {
		return err
	}
	return r.Copy(k.of(d[0]), dOut[0])
}
