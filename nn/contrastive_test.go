package nn

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// small is a Contrastive of 8 features.
func smallContrastive() ContrastiveConfig {
	block := BlockConfig{Attention: MultiHeadAttentionConfig{Dim: 8, Heads: 2}}
	return ContrastiveConfig{
		Text:  TowerConfig{Encoder: EncoderConfig{Layers: 1, Block: block, Text: &TextConfig{Vocab: 9, Context: 6}}, End: new(8)},
		Image: TowerConfig{Encoder: EncoderConfig{Layers: 1, Block: block, Patches: &PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 4, Patch: 2, ClassToken: true}}},
	}
}

// What cannot be a model of two towers is an error that says why.
func TestContrastiveErrors(t *testing.T) {
	for want, change := range map[string]func(c *ContrastiveConfig){
		"the encoders read something else":                       func(c *ContrastiveConfig) { c.Text = c.Image },
		"vectors of texts have 5 features and those of images 8": func(c *ContrastiveConfig) { c.Text.Dim = 5 },
		"registers is 2":    func(c *ContrastiveConfig) { p := c.Image.Encoder.Patches; p.ClassToken, p.Registers = false, 2 },
		"sizes is 7":        func(c *ContrastiveConfig) { c.Image.Encoder.Patches.Sizes = 7 },
		"Grid or PatchMean": func(c *ContrastiveConfig) { c.Text.Encoder.Grid = 10 },
		"RoPE and Turn": func(c *ContrastiveConfig) {
			c.Text.Encoder.Block.Attention.Turn = func(x Tensor) Tensor { return x }
			c.Text.Encoder.Block.Attention.RoPE = &ops.RoPEOptions{}
		},
	} {
		c := smallContrastive()
		change(&c)
		s := NewScope(gorgonia.NewGraph(), nil)
		NewContrastive(s, c)
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	s := NewScope(gorgonia.NewGraph(), nil)
	m := NewContrastive(s, smallContrastive())
	texts := m.Texts(s.Constant("tokens", tensor.New(tensor.WithShape(3, 6), tensor.WithBacking(make([]int, 18)))))
	images := m.Images(s.Constant("images", tensor.New(tensor.WithShape(2, 1, 4, 4), tensor.Of(tensor.Float32))))
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if m.Loss(m.Logits(images, texts)); s.Err() == nil || !strings.Contains(s.Err().Error(), "logits has shape [2 3], it needs as many images as texts") {
		t.Errorf("a loss of three texts and two images: %v", s.Err())
	}
	var zero Contrastive
	zero.Texts(Tensor{})
	zero.Loss(Tensor{})
}
