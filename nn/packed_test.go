package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Sequences that lie end to end have the logits, the loss and the gradients that each has alone.
func TestPackedModels(t *testing.T) {
	parameters := nn.NewParameters(3)
	models := map[string]func(s *nn.Scope) *nn.LanguageModel{
		"GPT": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewGPT(s.Sub("gpt"), nn.GPTConfig{Vocab: 9, Context: 8, Layers: 2, Heads: 2, Dim: 8})
		},
		"Llama": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewLlama(s.Sub("llama"), nn.LlamaConfig{Vocab: 9, Layers: 2, Heads: 4, KVHeads: 2, Dim: 16, Hidden: 12, QKNorm: true, Attention: ops.AttentionOptions{Window: &kernels.Window{Left: 2}}})
		},
		"latents": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewLanguageModel(s.Sub("latents"), nn.LanguageModelConfig{Vocab: 9, Layers: 2, Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{
				Dim: 8, Heads: 2, RoPE: &ops.RoPEOptions{}, Latent: &nn.Latent{Rank: 3, Turned: 2, Plain: 3, Values: 4},
				Options: ops.AttentionOptions{Causal: kernels.CausalBottomRight},
			}}})
		},
	}
	sequences := [][]int{{}, {1, 2, 3, 4, 5}, {}, {8, 7}, {0, 1, 0, 6, 6, 2, 3}, {}, {}}
	for name, build := range models {
		t.Run(name, func(t *testing.T) {
			vector := func(g *gorgonia.ExprGraph, name string, list []int) *gorgonia.Node {
				return gorgonia.NewVector(g, tensor.Int, gorgonia.WithName(name), gorgonia.WithShape(len(list)),
					gorgonia.WithValue(tensor.New(tensor.WithBacking(list))))
			}
			g := gorgonia.NewGraph()
			m := build(nn.NewScope(g, parameters).DType(tensor.Float64))
			var all, targets, positions, ends []int
			ends = append(ends, 0)
			for _, s := range sequences {
				for i, id := range s {
					all, positions, targets = append(all, id), append(positions, i), append(targets, next(s, i))
				}
				ends = append(ends, len(all))
			}
			packing := nn.Packing{Ends: on(vector(g, "ends", ends)), Positions: on(vector(g, "positions", positions))}
			tokens := on(vector(g, "tokens", all))
			var logits, loss gorgonia.Value
			gorgonia.Read(must(m.ForwardPacked(tokens, packing)), &logits)
			cost := must(m.LossPacked(tokens, on(vector(g, "targets", targets)), packing))
			gorgonia.Read(cost, &loss)
			differentiate(t, "tape", g, cost, m.Parameters())

			alone := gorgonia.NewGraph()
			n := build(nn.NewScope(alone, parameters).DType(tensor.Float64))
			var sum *gorgonia.Node
			values := make([]gorgonia.Value, len(sequences))
			counted := 0
			for i, s := range sequences {
				if len(s) == 0 {
					continue
				}
				matrix := func(what string, at func(i int) int) *gorgonia.Node {
					list := make([]int, len(s))
					for i := range list {
						list[i] = at(i)
					}
					return gorgonia.NewMatrix(alone, tensor.Int, gorgonia.WithName(fmt.Sprint(what, i)), gorgonia.WithShape(1, len(s)),
						gorgonia.WithValue(tensor.New(tensor.WithShape(1, len(s)), tensor.WithBacking(list))))
				}
				tokens := matrix("tokens", func(i int) int { return s[i] })
				gorgonia.Read(must(n.Forward(on(tokens))), &values[i])
				mean := must(n.Loss(on(tokens), on(matrix("targets", func(i int) int { return next(s, i) }))))
				part := gorgonia.Must(gorgonia.Mul(mean, gorgonia.NewConstant(float64(len(s)-1))))
				if counted += len(s) - 1; sum != nil {
					part = gorgonia.Must(gorgonia.Add(sum, part))
				}
				sum = part
			}
			mean := gorgonia.Must(gorgonia.Mul(sum, gorgonia.NewConstant(1/float64(counted))))
			var want gorgonia.Value
			gorgonia.Read(mean, &want)
			differentiate(t, "tape", alone, mean, n.Parameters())

			if have, want := loss.Data().(float64), want.Data().(float64); !(math.Abs(have-want) <= 1e-12) {
				t.Errorf("the loss is %v, want %v", have, want)
			}
			at := 0
			for i, v := range values {
				if v == nil {
					continue
				}
				for k, want := range floats(t, v) {
					if have := floats(t, logits)[at]; !(math.Abs(have-want) <= 1e-12) {
						t.Fatalf("sequence %d, logit %d is %v, want %v", i, k, have, want)
					}
					at++
				}
			}
			for i, p := range m.Parameters() {
				have, err := p.Grad()
				if err != nil {
					t.Fatal(err)
				}
				want, err := n.Parameters()[i].Grad()
				if err != nil {
					t.Fatal(err)
				}
				for k, w := range floats(t, want) {
					if !(math.Abs(floats(t, have)[k]-w) <= 1e-11) {
						t.Fatalf("%s: element %d of the gradient is %v, want %v", p.Name(), k, floats(t, have)[k], w)
					}
				}
			}
		})
	}
}

// next is the target after a token of a sequence: none after the last.
func next(s []int, i int) int {
	if i+1 < len(s) {
		return s[i+1]
	}
	return nn.IgnoreTarget
}
