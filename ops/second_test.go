package ops_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// secondCase checks the second derivatives of a graph by differences.
func secondCase(t *testing.T, name string, build func(leaf func(name string, shape ...int) *gorgonia.Node) (*gorgonia.Node, error)) {
	t.Helper()
	err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		var leaves gorgonia.Nodes
		y, err := build(func(name string, shape ...int) *gorgonia.Node {
			x := make([]float64, tensor.Shape(shape).TotalSize())
			for i := range x {
				x[i] = float64((i*7+len(leaves)*5)%11)/6 - 0.9
			}
			n := gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
				gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x), tensor.WithEngine(ops.Engine()))))
			leaves = append(leaves, n)
			return n
		})
		if err != nil {
			return nil, nil, err
		}
		return y, leaves, nil
	}, gradcheck.Options{Elements: 6, Directions: 2, Second: true, Contiguous: true})
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func TestSecondDerivativesOfAttention(t *testing.T) {
	slow.Emulated(t)
	type leaves = func(name string, shape ...int) *gorgonia.Node
	attention := func(o ops.AttentionOptions) func(leaf leaves) (*gorgonia.Node, error) {
		return func(leaf leaves) (*gorgonia.Node, error) {
			return ops.FlashAttention(leaf("q", 2, 2, 3, 4), leaf("k", 2, 1, 5, 4), leaf("v", 2, 1, 5, 2), o)
		}
	}
	lengths := func(x *gorgonia.Node, ends ...int) *gorgonia.Node {
		return gorgonia.NewVector(x.Graph(), tensor.Int, gorgonia.WithShape(len(ends)), gorgonia.WithName(fmt.Sprint("ends", ends)),
			gorgonia.WithValue(tensor.New(tensor.WithShape(len(ends)), tensor.WithBacking(ends))))
	}
	for name, build := range map[string]func(leaf leaves) (*gorgonia.Node, error){
		"plain":                       attention(ops.AttentionOptions{}),
		"causal, capped, with slopes": attention(ops.AttentionOptions{Causal: kernels.CausalBottomRight, SoftCap: 1.5, ALiBi: []float64{0.5, 0.1}}),
		"dropped": func(leaf leaves) (*gorgonia.Node, error) {
			y, err := attention(ops.AttentionOptions{Dropout: ops.Drop{P: 0.3, Seed: 5}})(leaf)
			ops.ModeOf(y.Graph()).Train(3)
			return y, err
		},
		"scored and masked": attention(ops.AttentionOptions{
			Score: func(p ops.Pair) ops.Expr { return p.Score.Sin().Add(p.Score.Mul(0.5)) },
			Mask:  func(p ops.Pair) ops.Cond { return p.Key.Sub(p.Query).Rem(2).Equal(0) }}),
		"a bias and sinks": func(leaf leaves) (*gorgonia.Node, error) {
			q, k, v := leaf("q", 1, 2, 3, 4), leaf("k", 1, 2, 4, 4), leaf("v", 1, 2, 4, 3)
			return ops.FlashAttention(q, k, v, ops.AttentionOptions{Bias: leaf("bias", 3, 4), Sinks: leaf("sinks", 2), Layout: ops.BHSD})
		},
		"one projection": func(leaf leaves) (*gorgonia.Node, error) {
			return ops.FlashAttentionQKV(leaf("qkv", 1, 5, 16), 2, 1, ops.AttentionOptions{Window: &kernels.Window{Left: 2, Right: 0}})
		},
		"the logsumexp alone": func(leaf leaves) (*gorgonia.Node, error) {
			q := leaf("q", 1, 1, 3, 2)
			v := gorgonia.NewTensor(q.Graph(), tensor.Float64, 4, gorgonia.WithShape(1, 1, 4, 1), gorgonia.WithName("v"),
				gorgonia.WithValue(tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(1, 1, 4, 1))))
			_, lse, err := ops.FlashAttentionLSE(q, leaf("k", 1, 1, 4, 2), v, ops.AttentionOptions{})
			return lse, err
		},
		"packed": func(leaf leaves) (*gorgonia.Node, error) {
			q, k, v := leaf("q", 6, 1, 2), leaf("k", 7, 1, 2), leaf("v", 7, 1, 2)
			return ops.FlashAttention(q, k, v, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lengths(q, 0, 2, 5), KVLens: lengths(q, 0, 3, 7)}})
		},
		"the logsumexp": func(leaf leaves) (*gorgonia.Node, error) {
			out, lse, err := ops.FlashAttentionLSE(leaf("q", 1, 1, 3, 2), leaf("k", 1, 1, 4, 2), leaf("v", 1, 1, 4, 1), ops.AttentionOptions{})
			if err != nil {
				return nil, err
			}
			return ops.Mul(lse, gorgonia.Must(gorgonia.Reshape(out, tensor.Shape{1, 1, 3})))
		},
	} {
		secondCase(t, name, build)
	}
}

// A model of several ops, and each op that has second derivatives.
func TestSecondDerivatives(t *testing.T) {
	slow.Race(t)
	slow.Emulated(t)
	type leaves = func(name string, shape ...int) *gorgonia.Node
	must := gorgonia.Must
	model := func(leaf leaves) (*gorgonia.Node, error) {
		h := must(ops.Linear(leaf("x", 1, 3, 4), leaf("w", 4, 12), leaf("b", 12), ops.LinearOptions{}))
		h = must(ops.FlashAttentionQKV(h, 2, 2, ops.AttentionOptions{Causal: kernels.CausalBottomRight}))
		h = must(ops.LayerNorm(h, leaf("gamma", 4), leaf("beta", 4), ops.NormOptions{}))
		h = must(ops.Linear(h, leaf("out", 4, 3), leaf("outBias", 3), ops.LinearOptions{Activation: kernels.GELUTanh}))
		return ops.LogSoftmax(h)
	}
	cases := map[string]func(leaf leaves) (*gorgonia.Node, error){
		"model": model,
		"model in shared memory": func(leaf leaves) (*gorgonia.Node, error) {
			y, err := model(leaf)
			ops.ReuseMemory(y.Graph())
			return y, err
		},
		"MatMul": func(leaf leaves) (*gorgonia.Node, error) {
			return ops.MatMul(leaf("a", 2, 3, 4), leaf("b", 2, 4, 2), ops.MatMulOptions{})
		},
		"MatMul of transposes": func(leaf leaves) (*gorgonia.Node, error) {
			return ops.MatMul(leaf("a", 4, 3), leaf("b", 2, 4), ops.MatMulOptions{TransposeA: true, TransposeB: true})
		},
		"MatMul of a batch and a matrix": func(leaf leaves) (*gorgonia.Node, error) {
			return ops.MatMul(leaf("a", 2, 3, 4), leaf("b", 2, 4), ops.MatMulOptions{TransposeB: true})
		},
		"RMSNorm": func(leaf leaves) (*gorgonia.Node, error) {
			return ops.RMSNorm(leaf("x", 2, 5), leaf("gamma", 5), ops.NormOptions{})
		},
		"LayerNorm without parameters": func(leaf leaves) (*gorgonia.Node, error) {
			return ops.LayerNorm(leaf("x", 2, 2, 5), nil, nil, ops.NormOptions{})
		},
		"Softmax": func(leaf leaves) (*gorgonia.Node, error) { return ops.Softmax(leaf("x", 2, 5)) },
		"arithmetic": func(leaf leaves) (*gorgonia.Node, error) {
			x := must(ops.AddScalar(must(ops.Mul(leaf("x", 5), leaf("y", 5))), 3))
			quotient := must(ops.Div(must(ops.Exp(x)), must(ops.Sqrt(x))))
			return ops.Add(must(ops.Log(quotient)), must(ops.Abs(must(ops.Scale(x, -2)))))
		},
		"what moves elements": func(leaf leaves) (*gorgonia.Node, error) {
			x, y := leaf("x", 2, 3), leaf("y", 2, 2)
			h := must(ops.Permute(must(ops.Concat(1, x, y)), 1, 0))
			h = must(ops.Pad(must(ops.Slice(h, 0, 1, 5)), 1, 1, 0, 2))
			h = must(ops.RoPE(must(gorgonia.Reshape(must(ops.Pad(h, 1, 0, 1, 0)), tensor.Shape{1, 1, 4, 4})), ops.RoPEOptions{}))
			return ops.Mul(h, h)
		},
		"SoftCap": func(leaf leaves) (*gorgonia.Node, error) { return ops.SoftCap(leaf("x", 5), 1.5) },
		"a node used twice": func(leaf leaves) (*gorgonia.Node, error) {
			x := leaf("x", 3, 3)
			h := must(ops.MatMul(x, x, ops.MatMulOptions{}))
			return ops.MatMul(h, must(ops.Tanh(h)), ops.MatMulOptions{})
		},
		"recomputed": func(leaf leaves) (*gorgonia.Node, error) {
			x := leaf("x", 2, 3)
			y := must(ops.Linear(x, leaf("w", 3, 3), leaf("b", 3), ops.LinearOptions{Activation: kernels.SiLU}))
			return ops.Recompute(must(ops.Mul(y, y)), x)
		},
	}
	for _, kind := range kernels.Activations() {
		if kind != kernels.NoActivation {
			cases[kind.String()] = func(leaf leaves) (*gorgonia.Node, error) { return ops.Activate(leaf("x", 2, 5), kind) }
		}
	}
	for name, build := range cases {
		secondCase(t, name, build)
	}
}

// The gradient of a cost in which gradients are is Gorgonia's to ask for, once.
func TestGradientPenalty(t *testing.T) {
	must := gorgonia.Must
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2), gorgonia.WithValue(tensor.New(tensor.WithBacking([]float64{1, -2}))))
	cube := must(ops.Sum(must(ops.Mul(must(ops.Mul(x, x)), x))))
	d, err := ops.Gradients(cube, x)
	if err != nil {
		t.Fatal(err)
	}
	var first gorgonia.Value
	gorgonia.Read(d[0], &first)
	cost := must(ops.Add(cube, must(ops.Sum(must(ops.Mul(d[0], d[0])))))) // Σ x³ + 9x⁴
	if _, err := gorgonia.Grad(cost, x); err != nil {
		t.Fatal(err)
	}
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 2 {
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		gradient, err := x.Grad()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(first.Data(), gradient.Data()); got != "[3 12] [39 -276]" {
			t.Errorf("the gradients are %s", got)
		}
		m.Reset()
	}
}

func TestGradientsErrors(t *testing.T) {
	must := gorgonia.Must
	leaf := func(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...))
	}
	square := func(n *gorgonia.Node) *gorgonia.Node { return must(ops.Sum(must(ops.Mul(n, n)))) }
	for want, build := range map[string]func(g *gorgonia.ExprGraph) error{
		"Gradients: cost has shape (2), it needs to be a scalar": func(g *gorgonia.ExprGraph) error {
			x := leaf(g, "x", 2)
			_, err := ops.Gradients(x, x)
			return err
		},
		"Gradients: cost does not depend on wrt[1]": func(g *gorgonia.ExprGraph) error {
			x := leaf(g, "x", 2)
			_, err := ops.Gradients(square(x), x, leaf(g, "y", 2))
			return err
		},
		"Gradients: wrt[0] is nil": func(g *gorgonia.ExprGraph) error {
			_, err := ops.Gradients(square(leaf(g, "x", 2)), nil)
			return err
		},
		"SwiGLU: its gradient has no gradient": func(g *gorgonia.ExprGraph) error {
			x := leaf(g, "x", 2, 4)
			d, err := ops.Gradients(square(must(ops.SwiGLU(x, leaf(g, "up", 2, 4)))), x)
			if err != nil {
				return err
			}
			_, err = gorgonia.Grad(square(d[0]), x)
			return err
		},
		"FlashAttention.second: score looks up table, it needs to look up no floats": func(g *gorgonia.ExprGraph) error {
			q, table := leaf(g, "q", 1, 1, 2, 2), leaf(g, "table", 3)
			y := must(ops.FlashAttention(q, q, q, ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr { return p.Score.Add(ops.Lookup(table, p.Key)) }}))
			d, err := ops.Gradients(square(y), q)
			if err != nil {
				return err
			}
			_, err = ops.Gradients(square(d[0]), q)
			return err
		},
		"Mul: gorgonia.Grad has computed its gradient": func(g *gorgonia.ExprGraph) error {
			x := leaf(g, "x", 2)
			d, err := gorgonia.Grad(square(must(ops.Mul(x, x))), x)
			if err != nil {
				return err
			}
			_, err = ops.Gradients(square(d[0]), x)
			return err
		},
	} {
		if err := build(gorgonia.NewGraph()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
