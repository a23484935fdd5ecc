package nn

import (
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
)

// The buckets of distances from −16 to 16, by transformers.
func TestDistancesShareVectors(t *testing.T) {
	for farthest, want := range map[int][]int{
		16: {-8, -7, -7, -7, -7, -7, -7, -6, -6, -6, -5, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7},
		12: {-8, -8, -8, -8, -8, -7, -7, -7, -7, -6, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7},
		0:  {-8, -8, -8, -8, -8, -8, -8, -8, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
	} {
		c, got := DisentangledConfig{Buckets: 8, Farthest: farthest}, []int(nil)
		for distance := -16; distance <= 16; distance++ {
			got = append(got, c.bucket(distance)-8)
		}
		if !slices.Equal(got, want) {
			t.Errorf("farthest %d: buckets are %v, want %v", farthest, got, want)
		}
	}
}

func TestDisentangledErrors(t *testing.T) {
	for word, change := range map[string]func(*EncoderConfig){
		"buckets is 0":        func(c *EncoderConfig) { c.Disentangled.Buckets = 0 },
		"farthest 5":          func(c *EncoderConfig) { c.Disentangled.Farthest = 5 },
		"Distances":           func(c *EncoderConfig) { c.Distances = &DistanceConfig{Buckets: 8, Farthest: 9} },
		"as queries are":      func(c *EncoderConfig) { c.Block.Attention.KVHeads = 1 },
		"ranks that share":    func(c *EncoderConfig) { c.Block.Attention.QKNorm = true },
		"Options.Score":       func(c *EncoderConfig) { c.Block.Attention.Options.Scale = 2 },
		"and farthest 12, it": func(c *EncoderConfig) { c.Disentangled.Buckets = 7 },
	} {
		c := EncoderConfig{
			Layers: 1, Text: &TextConfig{Vocab: 5, Context: 8, NoPositions: true}, Disentangled: &DisentangledConfig{Buckets: 8, Farthest: 12},
			Block: BlockConfig{Attention: MultiHeadAttentionConfig{Dim: 8, Heads: 2}},
		}
		change(&c)
		g := gorgonia.NewGraph()
		s := NewScope(g, NewParameters(1))
		NewEncoder(s, c)
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the error is %v", word, err)
		}
	}
}
