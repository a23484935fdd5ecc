package pretrained

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
)

// bench/pretrained/llamacpp.py is the other side of this file.

var llamaFolder = flag.String("llamacpp", "", "a folder for TestForLlamaCpp")

// llamaSizes are large enough for blocks of 256.
const llamaSizes = `"vocab_size": 320, "max_position_embeddings": 128, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
	"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": false`

var llamaConfigs = map[string]string{
	"llama": `{"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
		"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, ` + llamaSizes + `}`,
	"mistral": `{"model_type": "mistral", "rms_norm_eps": 1e-5, "head_dim": 64, "sliding_window": null, ` + llamaSizes + `}`,
	"qwen2":   `{"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, ` + llamaSizes + `}`,
	"qwen3":   `{"model_type": "qwen3", "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 128, ` + llamaSizes + `}`,
	"phi3":    `{"model_type": "phi3", "rms_norm_eps": 1e-5, "sliding_window": null, "original_max_position_embeddings": 128, ` + llamaSizes + `}`,
	"gemma":   `{"model_type": "gemma", "rms_norm_eps": 1e-6, "head_dim": 64, "hidden_act": "gelu_pytorch_tanh", ` + tied(llamaSizes) + `}`,
	"gemma2": `{"model_type": "gemma2", "rms_norm_eps": 1e-6, "head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": 8,
		"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, ` + tied(llamaSizes) + `}`,
}

func tied(sizes string) string { return strings.Replace(sizes, "false", "true", 1) }

// Models of all families that are written as GGUF lie in the folder behind it, in all types, and
// beside every GGUF file that lies there the logits of some tokens.
func TestForLlamaCpp(t *testing.T) {
	if *llamaFolder == "" {
		t.Skip("needs -llamacpp")
	}
	for name, config := range llamaConfigs {
		m := randomModel(t, config)
		random := rand.New(rand.NewPCG(1, 2))
		for _, parameter := range m.Parameters().Names() {
			if v := m.Parameters().Value(parameter); v.Dims() == 1 { // norms and biases start at one and zero
				for i, x := 0, v.Float32s(); i < len(x); i++ {
					x[i] += float32(0.2 * random.NormFloat64())
				}
			}
		}
		for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K} {
			path := filepath.Join(*llamaFolder, name+".ours."+kind.String()+".gguf")
			if _, err := os.Stat(path); err == nil {
				continue
			}
			if err := m.SaveGGUF(path, GGUFOptions{Type: kind, Metadata: map[string]any{"tokenizer.ggml.model": "none"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(*llamaFolder, "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int, 40)
	for i := range tokens {
		tokens[i] = (i*i*7 + 11*i + 3) % 320
	}
	for _, path := range files {
		m, err := Load(path, Options{})
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(path), err)
			continue
		}
		s := m.scope()
		logits := m.LanguageModel(s).Forward(ids(s, "tokens", [][]int{tokens}))
		run(t, s)
		text, err := json.Marshal(map[string]any{"tokens": tokens, "logits": value(t, logits).Data()})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".json", text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
