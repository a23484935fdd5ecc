package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestEveryParameterLearns checks, for options that the golden files do not have, that each
// parameter has a gradient that is finite and not zero.
func TestEveryParameterLearns(t *testing.T) {
	blocks := map[string]nn.BlockConfig{
		"no biases":         {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, NoBias: true}},
		"squared ReLU":      {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}, Hidden: 9, Activation: kernels.ReLUSquared},
		"dropout":           {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Options: ops.AttentionOptions{Dropout: ops.Drop{P: 0.2}}}, Dropout: 0.2},
		"post-norm SwiGLU":  {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}, Norms: nn.PostNorm, Gated: true, RMSNorm: true},
		"branch norm GeGLU": {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNormAll: true}, Norms: nn.BranchNorm, Gated: true, Activation: kernels.GELUTanh, RMSNorm: true},
		"sandwich plus one": {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNorm: true, NoProjBias: true}, Norms: nn.SandwichNorm, RMSNorm: true, NormPlusOne: true, MLPBias: new(bool)},
		"interleaved RoPE":  {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, RoPE: &ops.RoPEOptions{Interleaved: true, RotaryDim: 2}}},
		"norms of heads":    {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, KVHeads: 1, QKNorm: true, QKNormKind: nn.HeadLayerNorm}},
		"a norm each head":  {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: 2, QKNorm: true, QKNormKind: nn.HeadLayerNorms, RoPE: &ops.RoPEOptions{}}},
		"clipped":           {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Clip: 0.8}},
		"clipped RoPE":      {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, QKNormAll: true, Clip: 0.8, RoPE: &ops.RoPEOptions{}}},
		"latents": {Attention: nn.MultiHeadAttentionConfig{
			Dim: 8, Heads: 2, RoPE: &ops.RoPEOptions{}, Latent: &nn.Latent{Rank: 3, QueryRank: 5, Turned: 2, Plain: 4, Values: 3},
		}},
		"epsilon and window": {Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2, Options: ops.AttentionOptions{Window: &kernels.Window{Left: 2}}}, Epsilon: 1e-6},
	}
	for name, c := range blocks {
		g := gorgonia.NewGraph()
		b := nn.NewBlock(nn.NewScope(g, nil).DType(tensor.Float64), c)
		out := must(b.Forward(on(input(g, tensor.Float64, "x", 2, 5, 8))))
		differentiate(t, "tape", g, weightedSum(g, out), b.Parameters())
		for _, n := range b.Parameters() {
			v, err := n.Grad()
			if err != nil {
				t.Errorf("%s: %s: %v", name, n.Name(), err)
				continue
			}
			largest := 0.0
			for _, x := range floats(t, v) {
				largest = max(largest, math.Abs(x))
			}
			if !(largest > 0 && largest < 1e6) {
				t.Errorf("%s: the largest element of the gradient of %s is %v", name, n.Name(), largest)
			}
		}
	}
}

// TestHiddenSizes checks the sizes that a Hidden of 0 stands for.
func TestHiddenSizes(t *testing.T) {
	g := gorgonia.NewGraph()
	plain := nn.NewMLP(nn.NewScope(g, nil).Sub("plain"), nn.MLPConfig{Dim: 8})
	gated := nn.NewMLP(nn.NewScope(g, nil).Sub("gated"), nn.MLPConfig{Dim: 768, Gated: true})
	for _, c := range []struct {
		parameters gorgonia.Nodes
		want       int
	}{{plain.Parameters(), 32}, {gated.Parameters(), 2048}} {
		if got := c.parameters[0].Shape()[1]; got != c.want {
			t.Errorf("%s has %d columns, want %d", c.parameters[0].Name(), got, c.want)
		}
	}
}

// TestPositionsOfSeveralCalls checks that calls of one shape share their input of ids, and that one
// that is shorter than the table works.
func TestPositionsOfSeveralCalls(t *testing.T) {
	g := gorgonia.NewGraph()
	p := nn.NewPositionalEmbedding(nn.NewScope(g, nil).DType(tensor.Float64).Sub("p"), nn.PositionalEmbeddingConfig{Context: 300, Dim: 2})
	zeros := gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithShape(2, 280, 2), gorgonia.WithName("zeros"), gorgonia.WithInit(gorgonia.Zeroes()))
	first, second := must(p.Forward(on(zeros))), must(p.Forward(on(zeros)))
	evaluate(t, g)
	table := floats(t, p.Parameters()[0].Value())
	for _, n := range []*gorgonia.Node{first, second} {
		for i, x := range floats(t, n.Value()) {
			if x != table[i%560] {
				t.Fatalf("element %d is %v, want %v", i, x, table[i%560])
			}
		}
	}
	if found := g.ByName("p.ids.2x280"); len(found) != 1 {
		t.Errorf("there are %d inputs of ids, want 1", len(found))
	}
}

// TestKeyLengths gives lengths of keys the results of a mask that hides what is behind them.
func TestKeyLengths(t *testing.T) {
	for _, name := range []string{"self", "cross gqa", "rope"} {
		c := attentionCases[name]
		c.c.Options.Causal = kernels.CausalTopLeft
		c.c.NoBias = true // the bias of the keys has a gradient of 0, and of rounding errors
		variants(t, name, func(t *testing.T, dtype tensor.Dtype, machine string) {
			lengths := []int{6, 0, 4}
			want, nodes := gradientsOf(t, c, dtype, machine, func(a *attention) {
				mask := dense(tensor.Bool, []int{3, 6}, func(i int) float64 { return max(0, float64(lengths[i/6]-i%6)) })
				a.in.KeyMask = on(gorgonia.NewMatrix(a.g, tensor.Bool, gorgonia.WithShape(3, 6), gorgonia.WithName("mask"), gorgonia.WithValue(mask)))
			})
			got, _ := gradientsOf(t, c, dtype, machine, func(a *attention) {
				v := dense(tensor.Int, []int{3}, func(i int) float64 { return float64(lengths[i]) })
				a.in.KeyLengths = on(gorgonia.NewVector(a.g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("lengths"), gorgonia.WithValue(v)))
			})
			for i, n := range nodes {
				compare(t, "the gradient of "+n.Name(), dtype, got[i], want[i], 1)
			}
		})
	}
}

// TestContextOfOneBatchItem gives a context for all of x the gradient that its copies have
// together.
func TestContextOfOneBatchItem(t *testing.T) {
	variants(t, "context", func(t *testing.T, dtype tensor.Dtype, machine string) {
		c := attentionCases["cross gqa"]
		same := func(*attention) {}
		c.c.NoBias, c.contexts, c.copies = true, 1, 3 // the bias of the keys has a gradient of 0, and of rounding errors
		want, nodes := gradientsOf(t, c, dtype, machine, same)
		c.copies = 1
		got, _ := gradientsOf(t, c, dtype, machine, same)
		for i := range want[0][:60] {
			want[0][i] += want[0][i+60] + want[0][i+120]
		}
		want[0] = want[0][:60]
		for i, n := range nodes {
			compare(t, "the gradient of "+n.Name(), dtype, got[i], want[i], 1)
		}
	})
}

// gradientsOf builds a case, lets change its inputs, and returns all gradients.
func gradientsOf(t *testing.T, c attentionCase, dtype tensor.Dtype, machine string, change func(a *attention)) ([][]float64, gorgonia.Nodes) {
	t.Helper()
	p := nn.NewParameters(1)
	a := c.build(t, p, dtype, tensor.Bool)
	setParameters(t, p, a.m.Parameters())
	change(&a)
	differentiate(t, machine, a.g, weightedSum(a.g, must(a.m.ForwardWith(on(a.x), a.in))), a.nodes)
	var list [][]float64
	for _, n := range a.nodes {
		v, err := n.Grad()
		if err != nil {
			t.Fatalf("%s: %v", n.Name(), err)
		}
		list = append(list, slices.Clone(floats(t, v)))
	}
	return list, a.nodes
}
