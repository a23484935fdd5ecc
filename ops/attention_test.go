package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// attentionCase is one call of FlashAttention: everything but the values, which follow from the
// seed.
type attentionCase struct {
	name           string
	b, hq, hk      int
	sq, sk, d, dv  int
	layout         ops.Layout
	qkv            bool
	qLens, kvLens  []int // packed: b is 1, sq and sk are totals
	kvLengths      []int
	sharedKeys     bool // k and v have a batch of 1
	bias           []int
	sinks          bool
	o              ops.AttentionOptions
	useOut, useLSE bool // which outputs the loss is made of
	seed           uint64
}

func (c attentionCase) String() string {
	return fmt.Sprintf("%s: b=%d hq=%d hk=%d sq=%d sk=%d d=%d dv=%d layout=%d qkv=%t lens=%v/%v/%v shared=%t bias=%v sinks=%t seed=%d options=%+v",
		c.name, c.b, c.hq, c.hk, c.sq, c.sk, c.d, c.dv, c.layout, c.qkv, c.qLens, c.kvLens, c.kvLengths, c.sharedKeys, c.bias, c.sinks, c.seed, c.o)
}

// attentionCases have every option alone, the combinations that people use, every layout, and each
// use of the outputs.
func attentionCases() []attentionCase {
	base := attentionCase{b: 2, hq: 2, hk: 2, sq: 5, sk: 5, d: 4, dv: 4, useOut: true}
	list := []attentionCase{base}
	add := func(name string, change func(*attentionCase)) {
		c := base
		c.name = name
		change(&c)
		list = append(list, c)
	}
	list[0].name = "plain"
	add("causal", func(c *attentionCase) { c.o.Causal = kernels.CausalBottomRight; c.sk = 7 })
	add("causal top left", func(c *attentionCase) { c.o.Causal = kernels.CausalTopLeft; c.sk = 7 })
	add("empty rows", func(c *attentionCase) { c.o.Causal = kernels.CausalBottomRight; c.sk = 3 })
	add("window", func(c *attentionCase) { c.o.Window = &kernels.Window{Left: 2, Right: 1} })
	add("gqa", func(c *attentionCase) { c.hq = 4 })
	add("mqa, dv", func(c *attentionCase) { c.hq, c.hk, c.dv = 3, 1, 6 })
	add("scale, soft cap", func(c *attentionCase) { c.o.Scale, c.o.SoftCap = 0.7, 1.5 })
	add("alibi", func(c *attentionCase) { c.o.ALiBi = []float64{0.5, 0.25} })
	add("bias", func(c *attentionCase) { c.bias = []int{2, 2, 5, 5} })
	add("bias broadcast", func(c *attentionCase) { c.bias = []int{1, 2, 1, 5} })
	add("sinks", func(c *attentionCase) { c.sinks = true })
	add("one head, sinks", func(c *attentionCase) { c.hq, c.hk, c.sinks = 1, 1, true })
	add("dropout", func(c *attentionCase) { c.o.Dropout = ops.Drop{P: 0.3, Seed: 11} })
	add("BSHD", func(c *attentionCase) { c.layout, c.sk, c.hq, c.dv = ops.BSHD, 6, 4, 3 })
	add("packed", func(c *attentionCase) {
		c.b, c.sq, c.sk = 1, 9, 11
		c.qLens, c.kvLens = []int{0, 2, 9}, []int{0, 5, 11}
	})
	add("packed, gqa, causal, bias, sinks", func(c *attentionCase) {
		c.b, c.sq, c.sk, c.hq, c.sinks = 1, 9, 11, 4, true
		c.qLens, c.kvLens, c.bias = []int{0, 2, 9}, []int{0, 5, 11}, []int{2, 1, 8, 6}
		c.o.Causal = kernels.CausalBottomRight
	})
	add("qkv", func(c *attentionCase) { c.qkv, c.hq = true, 4 })
	add("qkv, packed, causal", func(c *attentionCase) {
		c.qkv, c.b, c.sq, c.sk = true, 1, 9, 9
		c.qLens, c.kvLens = []int{0, 4, 9}, []int{0, 4, 9}
		c.o.Causal = kernels.CausalBottomRight
	})
	add("causal, gqa, window, sinks", func(c *attentionCase) {
		c.hq, c.o.Causal, c.o.Window, c.sinks = 4, kernels.CausalBottomRight, &kernels.Window{Left: 3, Right: -1}, true
	})
	add("bias, causal, dropout", func(c *attentionCase) {
		c.bias, c.o.Causal, c.o.Dropout.P = []int{2, 1, 5, 5}, kernels.CausalBottomRight, 0.2
	})
	add("alibi, soft cap", func(c *attentionCase) { c.o.ALiBi, c.o.SoftCap = []float64{0.5, 0.1}, 2 })
	add("lse and out", func(c *attentionCase) { c.useLSE, c.sinks = true, true })
	add("lse alone", func(c *attentionCase) { c.useLSE, c.useOut, c.bias = true, false, []int{1, 1, 5, 5} })
	add("lse and out, packed", func(c *attentionCase) {
		c.useLSE, c.b, c.sq, c.sk = true, 1, 9, 11
		c.qLens, c.kvLens = []int{0, 2, 9}, []int{0, 5, 11}
	})
	add("lse and out, BSHD, dropout, cap", func(c *attentionCase) {
		c.useLSE, c.layout, c.o.Dropout.P, c.o.SoftCap = true, ops.BSHD, 0.4, 3
	})
	add("keys of one batch item", func(c *attentionCase) { c.sharedKeys, c.sk, c.hq = true, 7, 4 })
	add("keys of one batch item, BSHD, causal", func(c *attentionCase) {
		c.sharedKeys, c.layout, c.sk, c.o.Causal = true, ops.BSHD, 7, kernels.CausalBottomRight
	})
	add("lengths of keys", func(c *attentionCase) { c.kvLengths, c.sk = []int{7, 3}, 8 })
	add("lengths of shared keys, causal, lse, sinks", func(c *attentionCase) {
		c.kvLengths, c.sharedKeys, c.sk, c.useLSE, c.sinks, c.o.Causal = []int{0, 6}, true, 8, true, true, kernels.CausalBottomRight
	})
	add("lengths, qkv, causal top left", func(c *attentionCase) {
		c.qkv, c.kvLengths, c.o.Causal = true, []int{2, 5}, kernels.CausalTopLeft
	})
	add("empty sequences, and rows behind the last", func(c *attentionCase) {
		c.b, c.sq, c.sk, c.o.Causal = 1, 9, 11, kernels.CausalBottomRight
		c.qLens, c.kvLens = []int{0, 2, 2, 5, 7}, []int{0, 4, 6, 6, 9}
	})
	add("qkv, empty sequences, and rows behind the last", func(c *attentionCase) {
		c.qkv, c.b, c.sq, c.sk = true, 1, 9, 9
		c.qLens, c.kvLens = []int{0, 4, 4, 7}, []int{0, 4, 4, 7}
	})
	add("window before the diagonal", func(c *attentionCase) { c.o.Window, c.sk = &kernels.Window{Left: 1, Right: 1, Shift: -3}, 8 })
	add("window behind the diagonal", func(c *attentionCase) { c.o.Window = &kernels.Window{Left: 0, Right: -1, Shift: 2} })
	add("bias of three axes", func(c *attentionCase) { c.bias = []int{2, 5, 5} })
	add("bias of two axes", func(c *attentionCase) { c.bias = []int{5, 5} })
	add("bias of one axis", func(c *attentionCase) { c.bias = []int{5} })
	add("bias for all keys", func(c *attentionCase) { c.bias, c.sinks = []int{2, 1, 5, 1}, true })
	add("packed bias for all keys, of three axes", func(c *attentionCase) {
		c.b, c.sq, c.sk, c.useLSE = 1, 9, 11, true
		c.qLens, c.kvLens, c.bias = []int{0, 2, 9}, []int{0, 5, 11}, []int{2, 7, 1}
	})
	for i := range list {
		list[i].seed = uint64(i) + 1
	}
	return list
}

// shapes are the shapes of the inputs by name, and of the outputs, as the case's layout has them.
func (c attentionCase) shapes() map[string][]int {
	order := func(heads, length, size int) []int {
		switch {
		case c.qLens != nil:
			return []int{length, heads, size}
		case c.layout == ops.BSHD || c.qkv:
			return []int{c.b, length, heads, size}
		}
		return []int{c.b, heads, length, size}
	}
	flat := func(heads int) []int {
		shape := order(heads, c.sq, c.d)
		return append(shape[:len(shape)-2], heads*c.d)
	}
	shapes := map[string][]int{"out": order(c.hq, c.sq, c.dv), "lse": {c.b, c.hq, c.sq}}
	if c.qLens != nil {
		shapes["lse"] = []int{c.hq, c.sq}
	}
	if c.qkv {
		shapes["qkv"], shapes["out"] = flat(c.hq+2*c.hk), flat(c.hq)
	} else {
		shapes["q"], shapes["k"], shapes["v"] = order(c.hq, c.sq, c.d), order(c.hk, c.sk, c.d), order(c.hk, c.sk, c.dv)
		if c.sharedKeys {
			shapes["k"][0], shapes["v"][0] = 1, 1
		}
	}
	if c.bias != nil {
		shapes["bias"] = c.bias
	}
	if c.sinks {
		shapes["sinks"] = []int{c.hq}
	}
	return shapes
}

// inputs are the names of the differentiable inputs.
func (c attentionCase) inputs() []string {
	var names []string
	for _, name := range []string{"q", "k", "v", "qkv", "bias", "sinks"} {
		if _, ok := c.shapes()[name]; ok {
			names = append(names, name)
		}
	}
	return names
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func normal(r *rand.Rand, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = float64(float32(r.NormFloat64())) // exact in float32 as well
	}
	return list
}

// values are the inputs, and what the outputs are multiplied with in the loss: their gradients.
func (c attentionCase) values() map[string][]float64 {
	r := rand.New(rand.NewPCG(c.seed, 1))
	values := map[string][]float64{}
	for _, name := range append(c.inputs(), "out", "lse") {
		values[name] = normal(r, elements(c.shapes()[name]))
	}
	return values
}

// view reads a tensor of the case's layout as (B, H, S, D).
func (c attentionCase) view(t kernels.Tensor) kernels.Tensor {
	switch {
	case c.qLens != nil:
		s, h, d := t.Shape[0], t.Shape[1], t.Shape[2]
		t.Shape, t.Strides = []int{1, h, s, d}, []int{s * t.Strides[0], t.Strides[1], t.Strides[0], t.Strides[2]}
		return t
	case c.layout == ops.BSHD || c.qkv:
		return t.Permute(0, 2, 1, 3)
	}
	return t
}

// parts reads a qkv tensor as q, k and v of (B, H, S, D).
func (c attentionCase) parts(data []float64) (q, k, v kernels.Tensor) {
	shape := []int{c.b, c.sq, c.hq + 2*c.hk, c.d}
	if c.qLens != nil {
		shape = shape[1:]
	}
	t := kernels.Of(data, shape...)
	axis := len(shape) - 2
	return c.view(t.Slice(axis, 0, c.hq)), c.view(t.Slice(axis, c.hq, c.hq+c.hk)), c.view(t.Slice(axis, c.hq+c.hk, c.hq+2*c.hk))
}

// problem is the case for the reference.
func (c attentionCase) problem(values map[string][]float64) *kernels.Attention {
	shapes := c.shapes()
	a := &kernels.Attention{
		Lengths: kernels.Lengths{QLens: c.qLens, KVLens: c.kvLens, KVLengths: c.kvLengths},
		Scale:   c.o.Scale, Causal: c.o.Causal, Window: c.o.Window, SoftCap: c.o.SoftCap, ALiBi: c.o.ALiBi,
		Dropout: kernels.Dropout{P: c.o.Dropout.P, Seed: c.o.Dropout.Seed, Step: step},
	}
	if c.qkv {
		a.Q, a.K, a.V = c.parts(values["qkv"])
	} else {
		a.Q = c.view(kernels.Of(values["q"], shapes["q"]...))
		a.K = c.view(kernels.Of(values["k"], shapes["k"]...))
		a.V = c.view(kernels.Of(values["v"], shapes["v"]...))
	}
	if c.bias != nil {
		shape := append([]int{1, 1, 1}, c.bias...)
		a.Bias = kernels.Of(values["bias"], shape[len(shape)-4:]...)
	}
	if c.sinks {
		a.Sinks = kernels.Of(values["sinks"], c.hq)
	}
	return a
}

// step is the training step of all test runs.
const step = 5

// ordered lists a tensor's elements in the order of its indices.
func ordered(t kernels.Tensor) []float64 {
	data := kernels.Host[float64](t)
	var list []float64
	var walk func(axis, at int)
	walk = func(axis, at int) {
		if axis == len(t.Shape) {
			list = append(list, data[at])
			return
		}
		for i := range t.Shape[axis] {
			walk(axis+1, at+i*t.Strides[axis])
		}
	}
	walk(0, 0)
	return list
}

// outView lists an output, or its gradient, as (B, H, S, D).
func (c attentionCase) outView(data []float64) []float64 {
	shape := c.shapes()["out"]
	if c.qkv {
		shape = append(slices.Clone(shape[:len(shape)-1]), c.hq, c.d)
	}
	return ordered(c.view(kernels.Of(data, shape...)))
}

// expected are the outputs and gradients by the reference, in its row-major (B, H, S, D).
func (c attentionCase) expected() map[string][]float64 {
	values := c.values()
	p := c.problem(values)
	out, lse := reference.Attention(p)
	dOut, dLSE := make([]float64, len(out)), make([]float64, len(lse))
	if c.useOut {
		dOut = c.outView(values["out"])
	}
	if c.useLSE {
		dLSE = values["lse"]
	}
	g := reference.AttentionGrad(p, dOut, dLSE)
	return map[string][]float64{
		"out": out, "lse": lse, "dq": g.DQ, "dk": g.DK, "dv": g.DV, "dbias": g.DBias, "dsinks": g.DSinks,
	}
}

// attentionGraph is a case as a graph.
type attentionGraph struct {
	c              attentionCase
	g              *gorgonia.ExprGraph
	in             map[string]*gorgonia.Node
	out, lse, loss *gorgonia.Node
}

func dense(dtype tensor.Dtype, data []float64, shape ...int) *tensor.Dense {
	if dtype == tensor.Float64 {
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(slices.Clone(data)))
	}
	data32 := make([]float32, len(data))
	for i, x := range data {
		data32[i] = float32(x)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data32))
}

func float64s(t testing.TB, v gorgonia.Value) []float64 {
	t.Helper()
	switch data := v.Data().(type) {
	case []float64:
		return slices.Clone(data)
	case []float32:
		list := make([]float64, len(data))
		for i, x := range data {
			list[i] = float64(x)
		}
		return list
	}
	t.Fatalf("the value is a %T", v)
	return nil
}

func input(g *gorgonia.ExprGraph, name string, value *tensor.Dense) *gorgonia.Node {
	return gorgonia.NewTensor(g, value.Dtype(), value.Dims(), gorgonia.WithShape(value.Shape()...),
		gorgonia.WithName(name), gorgonia.WithValue(value))
}

// build makes the graph: Σ out·w + Σ lse·u over the outputs that the case uses.
func (c attentionCase) build(t testing.TB, dtype tensor.Dtype) *attentionGraph {
	t.Helper()
	return c.buildIn(t, gorgonia.NewGraph(), dtype)
}

// buildIn adds inputs and loss to a graph.
func (c attentionCase) buildIn(t testing.TB, g *gorgonia.ExprGraph, dtype tensor.Dtype) *attentionGraph {
	t.Helper()
	a := &attentionGraph{c: c, g: g, in: map[string]*gorgonia.Node{}}
	ops.ModeOf(a.g).Train(step)
	values, shapes := c.values(), c.shapes()
	for _, name := range c.inputs() {
		a.in[name] = input(a.g, name, dense(dtype, values[name], shapes[name]...))
	}
	o := c.o
	o.Layout, o.Bias, o.Sinks = c.layout, a.in["bias"], a.in["sinks"]
	if c.qLens != nil {
		o.QLens = input(a.g, "qLens", tensor.New(tensor.WithBacking(slices.Clone(c.qLens))))
		kvLens := make([]int32, len(c.kvLens))
		for i, n := range c.kvLens {
			kvLens[i] = int32(n)
		}
		o.KVLens = input(a.g, "kvLens", tensor.New(tensor.WithBacking(kvLens)))
	}
	if c.kvLengths != nil {
		o.KVLengths = input(a.g, "kvLengths", tensor.New(tensor.WithBacking(slices.Clone(c.kvLengths))))
	}
	var err error
	switch {
	case c.qkv:
		a.out, err = ops.FlashAttentionQKV(a.in["qkv"], c.hq, c.hk, o)
	case c.useLSE:
		a.out, a.lse, err = ops.FlashAttentionLSE(a.in["q"], a.in["k"], a.in["v"], o)
	default:
		a.out, err = ops.FlashAttention(a.in["q"], a.in["k"], a.in["v"], o)
	}
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	weigh := func(n *gorgonia.Node, name string) {
		w := input(a.g, "w"+name, dense(dtype, values[name], shapes[name]...))
		term := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(n, w))))
		if a.loss != nil {
			term = gorgonia.Must(gorgonia.Add(a.loss, term))
		}
		a.loss = term
	}
	if c.useOut {
		weigh(a.out, "out")
	}
	if c.useLSE {
		weigh(a.lse, "lse")
	}
	return a
}

// parameters are the differentiable inputs.
func (a *attentionGraph) parameters() gorgonia.Nodes {
	var nodes gorgonia.Nodes
	for _, name := range a.c.inputs() {
		nodes = append(nodes, a.in[name])
	}
	return nodes
}

// tape gives a tapeMachine with gradients bound to the parameters.
func (a *attentionGraph) tape(t testing.TB) gorgonia.VM {
	t.Helper()
	if _, err := gorgonia.Grad(a.loss, a.parameters()...); err != nil {
		t.Fatalf("%v: Grad: %v", a.c, err)
	}
	return gorgonia.NewTapeMachine(a.g, gorgonia.BindDualValues(a.parameters()...))
}

// results are the outputs and gradients, named and ordered as expected orders them.
func (a *attentionGraph) results(t testing.TB) map[string][]float64 {
	t.Helper()
	c := a.c
	got := map[string][]float64{"out": c.outView(float64s(t, a.out.Value()))}
	if a.lse != nil {
		got["lse"] = float64s(t, a.lse.Value())
	}
	for name, n := range a.in {
		v, err := n.Grad()
		if err != nil {
			t.Fatalf("%v: gradient of %s: %v", c, name, err)
		}
		data := float64s(t, v)
		switch name {
		case "bias", "sinks":
			got["d"+name] = data
		case "qkv":
			q, k, v := c.parts(data)
			got["dq"], got["dk"], got["dv"] = ordered(q), ordered(k), ordered(v)
		default:
			got["d"+name] = ordered(c.view(kernels.Of(data, c.shapes()[name]...)))
		}
	}
	return got
}

func run(t testing.TB, m gorgonia.VM) {
	t.Helper()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	m.Reset()
}

// compare fails where got is farther from want than the bound, relative to want's largest element.
func compare(t *testing.T, what fmt.Stringer, got, want map[string][]float64, bound float64) {
	t.Helper()
	for name, g := range got {
		w := want[name]
		if len(g) != len(w) {
			t.Errorf("%v: %s has %d elements, want %d", what, name, len(g), len(w))
			continue
		}
		size, worst := 1.0, 0.0
		for i := range g {
			if !math.IsInf(w[i], 0) {
				size = max(size, math.Abs(w[i]))
			}
			if g[i] != w[i] && !(math.Abs(g[i]-w[i]) <= worst) {
				worst = math.Abs(g[i] - w[i])
			}
		}
		if !(worst <= bound*size) {
			t.Errorf("%v: %s is off by %g, at most %g is allowed", what, name, worst, bound*size)
		}
	}
}

type typed struct {
	attentionCase
	dtype   tensor.Dtype
	machine string
}

func (c typed) String() string { return fmt.Sprintf("%s %v %v", c.machine, c.dtype, c.attentionCase) }

var bounds = map[tensor.Dtype]float64{tensor.Float32: 2e-5, tensor.Float64: 1e-12}

func TestAttention(t *testing.T) {
	for _, c := range attentionCases() {
		want := c.expected()
		for dtype, bound := range bounds {
			a := c.build(t, dtype)
			run(t, a.tape(t))
			compare(t, typed{c, dtype, "tapeMachine"}, a.results(t), want, bound)

			if !c.useOut {
				continue // a lispMachine refuses a graph with a second root
			}
			a = c.build(t, dtype)
			run(t, gorgonia.NewLispMachine(a.g))
			compare(t, typed{c, dtype, "lispMachine"}, a.results(t), want, bound)
		}
	}
}

// TestAttentionFiniteDifferences compares gradients with the slope of the loss, all through
// Gorgonia.
func TestAttentionFiniteDifferences(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for _, c := range attentionCases() {
		err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			a := c.buildIn(t, g, dtype)
			var inputs gorgonia.Nodes
			for _, name := range c.inputs() {
				inputs = append(inputs, a.in[name])
			}
			return a.loss, inputs, nil
		}, gradcheck.Options{Seed: c.seed, Elements: -1, Contiguous: true})
		if err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// A bias and sinks may be float32 beside 16-bit q, k and v; their gradients are then float32 too.
func TestAttentionWithWideBias(t *testing.T) {
	c := attentionCase{name: "wide bias", b: 2, hq: 2, hk: 2, sq: 5, sk: 5, d: 4, dv: 4, bias: []int{2, 5, 5}, sinks: true, useOut: true, seed: 77}
	values, shapes := c.values(), c.shapes()
	for _, name := range []string{"q", "k", "v"} {
		for i, x := range values[name] {
			values[name][i] = float64(kernels.ToBFloat16(float32(x)).Float32())
		}
	}
	want := reference.AttentionGrad(c.problem(values), values["out"], nil)
	g, in := gorgonia.NewGraph(), map[string]*gorgonia.Node{}
	for _, name := range c.inputs() {
		in[name] = input(g, name, dense(tensor.Float32, values[name], shapes[name]...))
	}
	half := func(name string) *gorgonia.Node { return gorgonia.Must(ops.Cast(in[name], ops.BFloat16)) }
	out := gorgonia.Must(ops.FlashAttention(half("q"), half("k"), half("v"), ops.AttentionOptions{Bias: in["bias"], Sinks: in["sinks"]}))
	loss := weightedSum(g, gorgonia.Must(ops.Cast(out, tensor.Float32)), values["out"])
	if _, err := gorgonia.Grad(loss, in["bias"], in["sinks"]); err != nil {
		t.Fatal(err)
	}
	run(t, gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(in["bias"], in["sinks"])))
	for name, want := range map[string][]float64{"bias": want.DBias, "sinks": want.DSinks} {
		if d := in[name].Dtype(); d != tensor.Float32 {
			t.Errorf("the gradient of %s belongs to %v", name, d)
		}
		const bound = 0.03 // a few steps of bfloat16, of dO and δ
		for i, got := range gradientOf(t, in[name]) {
			if !(math.Abs(got-want[i]) <= bound) {
				t.Errorf("d%s[%d] is %v instead of %v", name, i, got, want[i])
			}
		}
	}
}
