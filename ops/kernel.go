package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// tensors stand in the order of an op's inputs, or of its outputs. One that is left out, or that
// nothing uses, is the zero Tensor.
type tensors = []kernels.Tensor

// kernel is what a file of this package adds for an op. [apply] makes it a node, or several. A
// kernel has no state: what a run leaves for its gradients lies in the [call].
type kernel struct {
	// describe checks the inputs, which have no data yet.
	describe func(in tensors) (description, error)
	// forward computes the outputs.
	forward func(r *run, in, out tensors) error
	// backward computes the gradients of the inputs that are set in d. Inputs declared unread have
	// a shape but no data. It is nil where there is nothing to compute.
	backward func(r *run, in, dOut, d tensors) error

	// accumulates says that backward can add the gradient of input 0 to what d has there, where
	// [run.adds] says so.
	accumulates bool

	// linear says that outputs are linear in all inputs that have a gradient, and that backward
	// reads none of these.
	linear bool
	// second adds the gradients of the gradients to the graph. It is nil where there are none.
	second func(x *cotangents) (differentiated, error)
	// ofOutput says that second gives the gradient by the output, from which backward computes, and
	// not by the inputs.
	ofOutput bool
	// first adds the gradients of the inputs to the graph, in the place of backward.
	first func(in, dOut gorgonia.Nodes) (gorgonia.Nodes, error)
}

// description is what an op says of its kernel. The zero value of every field is the usual case:
// the gradients need nothing but the inputs.
type description struct {
	outputs    tensors // one without axes is a scalar
	statistics int     // how many of the last outputs are constants to a gradient
	dOutput    kernels.DType
	gradients  gradientsFrom
	// saves is what forward leaves for backward, where a gradient is wanted. One without a data
	// type is memory that forward asks for itself, with [run.keep].
	saves        tensors
	readsOutputs int // how many of the first outputs backward reads too
	bias         int // the input that is added last: its gradient is the sum of the output's rows; 0 for none
	sums         int // the input of whose gradient backward sums the rows too, if asked to; 0 for none
	dropout      kernels.Dropout
	costly       bool // forward takes long beside what it leaves for backward
	leavesRoom   bool // its kernels leave room for transfers beside them
	joins        joins
	gathers      *gather  // the shared weight that it collects
	changed      []string // the weights whose changes of low rank it computes
	// again adds to the graph what computes an output once more, in little time, for a backward
	// run. It is nil where that takes long.
	again func(c *call, output int, a *again) (*gorgonia.Node, error)
}

// joins says what a kernel does together with its neighbours': see [postponed].
type joins struct {
	product   bool  // it is a product, and takes norms; others take products
	postpones int   // the output, counted from 1, that it may leave to the step that reads it; 0 for none
	takes     []int // the inputs that it may compute itself
}

// gradientsFrom is where an op's gradients come from: the zero value is the kernel's backward.
type gradientsFrom int

const (
	_ gradientsFrom = iota
	// fromForward: forward computes the gradients, scaled by the graph's loss scale, and saves
	// them, one an input. Backward puts them into d.
	fromForward
	fromOutput // the gradient of each input is that of the output
	noGradient // there are none: backward may tell a lispMachine, which asks any op, by an error
)

// like describes one output that is like a tensor.
func like(t kernels.Tensor) description { return description{outputs: tensors{t}} }

// described describes one output of a dtype and shape.
func described(dtype kernels.DType, shape ...int) description {
	return like(kernels.Contiguous(nil, dtype, shape...))
}

// input is an input of an op.
type input struct {
	name     string
	node     *gorgonia.Node
	form     form
	optional bool          // a nil node leaves it out
	scalars  bool          // it may be a scalar
	unread   bool          // backward does not read its value
	shared   bool          // its gradient is that of the input before it
	again    bool          // backward reads it computed once more, where that takes little time
	roundsTo kernels.DType // if 16-bit, a float32 value is used as if rounded to this type
}

// form is what a kernel needs of an input's value.
type form int

const (
	rowsForm          form = iota // a contiguous last axis; another value is copied
	denseForm                     // row-major; another value is copied
	stridedForm                   // nothing: it takes any strides
	ownRowsForm                   // a contiguous last axis; another value is an error
	indexForm                     // row-major integers, which have no gradient
	constantForm                  // rows of floats or integers, which have no gradient
	packedForm                    // a packed matrix, which has no gradient
	packedColumnsForm             // the same, and its rows are the columns of what the kernel sees
	hostForm                      // a vector of integers that the host reads, which has no gradient
	rereadForm                    // the same, and the kernel reads it again where its work is recorded: [run.vary]
)

// hasGradient reports whether inputs of the form have one.
func (f form) hasGradient() bool { return f < indexForm }

// isOnHost reports whether the host reads inputs of the form.
func (f form) isOnHost() bool { return f >= hostForm }

// apply adds an op with one output to the graph.
func apply(name string, k kernel, inputs ...input) (*gorgonia.Node, error) {
	return one(applyAll(name, k, inputs...))
}

// one is the first of an op's outputs.
func one(outputs gorgonia.Nodes, err error) (*gorgonia.Node, error) {
	if err != nil {
		return nil, err
	}
	return outputs[0], nil
}

// applyAll adds an op to the graph and returns its outputs.
func applyAll(name string, k kernel, inputs ...input) (gorgonia.Nodes, error) {
	outputs, err := newCall(name, k, inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return outputs, nil
}

// check finds what is wrong with an input by itself, and describes it.
func (in *input) check() (kernels.Tensor, error) {
	dtype, err := in.dtype()
	if err != nil {
		return kernels.Tensor{}, err
	}
	if dtype.IsPacked() {
		return in.checkPacked(dtype)
	}
	shape := in.node.Shape()
	if len(shape) == 0 && !in.scalars {
		err = fmt.Errorf("%s is a scalar, it needs at least one axis", in.name)
	}
	return kernels.Contiguous(nil, dtype, shape...), err
}

// dtype is the type of the input's node, if it may have that.
func (in *input) dtype() (kernels.DType, error) {
	of := in.node.Dtype()
	if packed := packedDTypeOf(of); packed != kernels.NoDType && (in.form == packedForm || in.form == packedColumnsForm) {
		return packed, nil
	}
	float, index := dtypeOf(of), indexDTypeOf(of)
	switch {
	case in.form == constantForm && anyDTypeOf(of) == kernels.NoDType:
		return 0, fmt.Errorf("%s is %v, it needs to be bool, %s, int, int32 or int64", in.name, of, floatTypes)
	case in.form == constantForm:
		return anyDTypeOf(of), nil
	case in.form.hasGradient() && float == kernels.NoDType:
		return 0, fmt.Errorf("%s is %v, it needs to be %s", in.name, of, floatTypes)
	case in.form.hasGradient():
		return float, nil
	case index == kernels.NoDType:
		return 0, fmt.Errorf("%s is %v, it needs to be int, int32 or int64", in.name, of)
	}
	return index, nil
}

// checkGraph makes sure that nodes are there and belong to one graph.
func checkGraph(names []string, nodes gorgonia.Nodes) error {
	var graph *gorgonia.ExprGraph
	for i, n := range nodes {
		if n == nil {
			return fmt.Errorf("%s is nil, it needs to be a node", names[i])
		}
		if n.Type() == nil {
			return fmt.Errorf("%s is a zero node, it needs to be one of a graph", names[i])
		}
		if n.Graph() == nil {
			continue // a constant, which belongs to any graph
		}
		if graph != nil && n.Graph() != graph {
			return fmt.Errorf("%s belongs to another graph than the inputs before it, all need one graph", names[i])
		}
		graph = n.Graph()
	}
	if graph == nil {
		return errors.New("all inputs are constants, at least one needs to belong to a graph")
	}
	return nil
}

// checkSame makes sure that a tensor has the shape and dtype of another.
func checkSame(name string, t kernels.Tensor, of string, like kernels.Tensor) error {
	if !slices.Equal(t.Shape, like.Shape) {
		return fmt.Errorf("%s has shape %v, it needs %s's %v", name, t.Shape, of, like.Shape)
	}
	if t.DType != like.DType {
		return fmt.Errorf("%s is %v, %s is %v: they need one dtype", name, t.DType, of, like.DType)
	}
	return nil
}
