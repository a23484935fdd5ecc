package ops

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// arrangement is an op that moves elements and computes nothing: parts of its inputs become parts
// of its output. It needs copies, and sums of tensors for gradients, which every device has.
type arrangement struct {
	shape []int // of the output
	parts []arranged
	fill  float64 // of the elements of the output that no part gives
	gaps  bool    // there are such elements
	rests bool    // the parts do not read every element of the inputs
	again bool    // the parts read some elements more than once: their gradients are sums
}

// arranged is a part of an arrangement, as views of tensors that are like the input and the output.
type arranged struct {
	input    int
	from, to func(t kernels.Tensor) kernels.Tensor
}

// whole views all of a tensor.
func whole(t kernels.Tensor) kernels.Tensor { return t }

// arrange adds an arrangement to the graph. plan checks the inputs, which have no data.
func arrange(name string, plan func(in tensors) (arrangement, error), inputs ...input) (*gorgonia.Node, error) {
	for i := range inputs {
		inputs[i].form, inputs[i].unread = stridedForm, true
	}
	var a arrangement
	return apply(name, kernel{
		second: func(x *cotangents) (differentiated, error) {
			return x.linearBy(func(inputs []input) (gorgonia.Nodes, error) {
				n, err := arrange(name, func(in tensors) (arrangement, error) {
					same, err := plan(in)
					same.fill = 0
					return same, err
				}, inputs...)
				return gorgonia.Nodes{n}, err
			})
		},
		describe: func(in tensors) (is description, err error) {
			a, err = plan(in)
			return described(in[0].DType, a.shape...), err
		},
		forward: func(r *run, in, out tensors) error {
			if a.gaps {
				if err := r.Fill(out[0], a.fill); err != nil {
					return err
				}
			}
			for _, p := range a.parts {
				if err := r.Copy(p.to(out[0]), p.from(in[p.input])); err != nil {
					return err
				}
			}
			return nil
		},
		backward: func(r *run, _, dOut, d tensors) error { return a.backward(r, dOut[0], d) },
	}, inputs...)
}

// backward gives each element of an input the sum of the gradients of its places in the output.
func (a *arrangement) backward(r *run, dOut kernels.Tensor, d tensors) error {
	sums := slices.Clone(d)
	for i, t := range d {
		if !t.IsSet() {
			continue
		}
		if wide := t.DType.Wide(); a.again && wide != t.DType {
			var err error
			if sums[i], err = r.scratch(wide, t.Shape...); err != nil {
				return err
			}
		}
		if a.rests || a.again {
			if err := r.Fill(sums[i], 0); err != nil {
				return err
			}
		}
	}
	for _, p := range a.parts {
		if !d[p.input].IsSet() {
			continue
		}
		to, from := p.from(sums[p.input]), p.to(dOut)
		err := error(nil)
		if a.again {
			err = r.Add(to, from, to)
		} else {
			err = r.Copy(to, from)
		}
		if err != nil {
			return err
		}
	}
	for i, t := range d {
		if sums[i].Data != t.Data {
			if err := r.Copy(t, sums[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// every views count indices of an axis, from the first on and a step apart.
func every(t kernels.Tensor, axis, first, count, step int) kernels.Tensor {
	t = t.Slice(axis, first, first+count)
	t.Strides[axis] *= step
	return t
}
