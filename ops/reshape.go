package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Reshape is x with other axes, of as many elements. It copies nothing unless x's value is a view,
// or an op of Gorgonia's might write over what the two share. In contrast to Gorgonia's own, its
// gradient is right where other ops read x too.
func Reshape(x *gorgonia.Node, shape ...int) (*gorgonia.Node, error) {
	n, err := newReshape(x, shape)
	if err != nil {
		return nil, fmt.Errorf("Reshape: %w", err)
	}
	return n, nil
}

func newReshape(x *gorgonia.Node, shape []int) (*gorgonia.Node, error) {
	if err := checkGraph([]string{"x"}, gorgonia.Nodes{x}); err != nil {
		return nil, err
	}
	from := x.Shape()
	if len(shape) == 0 || slices.Min(shape) < 0 || elementsOf(shape) != elementsOf(from) {
		return nil, fmt.Errorf("x has shape %v, it cannot become %v", []int(from), shape)
	}
	if anyDTypeOf(x.Dtype()) == kernels.NoDType {
		return nil, fmt.Errorf("x is %v, it needs to be bool, %s, int, int32 or int64", x.Dtype(), floatTypes)
	}
	s := newSignature("Reshape", gorgonia.Nodes{x}, []bool{true}, x.Dtype(), slices.Clone(shape)...)
	op := &reshape{signature: s, from: from.Clone()}
	n, err := gorgonia.ApplyOp(op, x)
	if err == nil {
		op.member = member{graph: n.Graph(), state: stateOf(n.Graph())}
	}
	return n, err
}

func elementsOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// reshape hands on the memory of what it reads.
type reshape struct {
	signature
	member
	from tensor.Shape
	copy kernels.Tensor
}

func (op *reshape) Do(children ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := op.reshaped(children[0], op.shape)
	if err != nil {
		return nil, fmt.Errorf("Reshape: %w", err)
	}
	return v, nil
}

// reshaped is a value with other axes, over the same memory unless that needs to be copied.
func (op *reshape) reshaped(v gorgonia.Value, shape tensor.Shape) (gorgonia.Value, error) {
	copies := op.planned().shared[op.id]
	if s, ok := v.(gorgonia.Scalar); ok {
		v, copies = tensor.New(tensor.FromScalar(s.Data())), false
	}
	b, err := PlaceOf(v)
	if err != nil {
		return nil, fmt.Errorf("x's value %w", err)
	}
	t := v.(*tensor.Dense) // what has a place is one
	from, err := view(b, t, anyDTypeOf(t.Dtype()), t.Shape())
	if err != nil {
		return nil, fmt.Errorf("x's value %w", err)
	}
	if !copies && from.IsRowMajor() && !t.IsView() { // tensor reshapes no view
		t = t.ShallowClone()
		return t, t.Reshape(shape...)
	}
	if err := fit(&op.copy, b, kernels.Contiguous(nil, from.DType, from.Shape...)); err != nil {
		return nil, err
	}
	return ValueOf(op.copy.Reshape(shape...)), b.Copy(op.copy, from)
}

// SymDiff turns the gradient back. That of a scalar is the sum of one element.
func (op *reshape) SymDiff(_ gorgonia.Nodes, _, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	var d *gorgonia.Node
	var err error
	if len(op.from) == 0 {
		d, err = Sum(dOut)
	} else {
		d, err = newReshape(dOut, op.from)
	}
	return gorgonia.Nodes{d}, err
}

// DoDiff is the gradient under a lispMachine.
func (op *reshape) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, output *gorgonia.Node) error {
	v, err := output.Grad()
	if err != nil {
		return err
	}
	if v, err = op.reshaped(v, op.from); err != nil {
		return fmt.Errorf("Reshape: %w", err)
	}
	return accumulate(inputs[0], v.(*tensor.Dense))
}
