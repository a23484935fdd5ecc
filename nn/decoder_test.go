package nn_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// decoderModels have the options that matter to a cache, alone or as people combine them.
var decoderModels = map[string]func(s *nn.Scope) *nn.LanguageModel{
	"gpt":               gptWith(nn.GPTConfig{}),
	"gpt, dropout":      gptWith(nn.GPTConfig{Dropout: 0.3}),
	"gpt, top left":     gptWith(nn.GPTConfig{Attention: ops.AttentionOptions{Causal: kernels.CausalTopLeft}}),
	"gpt, alibi, cap":   gptWith(nn.GPTConfig{Attention: ops.AttentionOptions{ALiBi: []float64{0.5, 0.25, 0.1}, SoftCap: 2}}),
	"gpt, window":       gptWith(nn.GPTConfig{Attention: ops.AttentionOptions{Window: &kernels.Window{Left: 5, Right: 3}}}),
	"llama":             llamaWith(nn.LlamaConfig{}),
	"llama, gqa":        llamaWith(nn.LlamaConfig{KVHeads: 2, Context: 90}),
	"llama, mqa, qnorm": llamaWith(nn.LlamaConfig{KVHeads: 1, HeadDim: 6, QKNorm: true, TiedHead: true, Dropout: 0.2}),
	"latents":           latentModel(7),
	"latents, one rank": latentModel(0),
	"llama, interleaved": llamaWith(nn.LlamaConfig{
		KVHeads: 2, RoPE: ops.RoPEOptions{Interleaved: true, Base: 100, Scaling: 2, Offset: 3, RotaryDim: 2},
		Attention: ops.AttentionOptions{Window: &kernels.Window{Left: 7, Right: -1}, SoftCap: 3},
	}),
}

// latentModel keeps latents in its caches, whose values are within the keys.
func latentModel(queryRank int) func(*nn.Scope) *nn.LanguageModel {
	return func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLanguageModel(s, nn.LanguageModelConfig{Vocab: decoderVocab, Layers: 2, Block: nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{
				Dim: 12, Heads: 3, RoPE: &ops.RoPEOptions{Interleaved: true},
				Latent:  &nn.Latent{Rank: 5, QueryRank: queryRank, Turned: 4, Plain: 3, Values: 6},
				Options: ops.AttentionOptions{Causal: kernels.CausalBottomRight, Dropout: ops.Drop{P: 0.2}},
			},
			Hidden: 10, RMSNorm: true,
		}})
	}
}

const decoderVocab = 13

func gptWith(c nn.GPTConfig) func(*nn.Scope) *nn.LanguageModel {
	c.Vocab, c.Context, c.Layers, c.Heads, c.Dim = decoderVocab, 80, 2, 3, 12
	return func(s *nn.Scope) *nn.LanguageModel { return nn.NewGPT(s, c) }
}

func llamaWith(c nn.LlamaConfig) func(*nn.Scope) *nn.LanguageModel {
	c.Vocab, c.Layers, c.Heads, c.Dim, c.Hidden = decoderVocab, 2, 4, 16, 20
	return func(s *nn.Scope) *nn.LanguageModel { return nn.NewLlama(s, c) }
}

// decoded is a decoder and the same model without a cache.
type decoded struct {
	*nn.Decoder
	p       *nn.Parameters
	uncache func(tokens []int) []float64 // the last logits of Forward
}

func newDecoded(t *testing.T, name string, dtype tensor.Dtype, capacity int) decoded {
	t.Helper()
	d := decoded{p: nn.NewParameters(1)}
	model := decoderModels[name]
	decoder, err := nn.NewDecoder(nn.DecoderConfig{Parameters: d.p, Capacity: capacity, Model: func(s *nn.Scope) nn.CachedModel {
		m := model(s.DType(dtype))
		setParameters(t, d.p, m.Parameters())
		return m
	}})
	if err != nil {
		t.Fatal(err)
	}
	d.Decoder = decoder
	d.uncache = func(tokens []int) []float64 {
		g := gorgonia.NewGraph()
		m := model(nn.NewScope(g, d.p).DType(dtype))
		ids := tensor.New(tensor.WithShape(1, len(tokens)), tensor.WithBacking(slices.Clone(tokens)))
		logits := must(m.Forward(on(gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, len(tokens)),
			gorgonia.WithName("tokens"), gorgonia.WithValue(ids)))))
		evaluate(t, g)
		all := floats(t, logits.Value())
		return all[len(all)-decoderVocab:]
	}
	return d
}

// TestDecoder feeds tokens singly and in pieces until the window was full several times, and
// compares the logits with those of the whole window without a cache.
func TestDecoder(t *testing.T) {
	slow.Race(t)
	for name := range decoderModels {
		for _, c := range []struct {
			dtype    tensor.Dtype
			capacity int
			pieces   []int
		}{
			{tensor.Float64, 80, []int{1, 1, 3, 8, 9, 1, 40, 17, 1, 1, 73, 79, 80, 1, 200, 1}},
			{tensor.Float32, 80, []int{70, 1, 1, 9}},
			{tensor.Float64, 7, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 1}},
			{tensor.Float64, 1, []int{1, 1, 3}},
		} {
			t.Run(fmt.Sprintf("%s/%v/%d", name, c.dtype, c.capacity), func(t *testing.T) {
				d := newDecoded(t, name, c.dtype, c.capacity)
				var window []int
				at := 0
				for i, n := range c.pieces {
					tokens := make([]int, n)
					for j := range tokens {
						tokens[j] = int(word("tokens", at)) % decoderVocab
						at++
					}
					logits, err := d.Logits(tokens)
					if err != nil {
						t.Fatalf("piece %d: %v", i, err)
					}
					window = append(window, tokens...)
					if len(window) > c.capacity {
						window = window[len(window)-max(c.capacity/2, min(n, c.capacity)):]
					}
					if !slices.Equal(d.Window(), window) || d.Len() != len(window) || d.Capacity() != c.capacity {
						t.Fatalf("after piece %d of %d tokens the window is %v (%d of %d), want %v", i, n, d.Window(), d.Len(), d.Capacity(), window)
					}
					compare(t, fmt.Sprintf("the logits after piece %d of %d tokens", i, n), c.dtype, logits, d.uncache(window), 0)
				}
			})
		}
	}
}

// A window that is full again and again takes no more memory over 10,000 tokens than the first ones
// did.
func TestDecoderKeepsItsMemory(t *testing.T) {
	slow.Race(t)
	more := 10_000
	if testing.Short() {
		more = 500
	}
	for _, name := range []string{"gpt", "llama, gqa"} {
		d := newDecoded(t, name, tensor.Float32, 80)
		heap := func(tokens int) uint64 {
			for i := range tokens {
				if _, err := d.Logits([]int{i % decoderVocab}); err != nil {
					t.Fatal(err)
				}
			}
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		if first, last := heap(500), heap(more); last > first+256<<10 {
			t.Errorf("%s: the heap was %d bytes after 500 tokens and is %d after %d more", name, first, last, more)
		}
	}
}

// Texts of different lengths in one batch are each predicted as alone: when they begin, rest,
// outgrow their window, and when another takes the place of one.
func TestBatchDecoder(t *testing.T) {
	slow.Race(t)
	for name := range decoderModels {
		t.Run(name, func(t *testing.T) {
			const batch, capacity = 3, 40
			d := newDecoded(t, name, tensor.Float64, capacity)
			b, err := nn.NewBatchDecoder(batch, nn.DecoderConfig{Parameters: d.p, Capacity: capacity, Model: func(s *nn.Scope) nn.CachedModel {
				return decoderModels[name](s.DType(tensor.Float64))
			}})
			if err != nil {
				t.Fatal(err)
			}
			windows, at := make([][]int, batch), 0
			for round, pieces := range [][batch]int{
				{17, 1, 5}, {1, 1, 1}, {0, 3, 1}, {1, 0, 0}, {9, 9, 9}, {0, 0, 0}, {20, 1, 1}, {-1, 1, 1}, {6, 1, 40}, {1, 1, 1}, {50, 1, 1}, {1, 30, 1},
			} {
				tokens := make([][]int, batch)
				for text, n := range pieces {
					if n < 0 { // another text
						if err := b.Truncate(text, 0); err != nil {
							t.Fatal(err)
						}
						windows[text] = nil
						continue
					}
					for range n {
						tokens[text] = append(tokens[text], int(word("batch", at))%decoderVocab)
						at++
					}
					windows[text] = append(windows[text], tokens[text]...)
					if len(windows[text]) > capacity {
						windows[text] = windows[text][len(windows[text])-max(capacity/2, min(n, capacity)):]
					}
				}
				logits, err := b.Logits(tokens)
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				for text, n := range pieces {
					if !slices.Equal(b.Window(text), windows[text]) {
						t.Fatalf("after round %d the window of text %d is %v, want %v", round, text, b.Window(text), windows[text])
					}
					if n <= 0 {
						if logits[text] != nil {
							t.Errorf("round %d: text %d rests and has logits", round, text)
						}
						continue
					}
					compare(t, fmt.Sprintf("the logits of text %d after round %d", text, round), tensor.Float64, logits[text], d.uncache(windows[text]), 0)
				}
			}
			b.Reset()
			if b.Batch() != batch || b.Capacity() != capacity || len(b.Window(1)) != 0 {
				t.Errorf("after Reset there are %d texts of %d, the second is %v", b.Batch(), b.Capacity(), b.Window(1))
			}
		})
	}
}

func TestBatchDecoderErrors(t *testing.T) {
	p := nn.NewParameters(1)
	config := nn.DecoderConfig{Parameters: p, Capacity: 8, Model: func(s *nn.Scope) nn.CachedModel { return decoderModels["gpt"](s) }}
	b, err := nn.NewBatchDecoder(2, config)
	if err != nil {
		t.Fatal(err)
	}
	_, none := nn.NewBatchDecoder(0, config)
	_, few := b.Logits([][]int{{1}})
	_, token := b.Logits([][]int{{1}, {decoderVocab}})
	_, zero := (&nn.BatchDecoder{}).Logits(nil)
	for _, c := range []struct {
		err  error
		want string
	}{
		{none, "BatchDecoder: batch is 0, it needs to be at least 1"},
		{few, "BatchDecoder: there are tokens of 1 texts, it needs those of the batch of 2"},
		{token, "BatchDecoder: "},
		{zero, "BatchDecoder: it is a zero value, it needs to be what NewDecoder or NewBatchDecoder gave"},
		{b.Truncate(2, 0), "BatchDecoder: text is 2, it needs to be at least 0 and less than the batch of 2"},
		{b.Truncate(0, 1), "BatchDecoder: 1 tokens of text 0 are to stay, it needs to be from 0 to the window's 0"},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// A decoder that goes back says of what comes next what one says that was never there.
func TestDecoderTruncate(t *testing.T) {
	d := newDecoded(t, "llama, gqa", tensor.Float64, 0)
	for _, step := range []struct{ keep, add int }{{0, 5}, {3, 4}, {7, 1}, {1, 1}, {0, 2}} {
		if err := d.Truncate(step.keep); err != nil || d.Len() != step.keep {
			t.Fatalf("%d tokens stay of %d: %v", d.Len(), step.keep, err)
		}
		tokens := make([]int, step.add)
		for i := range tokens {
			tokens[i] = (step.keep*5 + i*3 + step.add) % decoderVocab
		}
		logits, err := d.Logits(tokens)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("%d tokens after %d that stayed", step.add, step.keep), tensor.Float64, logits, d.uncache(d.Window()), 0)
	}
	want := "Decoder: 3 tokens are to stay, it needs to be from 0 to the window's 2"
	if err := d.Truncate(3); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestDecoderSharesParameters checks that a decoder sees what training changes, without being built
// anew.
func TestDecoderSharesParameters(t *testing.T) {
	d := newDecoded(t, "gpt", tensor.Float64, 0)
	tokens := []int{4, 2, 0, 7}
	before, err := d.Logits(tokens)
	if err != nil {
		t.Fatal(err)
	}
	before = slices.Clone(before)
	for _, name := range d.p.Names() {
		for i, x := range d.p.Value(name).Float64s() {
			d.p.Value(name).Float64s()[i] = x*0.9 + 0.01
		}
	}
	d.Reset()
	after, err := d.Logits(tokens)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(before, after) {
		t.Error("the logits are those of the old parameters")
	}
	compare(t, "the logits after a change", tensor.Float64, after, d.uncache(tokens), 0)
}

// emptyModel is a model without parameters.
type emptyModel struct{ nn.CachedModel }

func (emptyModel) NewCaches(int, int) ([]*ops.KVCache, error) { return nil, nil }

func TestDecoderErrors(t *testing.T) {
	build := func(capacity int, model func(s *nn.Scope) nn.CachedModel) error {
		return failure(nn.NewDecoder(nn.DecoderConfig{Parameters: nn.NewParameters(1), Capacity: capacity, Model: model}))
	}
	of := func(name string) func(s *nn.Scope) nn.CachedModel {
		return func(s *nn.Scope) nn.CachedModel { return decoderModels[name](s) }
	}
	checkError(t, failure(nn.NewDecoder(nn.DecoderConfig{Model: of("gpt")})), "Decoder: parameters is nil, it needs to be those of the model")
	checkError(t, build(0, nil), "Decoder: model is nil, it needs to be a function")
	checkError(t, build(0, func(*nn.Scope) nn.CachedModel { return nil }), "Decoder: model gave nil, it needs to give a model")
	err := build(0, func(s *nn.Scope) nn.CachedModel { return nn.NewGPT(s, nn.GPTConfig{}) })
	if err == nil || !strings.Contains(err.Error(), "decoder_test.go:") || !strings.HasSuffix(err.Error(), "GPT: vocab is 0, it needs to be at least 1") {
		t.Errorf("a model that cannot be made: %v", err)
	}
	checkError(t, build(-1, of("gpt")), "Decoder: capacity is -1, it needs to be positive, or 0 for the model's context")
	checkError(t, build(81, of("gpt")), "Decoder: GPT: capacity is 81, it needs to be at most the context's 80")
	checkError(t, build(0, of("llama")), "Decoder: capacity is 0, it needs to be given for a model whose context has no limit")
	checkError(t, build(4, func(*nn.Scope) nn.CachedModel { return emptyModel{} }),
		"Decoder: model has no parameters, it needs at least one, which tells where it computes")

	d := newDecoded(t, "gpt", tensor.Float64, 0)
	checkError(t, failure(d.Logits(nil)), "Decoder: tokens is empty, it needs at least one")
	if _, err := d.Logits([]int{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	// The bad token is in the second of two graphs that run.
	if _, err := d.Logits([]int{1, 2, 3, 4, 5, 6, 7, 8, decoderVocab}); err == nil || d.Len() != 0 {
		t.Errorf("a token beyond the vocabulary gives %v and leaves %d tokens in the window, want an error and none", err, d.Len())
	} else {
		t.Log(err)
	}
	logits, err := d.Logits([]int{5})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "the logits after an error", tensor.Float64, logits, d.uncache([]int{5}), 0)
}

func TestForwardCachedErrors(t *testing.T) {
	gpt := func(s *nn.Scope) (m *nn.LanguageModel, tokens nn.Tensor, caches []*ops.KVCache) {
		m = nn.NewGPT(s, nn.GPTConfig{Vocab: 13, Context: 9, Layers: 2, Heads: 3, Dim: 12})
		caches, err := m.NewCaches(1, 9)
		if err != nil {
			t.Fatal(err)
		}
		return m, on(integers(s.Graph(), "tokens", 13, 1, 4)), caches
	}
	attention := func(s *nn.Scope, c nn.MultiHeadAttentionConfig) (*nn.MultiHeadAttention, nn.Tensor, *ops.KVCache) {
		cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: tensor.Float32, Batch: 1, Heads: 3, HeadDim: 4, Capacity: 9})
		if err != nil {
			t.Fatal(err)
		}
		c.Dim = 12
		return nn.NewMultiHeadAttention(s, c), on(input(s.Graph(), tensor.Float32, "x", 1, 4, 12)), cache
	}
	checkScope(t, "GPT: tokens is a zero Tensor, it needs to be one of the model's", func(s *nn.Scope) {
		m, tokens, caches := gpt(s)
		m.ForwardCached(nn.Tensor{}, tokens, caches)
	})
	checkScope(t, "Stack: there are 1 caches, it needs one for each of the 2 blocks", func(s *nn.Scope) {
		m, tokens, caches := gpt(s)
		m.ForwardCached(tokens, tokens, caches[:1])
	})
	checkScope(t, "PositionalEmbedding: positions is a zero Tensor, it needs to be one of the model's", func(s *nn.Scope) {
		m, tokens, caches := gpt(s)
		m.ForwardCached(tokens, nn.Tensor{}, caches)
	})
	checkScope(t, "PositionalEmbedding: positions has shape [1 5], it needs one for each of x's tokens: [1 4]", func(s *nn.Scope) {
		m, tokens, caches := gpt(s)
		m.ForwardCached(tokens, on(integers(s.Graph(), "more", 9, 1, 5)), caches)
	})
	const cross, sees = "MultiHeadAttention: Cross is set, a cache is for self-attention",
		"MultiHeadAttention: Options.Causal is NotCausal, a cache is for attention that does not see the future"
	for want, c := range map[string]nn.MultiHeadAttentionConfig{cross: {Heads: 3, Cross: true}, sees: {Heads: 2}} {
		checkScope(t, want, func(s *nn.Scope) {
			m, x, cache := attention(s, c)
			checkError(t, failure(m.NewCache(1, 4)), want)
			m.ForwardCached(x, cache)
		})
	}
	checkScope(t, "MultiHeadAttention: cache is nil, it needs to be one of NewCache", func(s *nn.Scope) {
		m, x, _ := attention(s, nn.MultiHeadAttentionConfig{Heads: 2, Options: causal})
		m.ForwardCached(x, nil)
	})
	checkScope(t, "CachedAttentionQKV: k has 2 heads of size 6, the cache holds 3 of size 4", func(s *nn.Scope) {
		m, x, cache := attention(s, nn.MultiHeadAttentionConfig{Heads: 2, Options: causal})
		checkError(t, failure(m.NewCache(1, 0)), "KVCache: capacity is 0, it needs to be at least 1")
		m.ForwardCached(x, cache)
	})
}
