package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// This file turns the inputs of a call into the kernels' attention problem: first as shapes, when
// the graph is built, and then as values, in each run.

// Layout is the order of the axes of q, k, v and the output.
type Layout int

const (
	BHSD   Layout = iota // (batch, heads, length, head size)
	BSHD                 // (batch, length, heads, head size)
	packed               // (total length, heads, head size); QLens chooses it
)

// layoutAxes names the axes for messages.
var layoutAxes = [...][]string{
	BHSD:   {"batch", "heads", "length", "head size"},
	BSHD:   {"batch", "length", "heads", "head size"},
	packed: {"total length", "heads", "head size"},
}

// The inputs of attention behind q, k and v, or the one that is all of them; from tableInputs on,
// what scores and masks look up.
const biasInput, sinksInput, qLensInput, kvLensInput, kvLengthsInput, tableInputs = 0, 1, 2, 3, 4, 5

// behind are the inputs, or their gradients, behind those of the rows.
func (a *attention) behind(in tensors) tensors { return in[a.rows:] }

// newAttention describes a call over q, k and v, or over all of them in one input.
func newAttention(name string, o AttentionOptions, main ...input) (*attention, error) {
	a, err := describeAttention(o, main)
	if err == nil && o.Layout != BHSD && o.Layout != BSHD {
		err = fmt.Errorf("layout is %d, it needs to be BHSD or BSHD", o.Layout)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// newAttentionQKV describes a call over the output of one projection.
func newAttentionQKV(name string, qkv *gorgonia.Node, heads, kvHeads int, o AttentionOptions) (*attention, error) {
	if err := checkHeads(heads, kvHeads); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o.Layout = BSHD
	a, err := newAttention(name, o, input{name: "qkv", node: qkv})
	if err != nil {
		return nil, err
	}
	a.heads, a.kvHeads = heads, kvHeads
	return a, nil
}

// checkHeads checks how many heads are said to lie in the last axis of a projection.
func checkHeads(heads, kvHeads int) error {
	const most = 1 << 20 // so that no product of sizes overflows
	if heads < 1 || kvHeads < 1 || heads > most || kvHeads > most {
		return fmt.Errorf("heads is %d and kvHeads is %d, each needs to be from 1 to %d", heads, kvHeads, most)
	}
	return nil
}

func describeAttention(o AttentionOptions, main []input) (*attention, error) {
	if (o.QLens == nil) != (o.KVLens == nil) {
		return nil, errors.New("only one of QLens and KVLens is given, packed sequences need both")
	}
	if o.QLens != nil && o.KVLengths != nil {
		return nil, errors.New("KVLengths is given and so is KVLens, packed sequences have their keys' lengths in KVLens")
	}
	a := &attention{layout: o.Layout, rows: len(main), options: kernels.Attention{
		Scale: o.Scale, Causal: o.Causal, SoftCap: o.SoftCap, ALiBi: slices.Clone(o.ALiBi),
		Dropout:   kernels.Dropout{P: o.Dropout.P, Seed: o.Dropout.Seed},
		Precision: o.Precision, Guarantees: o.Guarantees,
	}}
	if o.QLens != nil {
		a.layout = packed
	}
	if o.Window != nil {
		window := *o.Window
		a.options.Window = &window
	}
	for _, in := range main {
		in.form = ownRowsForm
		a.inputs = append(a.inputs, in)
	}
	a.inputs = append(a.inputs,
		input{name: "bias", node: o.Bias, form: ownRowsForm, optional: true},
		input{name: "sinks", node: o.Sinks, form: ownRowsForm, optional: true},
		input{name: "qLens", node: o.QLens, form: hostForm, optional: true},
		input{name: "kvLens", node: o.KVLens, form: hostForm, optional: true},
		input{name: "kvLengths", node: o.KVLengths, form: hostForm, optional: true})
	return a, a.addRules(&o)
}

// check finds everything that is wrong with the inputs and can be known before they have values.
// What only their values tell, devices find.
func (a *attention) check(in tensors) (*kernels.Attention, error) {
	p, err := a.describeProblem(in)
	if err != nil {
		return nil, err
	}
	return p, p.Validate()
}

// describeProblem makes a problem of inputs that have no values yet.
func (a *attention) describeProblem(in tensors) (*kernels.Attention, error) {
	for i, t := range in[:a.rows] {
		if err := a.checkAxes(a.inputs[i].name, t.Shape); err != nil {
			return nil, err
		}
	}
	rest := a.behind(in)
	qLens, kvLens, kvLengths := rest[qLensInput].Shape, rest[kvLensInput].Shape, rest[kvLengthsInput].Shape
	for i, shape := range [][]int{qLens, kvLens} {
		if shape != nil && (len(shape) != 1 || shape[0] < 2) {
			return nil, fmt.Errorf("%s has shape %v, it needs to be a vector of at least 2 entries", a.inputs[a.rows+qLensInput+i].name, shape)
		}
	}
	if kvLengths != nil && len(kvLengths) != 1 {
		return nil, fmt.Errorf("kvLengths has shape %v, it needs to be a vector", kvLengths)
	}
	p := a.withTensors(in)
	if kvLengths != nil {
		p.KVLengths = make([]int, kvLengths[0]) // as many as there will be
	}
	if a.layout != packed {
		return &p, nil
	}
	if qLens[0] != kvLens[0] {
		return nil, fmt.Errorf("kvLens has %d entries, it needs qLens's %d", kvLens[0], qLens[0])
	}
	if p.Bias.IsSet() {
		// The sequences' lengths are not known yet, so neither is how long the bias needs to be.
		if err := a.checkPackedBias(&p, qLens[0]-1); err != nil {
			return nil, err
		}
		p.Bias = kernels.Tensor{}
	}
	if len(p.Tables) > 0 {
		// As many sequences as there will be, of no length yet.
		p.QLens, p.KVLens = make([]int, qLens[0]), make([]int, kvLens[0])
	}
	return &p, nil
}

// checkAxes checks the number of axes of q, k, v or qkv.
func (a *attention) checkAxes(name string, shape []int) error {
	if a.heads > 0 {
		return checkQKV(name, shape, a.layout, a.heads, a.kvHeads)
	}
	return checkAxes(name, shape, layoutAxes[a.layout])
}

func checkAxes(name string, shape []int, axes []string) error {
	if len(shape) != len(axes) {
		return fmt.Errorf("%s has shape %v, it needs %d axes: %q", name, shape, len(axes), axes)
	}
	return nil
}

// checkQKV checks the shape of the output of one projection.
func checkQKV(name string, shape []int, layout Layout, heads, kvHeads int) error {
	axes := layoutAxes[layout]
	axes = append(slices.Clone(axes[:len(axes)-2]), "(heads + 2·kvHeads) · head size")
	if err := checkAxes(name, shape, axes); err != nil {
		return err
	}
	if width := shape[len(axes)-1]; width == 0 || width%(heads+2*kvHeads) != 0 {
		return fmt.Errorf("%s has %d columns, they need to be a multiple of heads + 2·kvHeads = %d", name, width, heads+2*kvHeads)
	}
	return nil
}

func (a *attention) checkPackedBias(p *kernels.Attention, sequences int) error {
	shape, heads := p.Bias.Shape, p.Q.Shape[1]
	if len(shape) != 4 || shape[0] != 1 && shape[0] != sequences || shape[1] != 1 && shape[1] != heads {
		return fmt.Errorf("bias has shape %v, it needs (1 or %d sequences, 1 or %d heads, 1 or the longest q, 1 or the longest k)", shape, sequences, heads)
	}
	if p.Bias.DType != p.Q.DType && p.Bias.DType != p.Q.DType.Wide() {
		return errParameter("bias", p.Bias, p.Q)
	}
	return nil
}

// problem makes a problem of the inputs' values.
func (a *attention) problem(r *run, in tensors) *kernels.Attention {
	p, rest := a.withTensors(in), a.behind(in)
	p.Precision, p.Dropout = r.c.state.mode.orPrecision(p.Precision).OrSixteenBits(), r.dropout()
	p.QLens, p.KVLens = integers(rest[qLensInput]), integers(rest[kvLensInput])
	p.KVLengths = integers(rest[kvLengthsInput])
	return &p
}

// withTensors puts the inputs' tensors where the kernels expect them.
func (a *attention) withTensors(in tensors) kernels.Attention {
	p, rest := a.options, a.behind(in)
	p.Q, p.K, p.V = a.split(in)
	p.Bias, p.Sinks, p.Tables = fourAxes(rest[biasInput]), rest[sinksInput], rest[tableInputs:]
	return p
}

// fourAxes views a bias, or its gradient, with the leading axes that it lacks.
func fourAxes(t kernels.Tensor) kernels.Tensor {
	for t.IsSet() && len(t.Shape) < 4 {
		stride := 1
		if len(t.Shape) > 0 {
			stride = t.Shape[0] * t.Strides[0]
		}
		t.Shape, t.Strides = append([]int{1}, t.Shape...), append([]int{stride}, t.Strides...)
	}
	return t
}

// split views the leading inputs, or their gradients, as q, k and v of (B, H, S, D).
func (a *attention) split(tensors tensors) (q, k, v kernels.Tensor) {
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

// outputShape is the shape of the output in the call's layout.
func (a *attention) outputShape(p *kernels.Attention) []int {
	batch, heads, length, size := p.Q.Shape[0], p.Q.Shape[1], p.Q.Shape[2], p.V.Shape[3]
	shape := []int{batch, heads, length, size}
	switch a.layout {
	case BSHD:
		shape = []int{batch, length, heads, size}
	case packed:
		shape = []int{length, heads, size}
	}
	if last := len(shape) - 1; a.heads > 0 {
		shape = append(shape[:last-1], heads*size)
	}
	return shape
}

// rowsOf is (B, Hq, Sq), the shape of what there is one of for each row of a head.
func rowsOf(p *kernels.Attention) []int { return slices.Clip(p.Q.Shape[:3]) }

// lseShape is the shape of the logsumexp's node: (B, Hq, Sq), or (Hq, total) for packed sequences.
func (a *attention) lseShape(p *kernels.Attention) []int {
	if a.layout == packed {
		return rowsOf(p)[1:]
	}
	return rowsOf(p)
}

// integers reads a vector of integers on the host, nil for none.
func integers(t kernels.Tensor) []int {
	if !t.IsSet() {
		return nil
	}
	list := make([]int, t.Shape[0])
	for i := range list {
		if at := i * t.Strides[0]; t.DType == kernels.I32 {
			list[i] = int(kernels.Host[int32](t)[at])
		} else {
			list[i] = int(kernels.Host[int64](t)[at])
		}
	}
	return list
}
