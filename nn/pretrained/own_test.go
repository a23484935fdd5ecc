package pretrained

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/gorgonia"
)

// A GPT of one's own, without biases, is written with its tokenizer and read again: its logits are
// the same, bit by bit.
func TestNewGPT2(t *testing.T) {
	config := nn.GPTConfig{Vocab: 300, Context: 16, Layers: 2, Heads: 2, Dim: 8, Dropout: 0.1, NoBias: true, Activation: kernels.GELUErf}
	p := nn.NewParameters(3)
	s := nn.NewScope(gorgonia.NewGraph(), p)
	tokens := [][]int{{3, 1, 4, 1, 5}}
	own := nn.NewGPT(s, config).Forward(ids(s, "tokens", tokens))
	run(t, s)
	want := value(t, own).Data().([]float32)

	m, err := NewGPT2(p, config, 0)
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
		file, err := os.Create(filepath.Join(folder, "tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := tokenizer.WriteHuggingFace(file, tok); err != nil {
			t.Fatal(err)
		}
		file.Close()
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
	for wrong, change := range map[string]func(c *nn.GPTConfig){
		"has options of Attention": func(c *nn.GPTConfig) { c.Attention.SoftCap = 3 },
		"has Block set":            func(c *nn.GPTConfig) { c.Block = func(int, *nn.BlockConfig) {} },
		"activation is Sigmoid":    func(c *nn.GPTConfig) { c.Activation = kernels.Sigmoid },
		"the config asks for":      func(c *nn.GPTConfig) { c.Vocab = 301 },
		"is none of a gpt2":        func(c *nn.GPTConfig) { c.Layers = 1 },
		"blocks.2.attn.qkv.weight": func(c *nn.GPTConfig) { c.Layers = 3 },
	} {
		c := config
		change(&c)
		if _, err := NewGPT2(p, c, -1); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v, want %q in it", err, wrong)
		}
	}
}
