package pretrained

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

var ggufFolder = flag.String("gguf", "", "a folder that TestGGUF leaves its files in, for another program to read")

// ggufConfigs are models of all families that are written as GGUF.
var ggufConfigs = map[string]string{
	"llama": blockConfigs["llama"],
	"llama3": `{"model_type": "llama", "vocab_size": 99, "max_position_embeddings": 131072, "hidden_size": 128, "intermediate_size": 256,
		"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
		"tie_word_embeddings": true, "attention_bias": true,
		"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}`,
	"mistral": `{"model_type": "mistral", "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "sliding_window": null}`,
	"qwen2": `{"model_type": "qwen2", "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}`,
	"qwen3": `{"model_type": "qwen3", "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "tie_word_embeddings": true}`,
	"phi3": blockConfigs["phi3"],
	"gemma": `{"model_type": "gemma", "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}`,
	"gemma2": `{"model_type": "gemma2", "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8,
		"rms_norm_eps": 1e-6, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}`,
}

// A model that was written as GGUF is read as it was: in F32 and F16 bit by bit, and as packed
// weights as those of its blocks. Files that are written of it again are the same.
func TestGGUF(t *testing.T) {
	slow.Race(t)
	slow.Emulated(t)
	tokens := []int{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	for name, config := range ggufConfigs {
		m := load(t, randomFolder(t, config), Options{})
		for _, n := range m.Parameters().Names() {
			if v := m.Parameters().Value(n); v.Dims() == 2 {
				v.Float32s()[1] = -1e-9 // is -0 in F16
			}
		}
		folder := *ggufFolder
		if folder == "" {
			folder = t.TempDir()
		}
		want := floats64(lastLogits(t, m, tokens))
		for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K} {
			what := fmt.Sprintf("%s in %v", name, kind)
			path := filepath.Join(folder, name+"."+kind.String()+".gguf")
			if err := m.SaveGGUF(path, GGUFOptions{Type: kind, Metadata: map[string]any{"general.name": "small", "tokenizer.ggml.model": "none"}}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			again := load(t, path, Options{})
			if kind == gguf.F32 {
				near(t, what, lastLogits(t, again, tokens), want, 1e-6)
			}
			second := filepath.Join(t.TempDir(), "again.gguf")
			if err := again.SaveGGUF(second, GGUFOptions{Type: kind, Metadata: map[string]any{"general.name": "small", "tokenizer.ggml.model": "none"}}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if kind != gguf.Q4_K && kind != gguf.Q6_K { // whose numbers are rounded again
				first, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if other, err := os.ReadFile(second); err != nil || !bytes.Equal(first, other) {
					t.Errorf("%s: written again it is another file: %v", what, err)
				}
			}
			if again.Family() != m.Family() && name != "mistral" || again.Metadata()["general.name"] != "small" {
				t.Errorf("%s: it is a %s with %v", what, again.Family(), again.Metadata())
			}
			if dtype := map[gguf.Type]tensor.Dtype{gguf.Q8_0: ops.Int8, gguf.Q4_0: ops.Int4}[kind]; dtype != (tensor.Dtype{}) {
				kept := load(t, path, Options{Weights: dtype})
				near(t, what+", kept so", lastLogits(t, kept, tokens), floats64(lastLogits(t, again, tokens)), 1e-5)
			}
			// A folder of what was read is the model, too.
			saved := t.TempDir()
			if err := again.Save(saved, SaveOptions{}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if a, b := lastLogits(t, load(t, saved, Options{}), tokens), lastLogits(t, again, tokens); !slices.Equal(a, b) {
				t.Errorf("%s: saved as a folder it gives other logits", what)
			}
		}
	}
}

// What GGUF has no place for is refused, and so are files of other models.
func TestGGUFErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	save := func(config string) error { return randomModel(t, config).SaveGGUF(path, GGUFOptions{}) }
	llama := blockConfigs["llama"]
	for want, err := range map[string]error{
		"a gpt2 is not written as GGUF":         save(blockConfigs["gpt2"]),
		"its linear layers have biases":         save(strings.Replace(llama, "{", `{"mlp_bias": true, `, 1)),
		"llama.cpp has no place for in a llama": save(strings.Replace(llama, `"model_type": "llama", "architectures": ["LlamaForCausalLM"]`, `"model_type": "mistral", "sliding_window": 8`, 1)),
		"attention's scale is":                  save(strings.Replace(ggufConfigs["gemma2"], `"query_pre_attn_scalar": 16`, `"query_pre_attn_scalar": 25`, 1)),
		"type is Q5_K, it needs to be one":      randomModel(t, llama).SaveGGUF(path, GGUFOptions{Type: 13}),
		"a int, which the format does not have": randomModel(t, llama).SaveGGUF(path, GGUFOptions{Metadata: map[string]any{"a": 1}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	if err := save(llama); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string][2]string{
		`general.architecture is "mamba"`:      {"\x05\x00\x00\x00\x00\x00\x00\x00llama", "\x05\x00\x00\x00\x00\x00\x00\x00mamba"},
		"llama.block_count is missing":         {"llama.block_count", "llama.blocks_coun"},
		"has no tensor \"output_norm.weight\"": {"output_norm.weight", "output_nurm.weight"},
		"the config asks for":                  {"llama.embedding_length\x04\x00\x00\x00\x40", "llama.embedding_length\x04\x00\x00\x00\x50"},
	} {
		changed := bytes.Replace(content, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, content) {
			t.Errorf("%q is not in the file", change[0])
		}
		if err := os.WriteFile(path, changed, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
}

// What metadata asks for beside the sizes is computed as llama.cpp computes it, or refused by its
// key.
func TestGGUFMetadata(t *testing.T) {
	read := func(config string, metadata map[string]any) (*Model, error) {
		path := filepath.Join(t.TempDir(), "x.gguf")
		if err := randomModel(t, config).SaveGGUF(path, GGUFOptions{Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
		return Load(path, Options{})
	}
	for key, value := range map[string]any{
		"llama.logit_scale": float32(2), "llama.attention.causal": false, "llama.expert_count": uint32(8),
		"llama.rope.scaling.attn_factor": float32(1.5), "llama.rope.scaling.type": "yarn", "llama.nobody_knows": "x",
	} {
		if _, err := read(ggufConfigs["llama"], map[string]any{key: value}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s of %v: %v, want an error that names it", key, value, err)
		}
	}
	both := map[string]any{"llama.rope.scaling.factor": float32(4)}
	if _, err := read(ggufConfigs["llama3"], both); err == nil || !strings.Contains(err.Error(), "beside the tensor rope_freqs.weight") {
		t.Errorf("divisors and a factor: %v", err)
	}
	for _, metadata := range []map[string]any{
		{"llama.attention.causal": true, "llama.expert_count": uint32(0), "llama.rope.scaling.type": "none", "llama.rope.scaling.factor": float32(4)},
		{"llama.rope.scaling.factor": float32(4)}, {"llama.rope.scale_linear": float32(4)},
		{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(4)},
	} {
		m, err := read(ggufConfigs["llama"], metadata)
		if err != nil {
			t.Errorf("%v: %v", metadata, err)
			continue
		}
		want := 4.0
		if metadata["llama.rope.scaling.type"] == "none" {
			want = 0
		}
		if have := m.arch.decoder.rope[0].Scaling; have != want {
			t.Errorf("%v: RoPE is stretched %v times, want %v", metadata, have, want)
		}
	}
	// llama.cpp knows the largest Gemma 2 by its layers.
	large := strings.NewReplacer(`"num_hidden_layers": 2`, `"num_hidden_layers": 46`, `"hidden_size": 64`, `"hidden_size": 96`).Replace(ggufConfigs["gemma2"])
	m, err := read(strings.Replace(large, `"query_pre_attn_scalar": 16`, `"query_pre_attn_scalar": 24`, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if scale := m.arch.decoder.Block.Attention.Options.Scale; math.Abs(scale*math.Sqrt(24)-1) > 1e-9 {
		t.Errorf("the scale of a Gemma 2 of 46 layers is %v, want 1/√24", scale)
	}
	if err := randomModel(t, large).SaveGGUF(filepath.Join(t.TempDir(), "x.gguf"), GGUFOptions{}); err == nil || !strings.Contains(err.Error(), "attention's scale is 0.25") {
		t.Errorf("a Gemma 2 of 46 layers with the scale of a head: %v", err)
	}
}

// An embedding without axes is an error.
func TestGGUFScalarEmbedding(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	var file bytes.Buffer
	err := gguf.Write(&file, map[string]any{"general.architecture": "llama"}, []gguf.Tensor{
		{Name: "token_embd.weight", Shape: []int{1}, Data: func(w io.Writer) error { _, err := w.Write(make([]byte, 4)); return err }},
	})
	if err != nil {
		t.Fatal(err)
	}
	const name = "token_embd.weight"
	content := bytes.Replace(file.Bytes(), []byte(name+"\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), []byte(name+"\x00\x00\x00\x00"), 1)
	if err := os.WriteFile(path, append(content, make([]byte, 64)...), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, Options{}); err == nil || !strings.Contains(err.Error(), `tensor "token_embd.weight" has shape [], it needs two axes`) {
		t.Errorf("the error is %v", err)
	}
}

// FuzzGGUF loads files of which bytes are anything.
func FuzzGGUF(f *testing.F) {
	for _, name := range []string{"llama", "gemma2", "phi3", "llama3"} {
		path := filepath.Join(f.TempDir(), "x.gguf")
		m, err := Load(randomFolder(f, ggufConfigs[name]), Options{})
		if err != nil {
			f.Fatal(err)
		}
		if err := m.SaveGGUF(path, GGUFOptions{Type: gguf.Q8_0}); err != nil {
			f.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content[:min(len(content), 8<<10)], len(content)) // what is behind is the weights' numbers
	}
	f.Fuzz(func(t *testing.T, content []byte, size int) {
		path := filepath.Join(t.TempDir(), "x.gguf")
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(min(max(size, 0), 1<<20))); err != nil {
			t.Fatal(err)
		}
		if m, err := Load(path, Options{}); err == nil {
			t.Logf("loaded a %s", m.Family())
		}
	})
}
