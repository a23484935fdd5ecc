package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// TopK is the k largest elements of each row of x, (..., n): values, (..., k), the largest first,
// and their indices in the row, int64 of the same shape, which have no gradient. Of equal elements
// the one of the lowest index comes first. A NaN counts as larger than any number.
func TopK(x *gorgonia.Node, k int) (values, ids *gorgonia.Node, err error) {
	outputs, err := applyAll("TopK", kernel{
		describe: func(in tensors) (is description, err error) {
			shape, err := kernels.TopKShape(in[0], k)
			if err != nil {
				return is, err
			}
			is.outputs = tensors{kernels.Contiguous(nil, in[0].DType, shape...), kernels.Contiguous(nil, kernels.I64, shape...)}
			is.statistics, is.readsOutputs = 1, 2
			return is, nil
		},
		forward: func(r *run, in, out tensors) error { return r.TopK(in[0], out[0], out[1]) },
		backward: func(r *run, _, dOut, d tensors) error {
			if !dOut[0].IsSet() {
				return zeroed(r, d[0])
			}
			return r.Scatter(dOut[0], r.out[1], d[0])
		},
	}, input{name: "x", node: x, unread: true})
	if err != nil {
		return nil, nil, err
	}
	return outputs[0], outputs[1], nil
}

// Max is the largest element of each row of x, (..., n), which is a NaN where there is one: (...).
// The gradient is that of the first of equal elements.
func Max(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Max", kernel{
		describe: func(in tensors) (is description, err error) {
			last := len(in[0].Shape) - 1
			if last < 1 {
				return is, fmt.Errorf("x has shape %v, it needs at least two axes (..., elements)", in[0].Shape)
			}
			is = described(in[0].DType, in[0].Shape[:last]...)
			is.saves = tensors{kernels.Contiguous(nil, kernels.I64, in[0].Shape[:last]...)} // where they were found
			return is, nil
		},
		forward: func(r *run, in, out tensors) error {
			ids, err := r.savedOrScratch(0)
			if err != nil {
				return err
			}
			return r.TopK(in[0], ofOne(out[0]), ofOne(ids))
		},
		backward: func(r *run, _, dOut, d tensors) error { return r.Scatter(ofOne(dOut[0]), ofOne(r.saved(0)), d[0]) },
	}, input{name: "x", node: x, unread: true})
}

// ofOne is a tensor as rows of one element.
func ofOne(t kernels.Tensor) kernels.Tensor {
	t.Shape, t.Strides = append(slices.Clone(t.Shape), 1), append(slices.Clone(t.Strides), 1)
	return t
}

// Gather takes elements of each row of x, (..., n), by their indices: ids are int, int32 or int64
// of shape (..., k), each from 0 to n−1, and may change from run to run. The result has their
// shape. [Embedding] takes whole rows.
func Gather(x, ids *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Gather", kernel{
		describe: func(in tensors) (description, error) {
			return described(in[0].DType, in[1].Shape...), kernels.ValidateIndexed("x", in[0], in[1])
		},
		linear:   true,
		forward:  func(r *run, in, out tensors) error { return r.Gather(in[0], in[1], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error { return r.Scatter(dOut[0], in[1], d[0]) },
	}, input{name: "x", node: x, unread: true}, input{name: "ids", node: ids, form: indexForm})
}

// Scatter puts the elements of x, (..., k), into rows of n elements, (..., n), where ids of the
// same shape as x say, and adds those that go to one place. Other elements are 0. The ids are int,
// int32 or int64, each from 0 to n−1, and may change from run to run.
func Scatter(x, ids *gorgonia.Node, n int) (*gorgonia.Node, error) {
	return apply("Scatter", kernel{
		describe: func(in tensors) (is description, err error) {
			if !slices.Equal(in[0].Shape, in[1].Shape) {
				return is, fmt.Errorf("ids has shape %v, it needs x's %v", in[1].Shape, in[0].Shape)
			}
			if n < 1 {
				return is, fmt.Errorf("n is %d, it needs to be at least 1", n)
			}
			return described(in[0].DType, append(slices.Clone(in[0].Shape[:len(in[0].Shape)-1]), n)...), nil
		},
		linear:   true,
		forward:  func(r *run, in, out tensors) error { return r.Scatter(in[0], in[1], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error { return r.Gather(dOut[0], in[1], d[0]) },
	}, input{name: "x", node: x, unread: true}, input{name: "ids", node: ids, form: indexForm})
}
