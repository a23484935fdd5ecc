package nn_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The tests of this file compare with what testdata/golden.py computed in float64 by an
// implementation of its own. Parameters and inputs are the same functions of their names on both
// sides.

// golden is the result of one case.
type golden struct {
	Loss      float64
	Out       []float64
	Weights   []float64
	Gradients map[string][]float64
}

func readGolden(t *testing.T, file string) map[string]golden {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]golden
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// word is a well mixed word for element i of what has that name.
func word(name string, i int) uint32 {
	x := crc32.ChecksumIEEE([]byte(name)) + uint32(i)*2654435761
	x = (x ^ x>>16) * 0x45D9F3B
	x = (x ^ x>>16) * 0x45D9F3B
	return x ^ x>>16
}

// value is a number in [−1, 1) that float32 holds exactly.
func value(name string, i int) float64 { return float64(int(word(name, i)>>11)-1<<20) / (1 << 20) }

// dense is a value of the given type whose elements follow from their place.
func dense(dtype tensor.Dtype, shape []int, at func(i int) float64) *tensor.Dense {
	t := tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))
	for i := range tensor.Shape(shape).TotalSize() {
		switch dtype {
		case tensor.Float32:
			t.Float32s()[i] = float32(at(i))
		case tensor.Float64:
			t.Float64s()[i] = at(i)
		case tensor.Int:
			t.Ints()[i] = int(at(i))
		case tensor.Bool:
			t.Bools()[i] = at(i) != 0
		}
	}
	return t
}

// input adds an input with the values that follow from its name.
func input(g *gorgonia.ExprGraph, dtype tensor.Dtype, name string, shape ...int) *gorgonia.Node {
	v := dense(dtype, shape, func(i int) float64 { return value(name, i) })
	return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(v))
}

// on is a node as a tensor of a model.
func on(n *gorgonia.Node) nn.Tensor {
	if n == nil {
		return nn.Tensor{}
	}
	return nn.NewScope(n.Graph(), nil).Tensor(n, nil)
}

// must is the node of a tensor; a model that failed ends the test.
func must(x nn.Tensor) *gorgonia.Node {
	if x.Node() == nil {
		panic(x.Err())
	}
	return x.Node()
}

// integers adds an input of ids below a limit.
func integers(g *gorgonia.ExprGraph, name string, limit int, shape ...int) *gorgonia.Node {
	v := dense(tensor.Int, shape, func(i int) float64 { return float64(word(name, i) % uint32(limit)) })
	return gorgonia.NewTensor(g, tensor.Int, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(v))
}

// setParameters gives parameters the values of the golden files.
func setParameters(t *testing.T, p *nn.Parameters, parameters gorgonia.Nodes) {
	t.Helper()
	for _, n := range parameters {
		name := n.Name()
		at := func(i int) float64 { return value(name, i) / 2 }
		if strings.Contains(name, "norm") && strings.HasSuffix(name, "weight") {
			at = func(i int) float64 { return 1 + value(name, i)/4 }
		}
		if err := p.Set(name, dense(n.Dtype(), n.Shape(), at)); err != nil {
			t.Fatal(err)
		}
	}
}

// floats are the elements of a value in float64.
func floats(t *testing.T, v gorgonia.Value) []float64 {
	t.Helper()
	switch data := v.Data().(type) {
	case float64:
		return []float64{data}
	case float32:
		return []float64{float64(data)}
	case []float64:
		return data
	case []float32:
		wide := make([]float64, len(data))
		for i, x := range data {
			wide[i] = float64(x)
		}
		return wide
	}
	t.Fatalf("the value is a %T", v.Data())
	return nil
}

// tolerance is the largest error relative to the largest element.
func tolerance(dtype tensor.Dtype) float64 {
	if dtype == tensor.Float64 {
		return 1e-10
	}
	return 1e-5
}

// compare checks a value. Its error is relative to its largest element, but to scale where that is
// nothing beside it: the gradient of a key's bias is 0 but for rounding.
func compare(t *testing.T, what string, dtype tensor.Dtype, got, want []float64, scale float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %s has %d elements, want %d", t.Name(), what, len(got), len(want))
		return
	}
	worst, largest := 0.0, 0.0
	for i := range got {
		largest = max(largest, math.Abs(want[i]))
		if d := math.Abs(got[i] - want[i]); d > worst || math.IsNaN(d) {
			worst = d
		}
	}
	if largest < 1e-12*scale {
		largest = scale
	}
	if !(worst <= tolerance(dtype)*largest) {
		t.Errorf("%s: the error of %s is %.3g of its largest element %.3g, it needs to be at most %.3g", t.Name(), what, worst/largest, largest, tolerance(dtype))
	}
}

func compareGradients(t *testing.T, dtype tensor.Dtype, nodes gorgonia.Nodes, want golden) {
	t.Helper()
	var names, expected []string
	scale := 0.0
	for name, gradient := range want.Gradients {
		expected = append(expected, name)
		for _, x := range gradient {
			scale = max(scale, math.Abs(x))
		}
	}
	for _, n := range nodes {
		names = append(names, n.Name())
		gradient, err := n.Grad()
		if err != nil {
			t.Errorf("%s: %s has no gradient: %v", t.Name(), n.Name(), err)
			continue
		}
		compare(t, "the gradient of "+n.Name(), dtype, floats(t, gradient), want.Gradients[n.Name()], scale)
	}
	slices.Sort(names)
	slices.Sort(expected)
	if !slices.Equal(names, expected) {
		t.Errorf("%s: the parameters are %v, want %v", t.Name(), names, expected)
	}
}

// differentiate runs a graph forward and backward on one of Gorgonia's machines.
func differentiate(t *testing.T, machine string, g *gorgonia.ExprGraph, loss *gorgonia.Node, nodes gorgonia.Nodes) {
	t.Helper()
	var m gorgonia.VM
	if machine == "tape" {
		if _, err := gorgonia.Grad(loss, nodes...); err != nil {
			t.Fatal(err)
		}
		m = gorgonia.NewTapeMachine(g)
	} else {
		m = gorgonia.NewLispMachine(g)
	}
	defer m.Close()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
}

func evaluate(t *testing.T, g *gorgonia.ExprGraph) {
	t.Helper()
	ops.ModeOf(g).Evaluate()
	m := gorgonia.NewTapeMachine(g)
	defer m.Close()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
}

// variants runs a test in both types, and in float64 on both machines.
func variants(t *testing.T, name string, test func(t *testing.T, dtype tensor.Dtype, machine string)) {
	for _, v := range []struct {
		dtype   tensor.Dtype
		machine string
	}{{tensor.Float64, "tape"}, {tensor.Float32, "tape"}, {tensor.Float64, "lisp"}} {
		t.Run(fmt.Sprintf("%s/%v/%s", name, v.dtype, v.machine), func(t *testing.T) { test(t, v.dtype, v.machine) })
	}
}

func newGPT(s *nn.Scope) *nn.LanguageModel {
	return nn.NewGPT(s, nn.GPTConfig{Vocab: 13, Context: 9, Layers: 2, Heads: 3, Dim: 12})
}

func newLlama(s *nn.Scope) *nn.LanguageModel {
	return nn.NewLlama(s, nn.LlamaConfig{Vocab: 13, Layers: 2, Heads: 4, KVHeads: 2, Dim: 16, Hidden: 20})
}

func newQwen(s *nn.Scope) *nn.LanguageModel {
	return nn.NewLlama(s, nn.LlamaConfig{Vocab: 13, Layers: 2, Heads: 4, KVHeads: 1, HeadDim: 6, Dim: 16, Hidden: 20, QKNorm: true, TiedHead: true})
}

var languageModels = map[string]func(*nn.Scope) *nn.LanguageModel{"gpt": newGPT, "llama": newLlama, "qwen": newQwen}

func TestModels(t *testing.T) {
	want := readGolden(t, "models.json")
	for name, newModel := range languageModels {
		variants(t, name, func(t *testing.T, dtype tensor.Dtype, machine string) {
			p := nn.NewParameters(1)
			build := func() (*gorgonia.ExprGraph, *nn.LanguageModel, nn.Tensor) {
				g := gorgonia.NewGraph()
				return g, newModel(nn.NewScope(g, p).DType(dtype)), on(integers(g, "tokens", 13, 2, 7))
			}
			g, m, tokens := build()
			setParameters(t, p, m.Parameters())
			loss := must(m.Loss(tokens, on(integers(g, "targets", 13, 2, 7))))
			differentiate(t, machine, g, loss, m.Parameters())
			compare(t, "the loss", dtype, floats(t, loss.Value()), []float64{want[name].Loss}, 0)
			compareGradients(t, dtype, m.Parameters(), want[name])

			g, m, tokens = build()
			logits := must(m.Forward(tokens))
			evaluate(t, g)
			compare(t, "the logits", dtype, floats(t, logits.Value()), want[name].Out, 0)
		})
	}
}

func TestPostNormBlock(t *testing.T) {
	want := readGolden(t, "models.json")["post-norm block"]
	variants(t, "block", func(t *testing.T, dtype tensor.Dtype, machine string) {
		p, g := nn.NewParameters(1), gorgonia.NewGraph()
		b := nn.NewBlock(nn.NewScope(g, p).DType(dtype), nn.BlockConfig{Norms: nn.PostNorm, Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}})
		setParameters(t, p, b.Parameters())
		x := input(g, dtype, "x", 2, 5, 8)
		out := must(b.Forward(on(x)))
		loss := weightedSum(g, out)
		nodes := append(b.Parameters(), x)
		differentiate(t, machine, g, loss, nodes)
		compare(t, "the loss", dtype, floats(t, loss.Value()), []float64{want.Loss}, 0)
		compareGradients(t, dtype, nodes, want)
	})
}

// weightedSum is the sum of the elements of out times those of an input called dout.
func weightedSum(g *gorgonia.ExprGraph, out *gorgonia.Node) *gorgonia.Node {
	product := gorgonia.Must(gorgonia.HadamardProd(out, input(g, out.Dtype(), "dout", out.Shape()...)))
	return gorgonia.Must(ops.Sum(product))
}

// attentionCase is a case of golden.py's attention_cases.
type attentionCase struct {
	c           nn.MultiHeadAttentionConfig
	mask        bool
	bias, sinks []int // shapes, nil for none

	contexts, copies int // the batch of the context is the product; 3 and 1 where they are 0
}

var attentionCases = map[string]attentionCase{
	"self":                {c: nn.MultiHeadAttentionConfig{Heads: 2}},
	"causal without bias": {c: nn.MultiHeadAttentionConfig{Heads: 2, NoBias: true, Options: causal}},
	"gqa":                 {c: nn.MultiHeadAttentionConfig{Heads: 4, KVHeads: 2}},
	"mqa with wide heads": {c: nn.MultiHeadAttentionConfig{Heads: 2, KVHeads: 1, HeadDim: 6}},
	"cross":               {c: nn.MultiHeadAttentionConfig{Heads: 2, Cross: true, ContextDim: 10}},
	"cross gqa":           {c: nn.MultiHeadAttentionConfig{Heads: 4, KVHeads: 2, Cross: true, ContextDim: 10}},
	"rope":                {c: nn.MultiHeadAttentionConfig{Heads: 2, RoPE: &ops.RoPEOptions{}, Options: causal}},
	"rope gqa qknorm": {c: nn.MultiHeadAttentionConfig{
		Heads: 4, KVHeads: 2, HeadDim: 4, RoPE: &ops.RoPEOptions{}, QKNorm: true, NoBias: true, Options: causal}},
	"qknorm":              {c: nn.MultiHeadAttentionConfig{Heads: 2, QKNorm: true}},
	"padding":             {c: nn.MultiHeadAttentionConfig{Heads: 2}, mask: true},
	"padding causal rope": {c: nn.MultiHeadAttentionConfig{Heads: 2, RoPE: &ops.RoPEOptions{}, Options: causal}, mask: true},
	"padding cross":       {c: nn.MultiHeadAttentionConfig{Heads: 2, Cross: true, ContextDim: 10}, mask: true},
	"bias":                {c: nn.MultiHeadAttentionConfig{Heads: 2}, bias: []int{1, 2, 6, 6}},
	"padding and bias":    {c: nn.MultiHeadAttentionConfig{Heads: 2}, mask: true, bias: []int{1, 2, 6, 6}},
	"padding and bias of each batch item": {
		c: nn.MultiHeadAttentionConfig{Heads: 2}, mask: true, bias: []int{3, 1, 6, 6}},
	"window softcap alibi": {c: nn.MultiHeadAttentionConfig{Heads: 2, Options: ops.AttentionOptions{
		Window: &kernels.Window{Left: 2, Right: 1}, SoftCap: 2, ALiBi: []float64{0.5, 0.25}}}},
	"sinks": {c: nn.MultiHeadAttentionConfig{Heads: 2, Options: causal}, sinks: []int{2}},
}

var causal = ops.AttentionOptions{Causal: kernels.CausalBottomRight}

// attention is a case built into a graph.
type attention struct {
	g     *gorgonia.ExprGraph
	m     *nn.MultiHeadAttention
	x     *gorgonia.Node
	in    nn.AttentionInputs
	nodes gorgonia.Nodes // everything that has a gradient
}

func (c attentionCase) build(t *testing.T, p *nn.Parameters, dtype, maskType tensor.Dtype) attention {
	t.Helper()
	a := attention{g: gorgonia.NewGraph()}
	length := 6
	if c.c.Cross {
		length = 4
		if c.contexts == 0 {
			c.contexts, c.copies = 3, 1
		}
		shape := []int{c.contexts * c.copies, 6, 10}
		v := dense(dtype, shape, func(i int) float64 { return value("context", i%(c.contexts*60)) })
		a.in.Context = on(gorgonia.NewTensor(a.g, dtype, 3, gorgonia.WithShape(shape...), gorgonia.WithName("context"), gorgonia.WithValue(v)))
		a.nodes = append(a.nodes, a.in.Context.Node())
	}
	a.x = input(a.g, dtype, "x", 3, length, 8)
	a.nodes = append(a.nodes, a.x)
	c.c.Dim = 8
	if c.bias != nil {
		c.c.Options.Bias = input(a.g, dtype, "bias", c.bias...)
		a.nodes = append(a.nodes, c.c.Options.Bias)
	}
	if c.sinks != nil {
		c.c.Options.Sinks = input(a.g, dtype, "sinks", c.sinks...)
		a.nodes = append(a.nodes, c.c.Options.Sinks)
	}
	if c.mask {
		// The second item of the batch sees nothing.
		v := dense(maskType, []int{3, 6}, func(i int) float64 {
			if i/6 == 1 {
				return 0
			}
			return math.Min(1, float64(word("mask", i)%3))
		})
		a.in.KeyMask = on(gorgonia.NewMatrix(a.g, maskType, gorgonia.WithShape(3, 6), gorgonia.WithName("mask"), gorgonia.WithValue(v)))
	}
	a.m = nn.NewMultiHeadAttention(nn.NewScope(a.g, p).DType(dtype), c.c)
	a.nodes = append(a.nodes, a.m.Parameters()...)
	return a
}

func TestMultiHeadAttention(t *testing.T) {
	golden := readGolden(t, "attention.json")
	if len(golden) != len(attentionCases) {
		t.Errorf("the file has %d cases, the test has %d", len(golden), len(attentionCases))
	}
	for name, c := range attentionCases {
		want := golden[name]
		variants(t, name, func(t *testing.T, dtype tensor.Dtype, machine string) {
			p := nn.NewParameters(1)
			a := c.build(t, p, dtype, tensor.Bool)
			setParameters(t, p, a.m.Parameters())
			loss := weightedSum(a.g, must(a.m.ForwardWith(on(a.x), a.in)))
			differentiate(t, machine, a.g, loss, a.nodes)
			compare(t, "the loss", dtype, floats(t, loss.Value()), []float64{want.Loss}, 0)
			compareGradients(t, dtype, a.nodes, want)

			a = c.build(t, p, dtype, dtype)
			out, weights := a.m.ForwardWithWeights(on(a.x), a.in)
			evaluate(t, a.g)
			compare(t, "the output", dtype, floats(t, must(out).Value()), want.Out, 0)
			compare(t, "the weights", dtype, floats(t, must(weights).Value()), want.Weights, 0)
		})
	}
}
