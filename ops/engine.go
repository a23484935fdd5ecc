package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Engine is Gorgonia's standard engine with an Add of our own: threaded on the host, and the only
// one on a device and for 16-bit values. Give it to a machine by gorgonia.WithEngine: the gradient
// of a node that is used several times is a sum, which Gorgonia computes by its own Add. A machine
// that runs values on a device, or of 16 bits, needs it; on the host it makes training a little
// faster.
func Engine() tensor.Engine { return engine{} }

type engine struct{ tensor.StdEng }

// Add computes a + b where both live. Its options are those of tensor.Add.
func (e engine) Add(a, b tensor.Tensor, options ...tensor.FuncOpt) (tensor.Tensor, error) {
	left, isDense := a.(*tensor.Dense)
	right, alsoDense := b.(*tensor.Dense)
	if isDense && alsoDense && isEmpty(left) && left.Shape().Eq(right.Shape()) {
		return left, nil // which Gorgonia's own cannot add
	}
	if isDense && alsoDense && sums.isSum(left, right) {
		if into, increment := tensor.ParseFuncOpts(options...).IncrReuse(); increment {
			return e.Add(into, left, tensor.UseUnsafe())
		}
		return left, nil
	}
	needed := !a.IsNativelyAccessible() || !b.IsNativelyAccessible() || a.Dtype() == BFloat16 || a.Dtype() == Float16
	if !isDense || !alsoDense || !needed && !isPlain(left, right, options) {
		return e.StdEng.Add(a, b, options...)
	}
	sum, err := add(left, right, tensor.ParseFuncOpts(options...))
	if err != nil {
		return nil, fmt.Errorf("Add: %w", err)
	}
	return sum, nil
}

// isEmpty reports whether a tensor has no elements: an axis of length 0.
func isEmpty(t *tensor.Dense) bool { return slices.Contains(t.Shape(), 0) }

// isPlain reports whether an addition on the host is one of row-major tensors of one type of floats
// and one shape, into one like them. Gorgonia does the others, and finds what is wrong with them.
func isPlain(a, b *tensor.Dense, options []tensor.FuncOpt) bool {
	into, increment := tensor.ParseFuncOpts(options...).IncrReuse()
	if increment {
		return false
	}
	list := []tensor.Tensor{a, b}
	if into != nil {
		list = append(list, into)
	}
	for _, t := range list {
		dense, ok := t.(*tensor.Dense)
		if !ok || dense.IsMasked() || dense.Dims() == 0 || dense.Dtype() != a.Dtype() || !dense.Shape().Eq(a.Shape()) ||
			dtypeOf(dense.Dtype()) == kernels.NoDType || dense.Shape().TotalSize() == 0 || !dense.IsNativelyAccessible() {
			return false
		}
		if seen, err := view(host, dense, dtypeOf(a.Dtype()), a.Shape()); err != nil || !seen.IsRowMajor() {
			return false
		}
	}
	return true
}

// add computes a + b into what the options say.
func add(a, b *tensor.Dense, options *tensor.OpOpt) (*tensor.Dense, error) {
	into, increment := options.IncrReuse()
	if into != nil && into.IsNativelyAccessible() != a.IsNativelyAccessible() && !increment {
		into = nil // memory of the host that Gorgonia set aside before it knew where the values are
	}
	if into == nil && !options.Safe() {
		into = a
	}
	names, values := []string{"a", "b"}, []gorgonia.Value{a, b}
	if into != nil {
		names, values = append(names, "the result"), append(values, into)
	}
	place, err := placeOfAll(names, values)
	if err != nil {
		return nil, err
	}
	terms := make(tensors, 3)
	for i, v := range values {
		if terms[i], err = view(place, v, dtypeOf(a.Dtype()), a.Shape()); err != nil {
			return nil, fmt.Errorf("%s %w", names[i], err)
		}
	}
	sum := terms[2]
	switch {
	case into == nil:
		if sum, err = place.Alloc(terms[0].DType, a.Shape()...); err != nil {
			return nil, err
		}
		v := ValueOf(sum)
		if v.IsNativelyAccessible() {
			tensor.WithEngine(a.Engine())(v)
		}
		return v, place.Add(terms[0], terms[1], sum)
	case increment:
		if err := place.Add(terms[0], sum, sum); err != nil {
			return nil, err
		}
		return into.(*tensor.Dense), place.Add(terms[1], sum, sum)
	}
	return into.(*tensor.Dense), place.Add(terms[0], terms[1], sum)
}
