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

// TestBuildErrors has everything that a graph knows to be wrong before it runs.
func TestBuildErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	f32 := func(name string, shape ...int) *gorgonia.Node { return node(g, name, tensor.Float32, shape...) }
	f64 := func(name string, shape ...int) *gorgonia.Node { return node(g, name, tensor.Float64, shape...) }
	index := func(name string, shape ...int) *gorgonia.Node { return node(g, name, tensor.Int, shape...) }
	scalar := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("scalar"))
	elsewhere := node(gorgonia.NewGraph(), "x", tensor.Float32, 2, 3)
	constant := gorgonia.NewConstant(tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 3)))
	type result struct {
		n   *gorgonia.Node
		err error
	}
	of := func(n *gorgonia.Node, err error) result { return result{n, err} }
	for _, c := range []struct {
		result
		want string
	}{
		{of(ops.GELU(nil)), "GELU: x is nil, it needs to be a node"},
		{of(ops.GELUErf(scalar)), "GELUErf: x is a scalar, it needs at least one axis"},
		{of(ops.SiLU(index("x", 2))), "SiLU: x is int, it needs to be float32, float64, BFloat16 or Float16"},
		{of(ops.Activate(f32("x", 3), 9)), "Activate: activation is 9, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh"},
		{of(ops.Sum(constant)), "Sum: all inputs are constants, at least one needs to belong to a graph"},
		{of(ops.Mean(scalar)), "Mean: x is a scalar, it needs at least one axis"},

		{of(ops.Add(f32("a", 2, 3), elsewhere)), "Add: b belongs to another graph than the inputs before it, all need one graph"},
		{of(ops.Add(f32("a", 2, 3), f32("b", 3))), "Add: b has shape [3], it needs a's [2 3]"},
		{of(ops.Add(f32("a", 2, 3), f64("b", 2, 3))), "Add: b is float64, a is float32: they need one dtype"},
		{of(ops.Mul(f32("a", 2, 3), f32("b", 2, 4))), "Mul: b has shape [2 4], it needs a's [2 3]"},
		{of(ops.Div(f32("a", 2, 3), f32("b", 3))), "Div: b has shape [3], it needs a's [2 3]"},
		{of(ops.Div(f32("a", 2, 3), scalar)), "Div: b has shape [], it needs a's [2 3]"},
		{of(ops.Log(index("x", 2))), "Log: x is int, it needs to be float32, float64, BFloat16 or Float16"},
		{of(ops.AddScalar(f32("x", 2), math.NaN())), "AddScalar: number is NaN, it needs to be finite"},
		{of(ops.Softmax(scalar)), "Softmax: x is a scalar, it needs at least one axis"},
		{of(ops.Max(f32("x", 3))), "Max: x has shape [3], it needs at least two axes (..., elements)"},
		{of(ops.Gather(f32("x", 2, 3), index("ids", 3, 2))), "Gather: ids has shape [3 2], it needs those axes of x, [2 3], but for the last"},
		{of(ops.Gather(f32("x", 2, 3), f32("ids", 2, 2))), "Gather: ids is float32, it needs to be int, int32 or int64"},
		{of(ops.Scatter(f32("x", 2, 3), index("ids", 2, 2), 5)), "Scatter: ids has shape [2 2], it needs x's [2 3]"},
		{of(ops.Scatter(f32("x", 2, 3), index("ids", 2, 3), 0)), "Scatter: n is 0, it needs to be at least 1"},
		{of(ops.Cast(scalar, ops.BFloat16)), "Cast: x is a scalar, it needs to stay float32 or float64: of a cost of 16 bits gorgonia.Grad gives nothing"},
		{of(ops.Scale(f32("x", 2, 3), math.Inf(1))), "Scale: factor is +Inf, it needs to be finite"},
		{of(ops.SoftCap(f32("x", 2, 3), -1)), "SoftCap: cap is -1, it needs to be positive"},
		{of(ops.SwiGLU(f32("gate", 2, 3), f32("up", 2, 4))), "SwiGLU: up has shape [2 4], it needs gate's [2 3]"},
		{of(ops.SwiGLU(f32("gate", 2, 3), f64("up", 2, 3))), "SwiGLU: up is float64, gate is float32: they need one dtype"},

		{of(ops.Linear(f32("x", 2, 3), f32("w", 4, 5), nil, ops.LinearOptions{})), "Linear: weight has shape [4 5], it needs a row for each of x's 3 features"},
		{of(ops.Linear(f32("x", 2, 3), f32("w", 3), nil, ops.LinearOptions{})), "Linear: weight has shape [3], it needs two axes (in, out)"},
		{of(ops.Linear(f32("x", 2, 3), f64("w", 3, 5), nil, ops.LinearOptions{})), "Linear: weight is float64, x is float32: they need one dtype"},
		{of(ops.Linear(f32("x", 2, 3), f32("w", 3, 5), f32("b", 3), ops.LinearOptions{})), "Linear: bias has shape [3], it needs one value for each of weight's 5 columns"},
		{of(ops.Linear(f32("x", 2, 3), f32("w", 3, 5), f64("b", 5), ops.LinearOptions{})), "Linear: bias is float64, x is float32: they need one dtype"},
		{of(ops.Linear(f32("x", 2, 3), nil, nil, ops.LinearOptions{})), "Linear: weight is nil, it needs to be a node"},
		{of(ops.Linear(f32("x", 2, 3), f32("w", 3, 5), nil, ops.LinearOptions{Activation: -1})), "Linear: activation is -1, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh"},

		{of(ops.MatMul(f32("a", 3), f32("b", 3, 4), ops.MatMulOptions{TransposeA: true})), "MatMul: a has shape [3], a vector cannot be transposed: it needs at least two axes"},
		{of(ops.MatMul(f32("a", 2, 3), f32("b", 3), ops.MatMulOptions{TransposeB: true})), "MatMul: b has shape [3], a vector cannot be transposed: it needs at least two axes"},
		{of(ops.MatMul(f32("a", 2, 3), f32("b", 4), ops.MatMulOptions{})),
			"MatMul: a has shape [2 3] and b has shape [4], which multiplies 2×3 by 4×1 matrices: the inner sizes need to be equal"},
		{of(ops.MatMul(f32("a", 2, 3), f32("b", 4, 3), ops.MatMulOptions{TransposeA: true})),
			"MatMul: a has shape [2 3], transposed, and b has shape [4 3], which multiplies 3×2 by 4×3 matrices: the inner sizes need to be equal"},
		{of(ops.MatMul(f32("a", 5, 2, 3), f32("b", 4, 3, 2), ops.MatMulOptions{})), "MatMul: a has batch axes [5] and b has [4]: from the last on, each pair needs to be equal, or one of them 1"},
		{of(ops.MatMul(f32("a", 2, 4, 2, 3), f32("b", 2, 3, 2), ops.MatMulOptions{})), "MatMul: a has batch axes [2 4] and b has [2]: from the last on, each pair needs to be equal, or one of them 1"},
		{of(ops.MatMul(f32("a", 2, 3), f64("b", 3, 2), ops.MatMulOptions{})), "MatMul: b is float64, a is float32: they need one dtype"},

		{of(ops.LayerNorm(f32("x", 2, 3), f32("gamma", 2), nil, ops.NormOptions{})), "LayerNorm: gamma has shape [2], it needs one value for each of x's 3 features"},
		{of(ops.LayerNorm(f32("x", 2, 3), nil, f64("beta", 3), ops.NormOptions{})), "LayerNorm: beta is float64, with x of float32 it needs to be float32"},
		{of(ops.LayerNorm(f32("x", 2, 3), nil, nil, ops.NormOptions{Epsilon: -1})), "LayerNorm: eps is -1, it needs to be positive, or 0 for 1e-5"},
		{of(ops.RMSNorm(f32("x", 2, 3), f32("gamma", 1, 3), ops.NormOptions{})), "RMSNorm: gamma has shape [1 3], it needs one value for each of x's 3 features"},
		{of(ops.RMSNorm(f32("x", 2, 3), nil, ops.NormOptions{Epsilon: math.NaN()})), "RMSNorm: eps is NaN, it needs to be positive, or 0 for 1e-5"},

		{of(ops.Embedding(f32("table", 4), index("ids", 2))), "Embedding: table has shape [4], it needs two axes (vocabulary, features)"},
		{of(ops.Embedding(f32("table", 4, 3), f32("ids", 2))), "Embedding: ids is float32, it needs to be int, int32 or int64"},
		{of(ops.Embedding(f32("table", 4, 3), nil)), "Embedding: ids is nil, it needs to be a node"},

		{of(ops.Dropout(f32("x", 2), ops.DropoutOptions{Drop: ops.Drop{P: 1}})), "Dropout: dropout is 1, it needs to be in [0, 1)"},
		{of(ops.Dropout(f32("x", 2), ops.DropoutOptions{Drop: ops.Drop{P: math.NaN()}})), "Dropout: dropout is NaN, it needs to be in [0, 1)"},

		{of(ops.RoPE(f32("x", 2, 3, 4), ops.RoPEOptions{})), `RoPE: x has shape [2 3 4], it needs 4 axes: ["batch" "heads" "length" "head size"]`},
		{of(ops.RoPE(f32("x", 2, 3, 4, 5), ops.RoPEOptions{})), "RoPE: 5 dimensions are to be rotated, it needs to be an even number"},
		{of(ops.RoPE(f32("x", 2, 3, 4, 6), ops.RoPEOptions{RotaryDim: 8})), "RoPE: rotary dim is 8, it needs to be from 0 to x's head size of 6"},
		{of(ops.RoPE(f32("x", 2, 3, 4, 6), ops.RoPEOptions{RotaryDim: 3})), "RoPE: 3 dimensions are to be rotated, it needs to be an even number"},
		{of(ops.RoPE(f32("x", 2, 3, 4, 6), ops.RoPEOptions{Offset: -1})), "RoPE: offset is -1, it cannot be negative"},
		{of(ops.RoPE(f32("x", 2, 3, 4, 6), ops.RoPEOptions{Base: -1})), "RoPE: base is -1, it needs to be positive, or 0 for 10000"},
		{of(ops.RoPE(f32("x", 2, 3, 4, 6), ops.RoPEOptions{Scaling: -1})), "RoPE: position scale is -1, it needs to be positive, or 0 for 1"},
		{of(ops.RoPE(f32("x", 2, 3, 4, 6), ops.RoPEOptions{Layout: 2})), "RoPE: layout is 2, it needs to be BHSD or BSHD"},
		{of(ops.RoPEQKV(f32("qkv", 2, 3, 4, 8), 2, 1, ops.RoPEOptions{})), `RoPEQKV: qkv has shape [2 3 4 8], it needs 3 axes: ["batch" "length" "(heads + 2·kvHeads) · head size"]`},
		{of(ops.RoPEQKV(f32("qkv", 2, 3, 10), 2, 1, ops.RoPEOptions{})), "RoPEQKV: qkv has 10 columns, they need to be a multiple of heads + 2·kvHeads = 4"},
		{of(ops.RoPEQKV(f32("qkv", 2, 3, 8), 0, 1, ops.RoPEOptions{})), "RoPEQKV: heads is 0 and kvHeads is 1, each needs to be from 1 to 1048576"},

		{of(ops.SoftmaxCrossEntropy(f32("z", 3), index("t", 3), ops.CrossEntropyOptions{})), "SoftmaxCrossEntropy: logits has shape [3], it needs at least two axes (..., classes)"},
		{of(ops.SoftmaxCrossEntropy(f32("z", 2, 3, 5), index("t", 6), ops.CrossEntropyOptions{})), "SoftmaxCrossEntropy: targets has shape [6], it needs one target for each row of logits: [2 3]"},
		{of(ops.SoftmaxCrossEntropy(f32("z", 2, 5), f32("t", 2), ops.CrossEntropyOptions{})), "SoftmaxCrossEntropy: targets is float32, it needs to be int, int32 or int64"},
		{of(ops.SoftmaxCrossEntropy(f32("z", 2, 5), index("t", 2), ops.CrossEntropyOptions{LabelSmoothing: 1})), "SoftmaxCrossEntropy: label smoothing is 1, it needs to be in [0, 1)"},
		{of(ops.SoftmaxCrossEntropy(f32("z", 2, 5), index("t", 2), ops.CrossEntropyOptions{Reduction: 3})), "SoftmaxCrossEntropy: reduction is 3, it needs to be MeanReduction, SumReduction or NoReduction"},
		{of(ops.SoftmaxCrossEntropy(f32("z", 2, 5), index("t", 2), ops.CrossEntropyOptions{Weights: f32("w", 4)})), "SoftmaxCrossEntropy: weights has shape [4], it needs one value for each of the 5 classes"},
		{of(ops.SoftmaxCrossEntropy(f32("z", 2, 5), index("t", 2), ops.CrossEntropyOptions{Weights: f64("w", 5)})), "SoftmaxCrossEntropy: weights is float64, it needs to be float32"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 4), f32("w", 5, 4), index("t", 2), ops.LinearCrossEntropyOptions{Reduction: kernels.NoReduction})),
			"LinearCrossEntropy: reduction is NoReduction, it needs to be MeanReduction or SumReduction: gradients are computed before those of single losses are known"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 4), f32("w", 5, 4), index("t", 2), ops.LinearCrossEntropyOptions{Weights: f32("cw", 4)})), "LinearCrossEntropy: weights has shape [4], it needs one value for each of the 5 classes"},
		{of(ops.LogSoftmax(index("x", 4))), "LogSoftmax: x is int, it needs to be float32, float64, BFloat16 or Float16"},

		{of(ops.LinearCrossEntropy(f32("x", 4), f32("w", 5, 4), index("t", 1), ops.LinearCrossEntropyOptions{})), "LinearCrossEntropy: x has shape [4], it needs at least two axes (..., features)"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 4), f32("w", 4, 5), index("t", 2), ops.LinearCrossEntropyOptions{})), "LinearCrossEntropy: weight has shape [4 5], it needs two axes (vocabulary, x's 4 features)"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 4), f32("w", 5, 4), index("t", 2), ops.LinearCrossEntropyOptions{WeightTransposed: true})),
			"LinearCrossEntropy: weight has shape [5 4], it needs two axes (x's 4 features, vocabulary)"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 4), f64("w", 5, 4), index("t", 2), ops.LinearCrossEntropyOptions{})), "LinearCrossEntropy: weight is float64, x is float32: they need one dtype"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 3, 4), f32("w", 5, 4), index("t", 6), ops.LinearCrossEntropyOptions{})), "LinearCrossEntropy: targets has shape [6], it needs one target for each row of x: [2 3]"},
		{of(ops.LinearCrossEntropy(f32("x", 2, 4), f32("w", 5, 4), index("t", 2), ops.LinearCrossEntropyOptions{LabelSmoothing: -1})), "LinearCrossEntropy: label smoothing is -1, it needs to be in [0, 1)"},
	} {
		if c.err == nil || c.err.Error() != c.want || c.n != nil {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// TestRunErrors has problems that only the values have.
func TestRunErrors(t *testing.T) {
	integers := func(g *gorgonia.ExprGraph, list ...int) *gorgonia.Node {
		return input(g, "integers", tensor.New(tensor.WithBacking(list)))
	}
	rows := func(g *gorgonia.ExprGraph) *gorgonia.Node {
		return input(g, "x", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 4)))
	}
	minusOne := -1
	for _, c := range []struct {
		build func(g *gorgonia.ExprGraph) (*gorgonia.Node, error)
		want  string // "" for none
	}{
		{func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) { return ops.Embedding(rows(g), integers(g, 1, 2)) },
			"Embedding: cpu: ids[1] is 2, it needs to be from 0 to 1"},
		{func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) { return ops.Embedding(rows(g), integers(g, -1, 0)) },
			"Embedding: cpu: ids[0] is -1, it needs to be from 0 to 1"},
		{func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
			return ops.SoftmaxCrossEntropy(rows(g), integers(g, 0, -1), ops.CrossEntropyOptions{})
		}, "SoftmaxCrossEntropy: cpu: targets[1] is -1, it needs to be from 0 to 3"},
		{func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
			return ops.SoftmaxCrossEntropy(rows(g), integers(g, 0, -1), ops.CrossEntropyOptions{IgnoreIndex: &minusOne})
		}, ""},
		{func(g *gorgonia.ExprGraph) (*gorgonia.Node, error) {
			return ops.LinearCrossEntropy(rows(g), rows(g), integers(g, 2, 0), ops.LinearCrossEntropyOptions{})
		}, "LinearCrossEntropy: cpu: targets[0] is 2, it needs to be from 0 to 1"},
	} {
		for _, machine := range machines {
			g := gorgonia.NewGraph()
			gorgonia.Must(c.build(g))
			m := gorgonia.VM(gorgonia.NewTapeMachine(g))
			if machine == "lispMachine" {
				m = gorgonia.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
			}
			if err := m.RunAll(); (err != nil || c.want != "") && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s:\ngot  %v\nwant %s", machine, err, c.want)
			}
		}
	}
}

// TestValuesMustFitTheirNodes calls an op itself, as a machine would, with values that Let would
// refuse.
func TestValuesMustFitTheirNodes(t *testing.T) {
	g := gorgonia.NewGraph()
	n := gorgonia.Must(ops.Linear(node(g, "x", tensor.Float32, 2, 3), node(g, "w", tensor.Float32, 3, 4), nil, ops.LinearOptions{}))
	of := func(dtype tensor.Dtype, shape ...int) gorgonia.Value {
		return tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))
	}
	good := of(tensor.Float32, 3, 4)
	for _, c := range []struct {
		value gorgonia.Value
		want  string
	}{
		{of(tensor.Float32, 3, 3), "Linear: x's value is float32 of shape [3 3], its node promised float32 of shape [2 3]"},
		{of(tensor.Float64, 2, 3), "Linear: x's value is float64 of shape [2 3], its node promised float32 of shape [2 3]"},
		{gorgonia.NewF32(1), "Linear: x's value is a *gorgonia.F32, it needs to be a *tensor.Dense"},
	} {
		if _, err := n.Op().Do(c.value, good); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestNaN checks that a NaN reaches what it should reach, and no other row.
func TestNaN(t *testing.T) {
	for name, apply := range map[string]func(x, w *gorgonia.Node) (*gorgonia.Node, error){
		"LayerNorm": func(x, _ *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.LayerNorm(x, nil, nil, ops.NormOptions{})
		},
		"RMSNorm": func(x, _ *gorgonia.Node) (*gorgonia.Node, error) { return ops.RMSNorm(x, nil, ops.NormOptions{}) },
		"Linear": func(x, w *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Linear(x, w, nil, ops.LinearOptions{Activation: kernels.GELUTanh})
		},
	} {
		g := gorgonia.NewGraph()
		data := filled(12, 1)
		data[1], data[5] = 2, math.NaN()
		n := gorgonia.Must(apply(input(g, "x", dense(tensor.Float32, data, 3, 4)), input(g, "w", dense(tensor.Float32, filled(16, 1), 4, 4))))
		run(t, gorgonia.NewTapeMachine(g))
		for i, y := range float64s(t, n.Value()) {
			if math.IsNaN(y) != (i/4 == 1) {
				t.Errorf("%s: element %d is %v, the NaN is in row 1", name, i, y)
			}
		}
	}
}
