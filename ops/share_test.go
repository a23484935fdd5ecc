package ops

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ofTwo is the first of two ranks that never exchange anything.
type ofTwo struct{ kernels.Ranks }

func (ofTwo) Rank() int { return 0 }
func (ofTwo) Size() int { return 2 }

// What ranks cannot share is an error when the graph is built.
func TestSharingErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(dtype tensor.Dtype, name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	float := func(name string, shape ...int) *gorgonia.Node { return node(tensor.Float32, name, shape...) }
	q, k, short, odd := float("q", 1, 2, 4, 8), float("k", 1, 2, 4, 8), float("short", 1, 2, 2, 8), float("odd", 1, 2, 3, 8)
	attend := func(q, k *gorgonia.Node, o AttentionOptions) error {
		o.Ranks = ofTwo{}
		_, err := FlashAttention(q, k, k, o)
		return err
	}
	cache, err := NewKVCache(KVCacheConfig{Batch: 1, Heads: 2, HeadDim: 8, Capacity: 8})
	if err != nil {
		t.Fatal(err)
	}
	only := func(_ *gorgonia.Node, err error) error { return err }
	shared := AttentionOptions{Ranks: ofTwo{}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{attend(q, k, AttentionOptions{}), ""},
		{attend(q, k, AttentionOptions{Bias: float("bias", 1, 1, 1, 4)}), "FlashAttention: bias is given"},
		{attend(q, k, AttentionOptions{Mask: func(p Pair) Cond { return p.Key.Less(p.Query) }}), "FlashAttention: mask is given"},
		{attend(q, k, AttentionOptions{Score: func(p Pair) Expr { return p.Score.Mul(2) }}), "FlashAttention: score is given"},
		{attend(q, k, AttentionOptions{Lengths: Lengths{KVLengths: node(tensor.Int, "lengths", 1)}}), "FlashAttention: kvLengths is given"},
		{attend(q, short, AttentionOptions{}), "FlashAttention: k has 2 rows, a sequence that ranks share needs q's 4"},
		{attend(odd, odd, AttentionOptions{}), "FlashAttention: q has 3 rows, a rank needs an even number"},
		{only(CachedAttention(q, k, k, cache, CachedAttentionOptions{AttentionOptions: shared})), "CachedAttention: Ranks is given, it needs to be left out"},
		{only(AttentionWeights(q, k, shared)), "AttentionWeights: Ranks is given"},
		{only(AttentionScores(q, k, shared)), "AttentionScores: Ranks is given"},
		{only(RoPE(odd, RoPEOptions{Ranks: ofTwo{}})), "RoPE: x has 3 rows, a rank needs an even number"},
		{only(RoPE(q, RoPEOptions{Ranks: ofTwo{}, Positions: node(tensor.Int, "positions", 1, 4)})), "RoPE: positions are given with Ranks"},
		{only(Dropout(q, DropoutOptions{Ranks: ofTwo{}})), "Dropout: x has shape [1 2 4 8], with Ranks it needs to be (batch, length, features)"},
		{only(Dropout(float("x", 3, 8), DropoutOptions{Ranks: ofTwo{}})), "Dropout: x has 3 rows, a rank needs an even number"},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
}

// A rank holds an early and a late part, and a process alone everything.
func TestHeldRows(t *testing.T) {
	for _, c := range []struct {
		ranks kernels.Ranks
		want  []int
	}{{nil, []int{0, 1, 2, 3, 4, 5, 6, 7}}, {ofTwo{}, []int{0, 1, 6, 7}}} {
		if got, err := HeldRows(c.ranks, 8); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("rows %v (%v), want %v", got, err, c.want)
		}
	}
	if _, err := HeldRows(ofTwo{}, 6); err == nil || !strings.Contains(err.Error(), "HeldRows: the length is 6, it needs to be a multiple of 2·2 ranks") {
		t.Errorf("a length of 6 for two ranks: %v", err)
	}
}
