package pretrained

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/gorgonia"
)

// A GPT of one's own, without biases, is written with its tokenizer and read again: its logits are
// the same, bit by bit.
func TestNewModel(t *testing.T) {
	config := nn.GPTConfig{Vocab: 300, Context: 16, Layers: 2, Heads: 2, Dim: 8, Dropout: 0.1, NoBias: true, Activation: kernels.GELUErf}
	p := nn.NewParameters(3)
	s := nn.NewScope(gorgonia.NewGraph(), p)
	tokens := [][]int{{3, 1, 4, 1, 5}}
	own := nn.NewGPT(s, config).Forward(ids(s, "tokens", tokens))
	run(t, s)
	want := value(t, own).Data().([]float32)

	m, err := NewModel(p, config.Model(), 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if *update {
		folder = filepath.Join("testdata", "written", "own-gpt2")
	}
	if err := m.Save(folder, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("func main() { println(1) }\n", 40) + "Größe, 字"
	gpt2, err := tokenizer.TrainGPT2(text, 270)
	if err != nil {
		t.Fatal(err)
	}
	characters, err := tokenizer.NewCharacters(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []tokenizer.Tokenizer{tokenizer.Bytes{}, characters, gpt2} {
		if err := tokenizer.WriteFolder(folder, tok); err != nil {
			t.Fatal(err)
		}
		read, err := tokenizer.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		a, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := read.Encode(text); err != nil || !slices.Equal(a, b) {
			t.Errorf("the tokens of a %T are %v once it was written, %v, want %v", tok, b, err, a)
		}
		if have, err := read.Decode(a); err != nil || have != text {
			t.Errorf("a %T decodes %q, %v", tok, have, err)
		}
	}
	again := load(t, folder, Options{})
	s = again.scope()
	logits := again.LanguageModel(s).Forward(ids(s, "tokens", tokens))
	run(t, s)
	if !slices.Equal(value(t, logits).Data().([]float32), want) {
		t.Error("the logits are others once the model was written and read")
	}
	for wrong, change := range map[string]func(c *nn.LanguageModelConfig){
		"field Block.Attention.Options.SoftCap is 3, a gpt2 needs it to be 0": func(c *nn.LanguageModelConfig) { c.Block.Attention.Options.SoftCap = 3 },
		"field Block.Attention.Options.Window is set":                         func(c *nn.LanguageModelConfig) { c.Block.Attention.Options.Window = &kernels.Window{} },
		"field Change is set": func(c *nn.LanguageModelConfig) { c.Change = func(int, *nn.BlockConfig) {} },
		"field Block.NewMLP is set": func(c *nn.LanguageModelConfig) {
			c.Block.NewMLP = func(*nn.Scope, nn.MLPConfig) nn.Layer { return nil }
		},
		"field Block.Activation is Sigmoid":          func(c *nn.LanguageModelConfig) { c.Block.Activation = kernels.Sigmoid },
		"field TiedHead is false":                    func(c *nn.LanguageModelConfig) { c.TiedHead = false },
		"field EmbeddingNorm is true":                func(c *nn.LanguageModelConfig) { c.EmbeddingNorm = true },
		"field Block.RMSNorm is true, a gpt2":        func(c *nn.LanguageModelConfig) { c.Block.RMSNorm = true },
		"field Block.Attention.RoPE is nil, a llama": func(c *nn.LanguageModelConfig) { c.Positions = false },
		"field Block.Gated is false, a llama":        func(c *nn.LanguageModelConfig) { c.Positions, c.Block.Attention.RoPE = false, &ops.RoPEOptions{} },
		"the config asks for":                        func(c *nn.LanguageModelConfig) { c.Vocab = 301 },
		"is none of a gpt2":                          func(c *nn.LanguageModelConfig) { c.Layers = 1 },
		"blocks.2.attn.qkv.weight":                   func(c *nn.LanguageModelConfig) { c.Layers = 3 },
	} {
		c := config.Model()
		change(&c)
		if _, err := NewModel(p, c, -1); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v, want %q in it", err, wrong)
		}
	}
}

// Models of Llama's shape are written as a llama or a qwen3 and read again, with what a qwen3 does
// not have put into its matrices.
func TestNewModelOfLlama(t *testing.T) {
	tokens := [][]int{{3, 1, 4, 1, 5, 9, 2, 6}}
	for _, c := range []struct {
		family string
		bound  float64 // of the logits; 0 means equal
		change func(c *nn.LanguageModelConfig)
	}{
		{"llama", 0, func(*nn.LanguageModelConfig) {}},
		{"llama", 0, func(c *nn.LanguageModelConfig) { c.TiedHead, c.Block.Attention.KVHeads = true, 2 }},
		{"llama", 0, func(c *nn.LanguageModelConfig) {
			c.Block.Hidden, c.Block.Attention.HeadDim, c.Block.Epsilon = 0, 6, 1e-3
		}},
		{"qwen3", 0, func(c *nn.LanguageModelConfig) {
			c.Block.Attention.QKNorm, c.Block.Attention.RoPE = true, &ops.RoPEOptions{Base: 500}
		}},
		{"llama", 1e-6, func(c *nn.LanguageModelConfig) { c.Block.Gated, c.Block.Activation = false, kernels.ReLUSquared }},
		{"llama", 1e-6, func(c *nn.LanguageModelConfig) { c.EmbeddingNorm = true }},
		{"qwen3", 1e-6, func(c *nn.LanguageModelConfig) {
			c.EmbeddingNorm, c.Block.Attention.QKNorm, c.Block.Gated, c.Block.Activation = true, true, false, kernels.ReLUSquared
		}},
	} {
		config := nn.LlamaConfig{Vocab: 40, Context: 16, Layers: 2, Heads: 4, Dim: 16, Hidden: 24, Dropout: 0.1}.Model()
		c.change(&config)
		p := nn.NewParameters(5)
		s := nn.NewScope(gorgonia.NewGraph(), p)
		nn.NewLanguageModel(s, config)
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		drawn := rand.New(rand.NewPCG(7, 8))
		for _, name := range p.Names() { // norms that start at 1 would hide what happens to them
			for i, x := range p.Value(name).Float32s() {
				p.Value(name).Float32s()[i] = x + 0.3*float32(drawn.NormFloat64())
			}
		}
		s = nn.NewScope(gorgonia.NewGraph(), p)
		ops.ModeOf(s.Graph()).Evaluate()
		own := nn.NewLanguageModel(s, config).Forward(ids(s, "tokens", tokens))
		run(t, s)
		want := value(t, own).Data().([]float32)
		m, err := NewModel(p, config, -1)
		if err != nil {
			t.Errorf("%+v: %v", config, err)
			continue
		}
		folder := t.TempDir()
		if err := m.Save(folder, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		again := load(t, folder, Options{})
		have := allLogits(t, again, tokens)
		worst, largest := 0.0, 0.0
		for i, x := range want {
			worst = max(worst, math.Abs(float64(have[i]-x)))
			largest = max(largest, math.Abs(float64(x)))
		}
		if again.Family() != c.family || !(worst <= c.bound*largest) {
			t.Errorf("%s of seed 5, %v tokens, %+v: the logits are off by %.1e of %.1f, want %.0e of them", again.Family(), tokens, config, worst, largest, c.bound)
		}
	}
	for wrong, change := range map[string]func(c *nn.LlamaConfig){
		"field Context is 0":                        func(c *nn.LlamaConfig) { c.Context = 0 },
		"field Block.Attention.RoPE.Interleaved is": func(c *nn.LlamaConfig) { c.RoPE.Interleaved = true },
		"field Block.Attention.RoPE.RotaryDim is 2": func(c *nn.LlamaConfig) { c.RoPE.RotaryDim = 2 },
		"parameter embnorm.weight":                  func(c *nn.LlamaConfig) { c.Block = nil },
	} {
		c := nn.LlamaConfig{Vocab: 40, Context: 16, Layers: 2, Heads: 4, Dim: 16}
		change(&c)
		config := c.Model()
		config.EmbeddingNorm = true
		if _, err := NewModel(nn.NewParameters(1), config, -1); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v, want %q in it", err, wrong)
		}
	}
}
