package ops_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// node adds an input without a value.
func node(g *gorgonia.ExprGraph, name string, dtype tensor.Dtype, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
}

func TestAttentionBuildErrors(t *testing.T) {
	const f32, f64 = 0, 1
	dtypes := []tensor.Dtype{tensor.Float32, tensor.Float64}
	type in struct{ q, k, v []int }
	rows := func(shape ...int) []int { return shape }
	fine := in{rows(2, 4, 5, 8), rows(2, 2, 6, 8), rows(2, 2, 6, 3)}
	cases := []struct {
		in
		dtype [3]int
		o     func(g *gorgonia.ExprGraph, o *ops.AttentionOptions)
		want  string
	}{
		{in: in{rows(2, 8, 5, 8), rows(2, 3, 6, 8), rows(2, 3, 6, 8)}, want: "FlashAttention: k has 3 heads, which does not divide q's 8"},
		{in: in{rows(4, 5, 8), fine.k, fine.v}, want: `FlashAttention: q has shape [4 5 8], it needs 4 axes: ["batch" "heads" "length" "head size"]`},
		{in: in{fine.q, rows(2, 2, 6, 8, 1), fine.v}, want: `FlashAttention: k has shape [2 2 6 8 1], it needs 4 axes: ["batch" "heads" "length" "head size"]`},
		{in: in{fine.q, rows(3, 2, 6, 8), fine.v}, want: "FlashAttention: k has a batch of 3, it needs q's 2, or 1 for all of them"},
		{in: in{fine.q, fine.k, rows(2, 4, 6, 3)}, want: "FlashAttention: v has 4 heads, it needs k's 2"},
		{in: in{fine.q, fine.k, rows(2, 2, 7, 3)}, want: "FlashAttention: v has 7 rows, it needs k's 6"},
		{in: in{fine.q, rows(2, 2, 6, 9), fine.v}, want: "FlashAttention: k has a head size of 9, it needs q's 8"},
		{in: in{rows(2, 4, 5, 2000), fine.k, fine.v}, want: "FlashAttention: q has a head size of 2000, it needs to be from 1 to 1024"},
		{in: fine, dtype: [3]int{f32, f64, f32}, want: "FlashAttention: k is float64, q is float32: all inputs need one dtype"},
		{in: fine, dtype: [3]int{f64, f64, f32}, want: "FlashAttention: v is float32, q is float64: all inputs need one dtype"},
		{in: fine, want: "FlashAttention: layout is 2, it needs to be BHSD or BSHD",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Layout = 2 }},
		{in: fine, want: "FlashAttention: k has 6 heads, which does not divide q's 5",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Layout = ops.BSHD }},
		{in: fine, want: "FlashAttention: scale is NaN, it needs to be finite",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Scale = math.NaN() }},
		{in: fine, want: "FlashAttention: soft cap is -1, it needs to be positive, or 0 for none",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.SoftCap = -1 }},
		{in: fine, want: "FlashAttention: dropout is 1, it needs to be in [0, 1)",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Dropout.P = 1 }},
		{in: fine, want: "FlashAttention: causal is 9, it needs to be NotCausal, CausalBottomRight or CausalTopLeft",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Causal = 9 }},
		{in: fine, want: "FlashAttention: window is (-2, 0), each side needs to be 0 or more, or -1 for unlimited",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Window = &kernels.Window{Left: -2} }},
		{in: fine, want: "FlashAttention: alibi has 1 slopes, it needs one for each of q's 4 heads",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.ALiBi = []float64{1} }},
		{in: fine, want: "FlashAttention: bias has shape [2 3 5 6], which does not broadcast: it needs (1 or 2, 1 or 4, 1 or 5, 1 or 6)",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.Bias = node(g, "b", tensor.Float32, 2, 3, 5, 6)
			}},
		{in: fine, want: "FlashAttention: bias is float64, it needs q's float32",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.Bias = node(g, "b", tensor.Float64, 2, 4, 5, 6)
			}},
		{in: fine, want: "FlashAttention: sinks has shape [2], it needs one value for each of q's 4 heads",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Sinks = node(g, "s", tensor.Float32, 2) }},
		{in: fine, want: "FlashAttention: sinks is int, it needs to be float32, float64, BFloat16 or Float16",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Sinks = node(g, "s", tensor.Int, 4) }},
		{in: fine, want: "FlashAttention: sinks belongs to another graph than the inputs before it, all need one graph",
			o: func(_ *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.Sinks = node(gorgonia.NewGraph(), "s", tensor.Float32, 4)
			}},
		{in: fine, want: "FlashAttention: only one of QLens and KVLens is given, packed sequences need both",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.QLens = node(g, "l", tensor.Int, 3) }},
		{in: fine, want: `FlashAttention: q has shape [2 4 5 8], it needs 3 axes: ["total length" "heads" "head size"]`,
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.QLens = node(g, "l", tensor.Int, 3)
				o.KVLens = o.QLens
			}},
		{in: in{rows(5, 4, 8), rows(6, 2, 8), rows(6, 2, 8)}, want: "FlashAttention: qLens is float32, it needs to be int, int32 or int64",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.QLens, o.KVLens = node(g, "l", tensor.Float32, 3), node(g, "m", tensor.Int, 3)
			}},
		{in: in{rows(5, 4, 8), rows(6, 2, 8), rows(6, 2, 8)}, want: "FlashAttention: kvLens has shape [1], it needs to be a vector of at least 2 entries",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.QLens, o.KVLens = node(g, "l", tensor.Int64, 3), node(g, "m", tensor.Int32, 1)
			}},
		{in: in{rows(5, 4, 8), rows(6, 2, 8), rows(6, 2, 8)}, want: "FlashAttention: kvLens has 4 entries, it needs qLens's 3",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.QLens, o.KVLens = node(g, "l", tensor.Int, 3), node(g, "m", tensor.Int, 4)
			}},
		{in: in{rows(5, 4, 8), rows(6, 2, 8), rows(6, 2, 8)},
			want: "FlashAttention: bias has shape [3 1 5 6], it needs (1 or 2 sequences, 1 or 4 heads, 1 or the longest q, 1 or the longest k)",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.QLens, o.KVLens = node(g, "l", tensor.Int, 3), node(g, "m", tensor.Int, 3)
				o.Bias = node(g, "b", tensor.Float32, 3, 1, 5, 6)
			}},
		{in: fine, want: "FlashAttention: kvLengths has 3 entries, it needs one for each of q's 2 batch items",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.KVLengths = node(g, "l", tensor.Int, 3) }},
		{in: fine, want: "FlashAttention: kvLengths has shape [2 1], it needs to be a vector",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.KVLengths = node(g, "l", tensor.Int, 2, 1) }},
		{in: fine, want: "FlashAttention: kvLengths is float32, it needs to be int, int32 or int64",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.KVLengths = node(g, "l", tensor.Float32, 2) }},
		{in: in{rows(5, 4, 8), rows(6, 2, 8), rows(6, 2, 8)},
			want: "FlashAttention: KVLengths is given and so is KVLens, packed sequences have their keys' lengths in KVLens",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) {
				o.QLens, o.KVLens, o.KVLengths = node(g, "l", tensor.Int, 3), node(g, "m", tensor.Int, 3), node(g, "n", tensor.Int, 1)
			}},
		{in: fine, want: "FlashAttention: bias has shape [1 1 2 5], which does not broadcast: it needs (1 or 2, 1 or 4, 1 or 5, 1 or 6)",
			o: func(g *gorgonia.ExprGraph, o *ops.AttentionOptions) { o.Bias = node(g, "b", tensor.Float32, 2, 5) }},
	}
	for _, c := range cases {
		g := gorgonia.NewGraph()
		var o ops.AttentionOptions
		if c.o != nil {
			c.o(g, &o)
		}
		q := node(g, "q", dtypes[c.dtype[0]], c.q...)
		k := node(g, "k", dtypes[c.dtype[1]], c.k...)
		v := node(g, "v", dtypes[c.dtype[2]], c.v...)
		if _, err := ops.FlashAttention(q, k, v, o); err == nil || err.Error() != c.want {
			t.Errorf("FlashAttention of %v:\ngot  %v\nwant %s", c.in, err, c.want)
		}
	}
}

func TestAttentionNilAndConstantErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	x := node(g, "x", tensor.Float32, 1, 2, 3, 4)
	constant := gorgonia.NewConstant(tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, 2, 3, 4)))
	for _, c := range []struct {
		q, k, v *gorgonia.Node
		want    string
	}{
		{nil, x, x, "FlashAttentionLSE: q is nil, it needs to be a node"},
		{x, x, nil, "FlashAttentionLSE: v is nil, it needs to be a node"},
		{constant, constant, constant, "FlashAttentionLSE: all inputs are constants, at least one needs to belong to a graph"},
	} {
		if _, _, err := ops.FlashAttentionLSE(c.q, c.k, c.v, ops.AttentionOptions{}); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestAttentionQKVErrors(t *testing.T) {
	for _, c := range []struct {
		shape          []int
		heads, kvHeads int
		want           string
	}{
		{[]int{2, 5, 12}, 0, 1, "FlashAttentionQKV: heads is 0 and kvHeads is 1, each needs to be from 1 to 1048576"},
		{[]int{2, 5, 12}, 3, 2, "FlashAttentionQKV: qkv has 12 columns, they need to be a multiple of heads + 2·kvHeads = 7"},
		{[]int{2, 5, 21}, 3, 2, "FlashAttentionQKV: k has 2 heads, which does not divide q's 3"},
		{[]int{5, 12}, 2, 2, `FlashAttentionQKV: qkv has shape [5 12], it needs 3 axes: ["batch" "length" "(heads + 2·kvHeads) · head size"]`},
	} {
		x := node(gorgonia.NewGraph(), "x", tensor.Float32, c.shape...)
		if _, err := ops.FlashAttentionQKV(x, c.heads, c.kvHeads, ops.AttentionOptions{}); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestAttentionRunErrors has problems that only the values have.
func TestAttentionRunErrors(t *testing.T) {
	packed := func(g *gorgonia.ExprGraph, qLens, kvLens any) *gorgonia.Node {
		lens := func(name string, backing any) *gorgonia.Node {
			return input(g, name, tensor.New(tensor.WithBacking(backing)))
		}
		x := input(g, "x", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(6, 2, 4)))
		return gorgonia.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens("q", qLens), KVLens: lens("k", kvLens)}}))
	}
	for name, c := range map[string]struct {
		build func(g *gorgonia.ExprGraph)
		want  string
	}{
		"end": {func(g *gorgonia.ExprGraph) { packed(g, []int{0, 2, 7}, []int{0, 2, 6}) },
			"FlashAttention: cpu: qLens ends at 7, q has 6 rows"},
		"order": {func(g *gorgonia.ExprGraph) { packed(g, []int64{0, 2, 6}, []int32{0, 7, 6}) },
			"FlashAttention: cpu: kvLens goes from 7 to 6 at entry 2, it cannot decrease"},
		"lengths": {func(g *gorgonia.ExprGraph) {
			x := input(g, "x", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 1, 3, 4)))
			lengths := input(g, "lengths", tensor.New(tensor.WithBacking([]int64{3, 4})))
			gorgonia.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{Lengths: ops.Lengths{KVLengths: lengths}}))
		}, "FlashAttention: cpu: kvLengths is 4 for batch item 1, it needs to be from 0 to k's 3 rows"},
		"start": {func(g *gorgonia.ExprGraph) { packed(g, []int64{1, 2, 6}, []int32{0, 2, 6}) },
			"FlashAttention: cpu: qLens is [1 2 6], it needs to be 0 and then where each sequence ends"},
		"last axis": {func(g *gorgonia.ExprGraph) {
			x := node(g, "x", tensor.Float32, 1, 2, 4, 3)
			v := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, 2, 3, 4))
			if err := v.T(0, 1, 3, 2); err != nil {
				t.Fatal(err)
			}
			if err := gorgonia.Let(x, v); err != nil {
				t.Fatal(err)
			}
			gorgonia.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{}))
		}, "FlashAttention: cpu: q has a stride of 4 along its last axis, which needs to be contiguous"},
		"bias too short": {func(g *gorgonia.ExprGraph) {
			x := input(g, "x", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(6, 2, 4)))
			lens := input(g, "lens", tensor.New(tensor.WithBacking([]int{0, 2, 6})))
			bias := input(g, "bias", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, 1, 4, 3)))
			gorgonia.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens, KVLens: lens}, Bias: bias}))
		}, "FlashAttention: cpu: bias has shape [1 1 4 3], which does not broadcast: it needs (1 or 2, 1 or 2, 1 or 4, 1 or 4)"},
	} {
		g := gorgonia.NewGraph()
		c.build(g)
		if err := gorgonia.NewTapeMachine(g).RunAll(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, c.want)
		}
	}
}

// TestAttentionValuesMustFitTheirNodes calls the op itself, as a machine would, with values that
// Let would refuse.
func TestAttentionValuesMustFitTheirNodes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := node(g, "x", tensor.Float32, 1, 2, 3, 4)
	gorgonia.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{}))
	var forward gorgonia.Op
	for _, n := range g.AllNodes() {
		if n.Op() != nil && n.Op().Arity() == 3 {
			forward = n.Op()
		}
	}
	of := func(dtype tensor.Dtype, shape ...int) gorgonia.Value {
		return tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))
	}
	good := of(tensor.Float32, 1, 2, 3, 4)
	for _, c := range []struct {
		value gorgonia.Value
		want  string
	}{
		{of(tensor.Float32, 1, 2, 4, 4), "FlashAttention: k's value is float32 of shape [1 2 4 4], its node promised float32 of shape [1 2 3 4]"},
		{of(tensor.Float64, 1, 2, 3, 4), "FlashAttention: k's value is float64 of shape [1 2 3 4], its node promised float32 of shape [1 2 3 4]"},
		{gorgonia.NewF32(1), "FlashAttention: k's value is a *gorgonia.F32, it needs to be a *tensor.Dense"},
	} {
		if _, err := forward.Do(good, c.value, good); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
