package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file turns the inputs of a call into the kernels' attention problem: first as shapes, when the graph is built,
// and then as values, in each run.

// attentionInput is one input of the forward op.
type attentionInput struct {
	name  string
	role  role
	shape []int
}

type role int

const (
	rowsRole role = iota // q, k or v, or all of them
	biasRole
	sinksRole
	qLensRole
	kvLensRole
)

func (r role) differentiable() bool { return r <= sinksRole }

// layoutAxes names the axes for messages.
var layoutAxes = [...][]string{
	BHSD:   {"batch", "heads", "length", "head size"},
	BSHD:   {"batch", "length", "heads", "head size"},
	packed: {"total length", "heads", "head size"},
}

// check finds everything that is wrong with the inputs and can be known before they have values.
func (a *attention) check(nodes gorgonia.Nodes) error {
	names := make([]string, len(nodes))
	for i, in := range a.inputs {
		names[i] = in.name
	}
	if err := checkGraph(names, nodes); err != nil {
		return err
	}

	tensors := make([]kernels.Tensor, len(nodes))
	for i, n := range nodes {
		a.inputs[i].shape = n.Shape()
		in := a.inputs[i]
		if !in.role.differentiable() {
			if err := checkLens(in, n); err != nil {
				return err
			}
			continue
		}
		dtype := dtypeOf(n.Dtype())
		if dtype == kernels.NoDType {
			return fmt.Errorf("%s is %v, it needs to be float32 or float64", in.name, n.Dtype())
		}
		if in.role == rowsRole {
			if err := a.checkRank(in); err != nil {
				return err
			}
		}
		for _, d := range in.shape {
			if d < 1 {
				return fmt.Errorf("%s has shape %v, no axis can be empty", in.name, in.shape)
			}
		}
		tensors[i] = kernels.Contiguous(nil, dtype, in.shape...)
	}
	a.dtype = nodes[0].Dtype()

	p := a.problem(tensors, nil)
	if a.layout == packed {
		if q, k := a.entries(qLensRole), a.entries(kvLensRole); q != k {
			return fmt.Errorf("kvLens has %d entries, it needs qLens's %d", k, q)
		}
	}
	if a.layout == packed && p.Bias.IsSet() {
		// The sequences' lengths are not known yet, so neither is how long the bias needs to be.
		if err := a.checkPackedBias(&p); err != nil {
			return err
		}
		p.Bias = kernels.Tensor{}
	}
	if err := p.Validate(); err != nil {
		return err
	}
	batch, heads, length, size := p.Q.Shape[0], p.Q.Shape[1], p.Q.Shape[2], p.V.Shape[3]
	a.rows = []int{batch, heads, length}
	switch a.layout {
	case BHSD:
		a.oShape = []int{batch, heads, length, size}
	case BSHD:
		a.oShape = []int{batch, length, heads, size}
	case packed:
		a.oShape = []int{length, heads, size}
	}
	if last := len(a.oShape) - 1; a.heads > 0 {
		a.oShape = append(a.oShape[:last-1], heads*size)
	}
	return nil
}

// checkRank checks the number of axes of q, k, v or qkv.
func (a *attention) checkRank(in attentionInput) error {
	axes := layoutAxes[a.layout]
	if a.heads > 0 {
		axes = append(slices.Clone(axes[:len(axes)-2]), "(heads + 2·kvHeads) · head size")
	}
	if len(in.shape) != len(axes) {
		return fmt.Errorf("%s has shape %v, it needs %d axes: %q", in.name, in.shape, len(axes), axes)
	}
	if width := in.shape[len(axes)-1]; a.heads > 0 && width%(a.heads+2*a.kvHeads) != 0 {
		return fmt.Errorf("%s has %d columns, they need to be a multiple of heads + 2·kvHeads = %d", in.name, width, a.heads+2*a.kvHeads)
	}
	return nil
}

func checkLens(in attentionInput, n *gorgonia.Node) error {
	if d := n.Dtype(); d != tensor.Int && d != tensor.Int32 && d != tensor.Int64 {
		return fmt.Errorf("%s is %v, it needs to be int, int32 or int64", in.name, d)
	}
	if len(in.shape) != 1 || in.shape[0] < 2 {
		return fmt.Errorf("%s has shape %v, it needs to be a vector of at least 2 entries", in.name, in.shape)
	}
	return nil
}

func (a *attention) checkPackedBias(p *kernels.Attention) error {
	sequences := a.entries(qLensRole) - 1
	shape, heads := p.Bias.Shape, p.Q.Shape[1]
	if len(shape) != 4 || shape[0] != 1 && shape[0] != sequences || shape[1] != 1 && shape[1] != heads {
		return fmt.Errorf("bias has shape %v, it needs (1 or %d sequences, 1 or %d heads, 1 or the longest q, the longest k)", shape, sequences, heads)
	}
	if p.Bias.DType != p.Q.DType {
		return fmt.Errorf("bias is %v, q is %v: all inputs need one dtype", p.Bias.DType, p.Q.DType)
	}
	return nil
}

// entries is the length of the vector with a role.
func (a *attention) entries(r role) int {
	i := slices.IndexFunc(a.inputs, func(in attentionInput) bool { return in.role == r })
	return a.inputs[i].shape[0]
}

// problem puts the inputs' tensors where the kernels expect them. lens has an entry for each input, like tensors.
func (a *attention) problem(tensors []kernels.Tensor, lens [][]int) kernels.Attention {
	p := a.options
	p.Q, p.K, p.V = a.split(tensors)
	for i, in := range a.inputs {
		switch in.role {
		case biasRole:
			p.Bias = tensors[i]
		case sinksRole:
			p.Sinks = tensors[i]
		case qLensRole:
			if lens != nil {
				p.QLens = lens[i]
			}
		case kvLensRole:
			if lens != nil {
				p.KVLens = lens[i]
			}
		}
	}
	return p
}

// split views the leading inputs, or their gradients, as q, k and v of (B, H, S, D).
func (a *attention) split(tensors []kernels.Tensor) (q, k, v kernels.Tensor) {
	if a.heads == 0 {
		return a.kernelView(tensors[0]), a.kernelView(tensors[1]), a.kernelView(tensors[2])
	}
	last := len(tensors[0].Shape) - 1
	all := tensors[0].Unflatten(last, tensors[0].Shape[last]/(a.heads+2*a.kvHeads))
	part := func(from, heads int) kernels.Tensor { return a.kernelView(all.Slice(last, from, from+heads)) }
	return part(0, a.heads), part(a.heads, a.kvHeads), part(a.heads+a.kvHeads, a.kvHeads)
}

// outputView views the output, or its gradient, as (B, Hq, Sq, Dv).
func (a *attention) outputView(t kernels.Tensor) kernels.Tensor {
	if last := len(t.Shape) - 1; a.heads > 0 {
		t = t.Unflatten(last, t.Shape[last]/a.heads)
	}
	return a.kernelView(t)
}

// kernelView views a tensor of the call's layout as (B, H, S, D).
func (a *attention) kernelView(t kernels.Tensor) kernels.Tensor {
	switch a.layout {
	case BSHD:
		return t.Permute(0, 2, 1, 3)
	case packed:
		t = t.Permute(1, 0, 2)
		t.Shape = append([]int{1}, t.Shape...)
		t.Strides = append([]int{t.Shape[2] * t.Strides[1]}, t.Strides...)
	}
	return t
}

// bind makes a problem of the inputs' values.
func (a *attention) bind(values []gorgonia.Value) (p kernels.Attention, h *home, err error) {
	var names []string
	var floats []gorgonia.Value
	for i, in := range a.inputs {
		if in.role.differentiable() {
			names, floats = append(names, in.name), append(floats, values[i])
		}
	}
	if h, err = homeOfAll(names, floats); err != nil {
		return p, nil, err
	}
	tensors, lens := make([]kernels.Tensor, len(a.inputs)), make([][]int, len(a.inputs))
	for i, in := range a.inputs {
		if in.role.differentiable() {
			tensors[i], err = h.view(values[i], dtypeOf(a.dtype), in.shape)
		} else {
			lens[i], err = integers(values[i], in.shape[0])
		}
		if err != nil {
			return p, nil, fmt.Errorf("%s's value %w", in.name, err)
		}
	}
	p = a.problem(tensors, lens)
	p.Dropout = a.dropout
	return p, h, p.Validate()
}

// integers reads a vector of n integers on the host.
func integers(v gorgonia.Value, n int) ([]int, error) {
	t, ok := v.(*tensor.Dense)
	if !ok || !t.IsNativelyAccessible() {
		return nil, fmt.Errorf("is a %T, it needs to be a *tensor.Dense on the host", v)
	}
	if len(t.Shape()) != 1 || t.Shape()[0] != n {
		return nil, fmt.Errorf("has shape %v, its node promised a vector of %d", []int(t.Shape()), n)
	}
	list := make([]int, n)
	for i := range list {
		at := i * t.Strides()[0]
		switch t.Dtype() {
		case tensor.Int:
			list[i] = t.Ints()[at]
		case tensor.Int32:
			list[i] = int(t.Int32s()[at])
		case tensor.Int64:
			list[i] = int(t.Int64s()[at])
		default:
			return nil, fmt.Errorf("is %v, it needs to be int, int32 or int64", t.Dtype())
		}
	}
	return list, nil
}
