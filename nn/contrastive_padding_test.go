package nn_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A text's vector is the same beside padding that a mask or lengths hide, by a probe and as a mean.
func TestTextsBesidePadding(t *testing.T) {
	for name, tower := range map[string]nn.TowerConfig{"probe": {Probe: true, Dim: 6}, "mean": {Pool: nn.MeanPool}, "first": {Pool: nn.FirstPool}} {
		config := nn.ContrastiveConfig{Text: tower, Image: nn.TowerConfig{Pool: nn.MeanPool}}
		block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}}
		config.Text.Encoder = nn.EncoderConfig{Layers: 2, Block: block, Text: &nn.TextConfig{Vocab: 9, Context: 8}}
		config.Image.Encoder = nn.EncoderConfig{Layers: 1, Block: block, Patches: &nn.PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 4, Patch: 2}}
		if tower.Dim != 0 {
			config.Image.Dim = tower.Dim
		}
		p := nn.NewParameters(1)
		vectors := func(in func(g *gorgonia.ExprGraph) nn.EncoderInputs, texts ...[]int) ([]float64, error) {
			g := gorgonia.NewGraph()
			s := nn.NewScope(g, p).DType(tensor.Float64)
			v := nn.NewContrastive(s, config).TextsWith(on(matrixOf(g, "tokens", texts...)), in(g))
			if v.Err() != nil {
				return nil, v.Err()
			}
			evaluate(t, g)
			return floats(t, v.Node().Value()), nil
		}
		want, err := vectors(func(*gorgonia.ExprGraph) nn.EncoderInputs { return nn.EncoderInputs{} }, []int{3, 1, 4})
		if err != nil {
			t.Fatal(err)
		}
		for way, in := range map[string]func(g *gorgonia.ExprGraph) nn.EncoderInputs{
			"mask": func(g *gorgonia.ExprGraph) nn.EncoderInputs {
				v := dense(tensor.Bool, []int{2, 5}, func(i int) float64 { return float64([]int{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}[i]) })
				return nn.EncoderInputs{KeyMask: on(gorgonia.NewMatrix(g, tensor.Bool, gorgonia.WithShape(2, 5), gorgonia.WithName("mask"), gorgonia.WithValue(v)))}
			},
			"lengths": func(g *gorgonia.ExprGraph) nn.EncoderInputs {
				v := dense(tensor.Int, []int{2}, func(i int) float64 { return float64(5 - 2*i) })
				return nn.EncoderInputs{KeyLengths: on(gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("lengths"), gorgonia.WithValue(v)))}
			},
		} {
			both, err := vectors(in, []int{2, 7, 1, 8, 2}, []int{3, 1, 4, 5, 6})
			if name == "mean" && way == "lengths" {
				if err == nil || !strings.Contains(err.Error(), "key lengths are given, and vectors are their mean: it needs a KeyMask") {
					t.Errorf("a mean of lengths: %v", err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			compare(t, name+" by "+way, tensor.Float64, both[len(want):], want, 1)
		}
	}
}
