package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// RoPEOptions are the options of [RoPE]. The zero value is Llama's rotary embedding over (B, H, S,
// D).
type RoPEOptions struct {
	Layout      Layout  // of x: BHSD or BSHD
	Base        float64 // of the angles' frequencies; 0 means 10000
	Scaling     float64 // positions are divided by it, to stretch a context; 0 means 1
	RotaryDim   int     // how many leading dimensions of a head are rotated, the others stay; 0 means all
	Interleaved bool    // pairs are neighbours, 2d and 2d+1, instead of d and d + RotaryDim/2
	Offset      int     // the position of the first row
	// Positions, (B, S) of int, int32 or int64, says where each row of each batch item is, beyond
	// Offset; nil: one after the other. Its values may change from run to run.
	Positions *gorgonia.Node
	// Divisors slow down the pairs one by one, nil means 1 for each; Amplitude multiplies what is
	// rotated, 0 means 1.
	Divisors  []float64
	Amplitude float64
	// Ranks says that the rows are those which this rank holds of a sequence, see
	// [AttentionOptions].
	Ranks kernels.Ranks
}

// RoPE rotates pairs of dimensions of each head by an angle that grows with the position, so that a
// product of a query and a key depends on their distance. [kernels.RoPE] has the equations.
func RoPE(x *gorgonia.Node, o RoPEOptions) (*gorgonia.Node, error) {
	return applyRoPE("RoPE", &rope{layout: o.Layout}, input{name: "x", node: x, unread: true}, o)
}

// RoPEQKV is [RoPE] of the queries and keys of a projection: qkv is (B, S, (heads+2·kvHeads)·D), as
// [FlashAttentionQKV] takes it, and the result is like it, with the values as they are. For packed
// sequences both are (total, (heads+2·kvHeads)·D), and Positions (1, total). Layout is not looked
// at.
func RoPEQKV(qkv *gorgonia.Node, heads, kvHeads int, o RoPEOptions) (*gorgonia.Node, error) {
	const name = "RoPEQKV"
	if err := checkHeads(heads, kvHeads); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return applyRoPE(name, &rope{layout: BSHD, heads: heads, kvHeads: kvHeads}, input{name: "qkv", node: qkv, unread: true}, o)
}

func applyRoPE(name string, k *rope, x input, o RoPEOptions) (*gorgonia.Node, error) {
	k.share, k.o = shareOf(o.Ranks), *o.problem()
	return apply(name, kernel{describe: k.describe, forward: k.forward, backward: k.backward, linear: true}, x, input{name: "positions", node: o.Positions, form: indexForm, optional: true})
}

// problem is the options as kernels know them, without positions.
func (o *RoPEOptions) problem() *kernels.RoPE {
	r := &kernels.RoPE{
		Offset: o.Offset, Base: o.Base, PositionScale: o.Scaling, RotaryDim: o.RotaryDim,
		Divisors: slices.Clone(o.Divisors), Amplitude: o.Amplitude,
	}
	if o.Interleaved {
		r.Pairing = kernels.Interleaved
	}
	return r
}

type rope struct {
	layout         Layout
	heads, kvHeads int // of RoPEQKV, whose heads lie in the last axis; 0 otherwise
	share          *share
	o              kernels.RoPE
}

func (k *rope) describe(in tensors) (description, error) {
	if k.layout != BHSD && k.layout != BSHD {
		return description{}, fmt.Errorf("layout is %d, it needs to be BHSD or BSHD", k.layout)
	}
	if err := k.checkAxes(in[0].Shape); err != nil {
		return description{}, err
	}
	if k.share != nil && in[1].IsSet() {
		return description{}, errors.New("positions are given with Ranks, which says where rows are too")
	}
	x, name := k.view(in[0]), "x"
	if k.heads > 0 {
		name = "qkv"
	}
	if err := k.share.check(name, x.Shape[2]); err != nil {
		return description{}, err
	}
	return like(in[0]), k.problem(in).Validate(x, name)
}

func (k *rope) checkAxes(shape []int) error {
	layout := k.layout
	if k.heads == 0 {
		return checkAxes("x", shape, layoutAxes[layout])
	}
	if len(shape) == len(layoutAxes[packed])-1 {
		layout = packed
	}
	return checkQKV("qkv", shape, layout, k.heads, k.kvHeads)
}

func (k *rope) problem(in tensors) *kernels.RoPE {
	r := k.o
	r.Positions = in[1]
	return &r
}

// view is what is turned of x as (B, H, S, D): all of it, or the queries and keys.
func (k *rope) view(t kernels.Tensor) kernels.Tensor {
	if k.heads > 0 {
		t, _ = k.split(t)
	}
	if k.layout == BSHD {
		return t.Permute(0, 2, 1, 3)
	}
	return t
}

// split views qkv as the heads that are turned, (B, S, H, D), and the others' columns.
func (k *rope) split(t kernels.Tensor) (turned, others kernels.Tensor) {
	if len(t.Shape) == 2 { // packed sequences
		t.Shape, t.Strides = append([]int{1}, t.Shape...), append([]int{t.Shape[0] * t.Strides[0]}, t.Strides...)
	}
	const last = 2
	columns := t.Shape[last]
	d := columns / (k.heads + 2*k.kvHeads)
	values := (k.heads + k.kvHeads) * d
	return t.Slice(last, 0, values).Unflatten(last, d), t.Slice(last, values, columns)
}

// withOthers copies the values of qkv, which are not turned, unless turning the others failed.
func (k *rope) withOthers(r *run, from, to kernels.Tensor, err error) error {
	if err != nil || k.heads == 0 {
		return err
	}
	_, source := k.split(from)
	_, values := k.split(to)
	return r.Copy(values, source)
}

func (k *rope) forward(r *run, in, out tensors) error {
	return k.withOthers(r, in[0], out[0], k.each(in, k.view(in[0]), k.view(out[0]), r.RoPEForward))
}

func (k *rope) backward(r *run, in, dOut, d tensors) error {
	return k.withOthers(r, dOut[0], d[0], k.each(in, k.view(dOut[0]), k.view(d[0]), r.RoPEBackward))
}

// each turns the rows that follow each other.
func (k *rope) each(in tensors, from, to kernels.Tensor, turn func(r *kernels.RoPE, from, to kernels.Tensor) error) error {
	return k.share.each(from.Shape[2], func(at, count, position int) error {
		problem := k.problem(in)
		problem.Offset += position
		return turn(problem, from.Slice(2, at, at+count), to.Slice(2, at, at+count))
	})
}
