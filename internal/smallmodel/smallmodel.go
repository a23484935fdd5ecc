// Package smallmodel makes the folder of a small random model for tests.
package smallmodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/tensor"
)

// Template writes conversations as the models of [Llama] have them.
const Template = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// Size is that of a model.
type Size struct{ Layers, Dim, Hidden, Heads, Context int }

// Llama is [LlamaOf] one layer, as small as can be. Its context is 128 tokens.
func Llama(t testing.TB, chat bool) string {
	t.Helper()
	return LlamaOf(t, chat, Size{Layers: 1, Dim: 16, Hidden: 24, Heads: 2, Context: 128})
}

// LlamaOf is the folder of a Llama, with a tokenizer of package tokenizer's tests, and if asked a
// template of conversations.
func LlamaOf(t testing.TB, chat bool, z Size) string {
	t.Helper()
	folder := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(filepath.Join(root(t), "train/tokenizer/testdata/huggingface/smollm.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	write("tokenizer.json", golden.Tokenizer)
	if chat {
		write("tokenizer_config.json", []byte("{}"))
		write("chat_template.jinja", []byte(Template))
	}
	tok, err := tokenizer.ReadHuggingFace(bytes.NewReader(golden.Tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	write("config.json", fmt.Appendf(nil, `{"model_type": "llama", "vocab_size": %d, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d,
		"num_attention_heads": %d, "max_position_embeddings": %d, "tie_word_embeddings": true, "eos_token_id": 2}`,
		tok.Size(), z.Dim, z.Hidden, z.Layers, z.Heads, z.Context))
	var weights bytes.Buffer
	if err := safetensors.Write(&weights, tensors(tok.Size(), z), nil); err != nil {
		t.Fatal(err)
	}
	write("model.safetensors", weights.Bytes())
	return folder
}

func tensors(vocab int, z Size) safetensors.Tensors {
	random := rand.New(rand.NewPCG(1, 2))
	var list safetensors.Tensors
	add := func(name string, shape ...int) {
		data := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range data {
			data[i] = float32(random.NormFloat64()) * 0.3
		}
		list = append(list, safetensors.Tensor{Name: "model." + name + ".weight", Value: tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))})
	}
	add("embed_tokens", vocab, z.Dim)
	for layer := range z.Layers {
		in := fmt.Sprintf("layers.%d.", layer)
		for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			add(in+"self_attn."+name, z.Dim, z.Dim)
		}
		add(in+"mlp.gate_proj", z.Hidden, z.Dim)
		add(in+"mlp.up_proj", z.Hidden, z.Dim)
		add(in+"mlp.down_proj", z.Dim, z.Hidden)
		add(in+"input_layernorm", z.Dim)
		add(in+"post_attention_layernorm", z.Dim)
	}
	add("norm", z.Dim)
	return list
}

// root is the folder of the module.
func root(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(folder, "go.mod")); missing == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	t.Fatalf("there is no go.mod above the test: %v", err)
	return ""
}
