package pretrained

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// blockConfigs are models all of whose weights have whole blocks.
var blockConfigs = map[string]string{
	"gpt2": `{"model_type": "gpt2", "vocab_size": 99, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}`,
	"llama": `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64,
		"intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}`,
	"phi3": `{"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "vocab_size": 99, "max_position_embeddings": 64, "hidden_size": 64,
		"original_max_position_embeddings": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
		"rms_norm_eps": 1e-5, "rope_theta": 10000.0}`,
}

// randomFolder writes a folder of a config with random weights in float32.
func randomFolder(t testing.TB, config string) string {
	t.Helper()
	m := randomModel(t, config)
	folder := t.TempDir()
	if err := m.Save(folder, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return folder
}

func randomModel(t testing.TB, config string) *Model {
	t.Helper()
	family, arch, err := describe([]byte(config), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{family: family, config: []byte(config), arch: arch, parameters: nn.NewParameters(3)}
	s := m.scope()
	m.LanguageModel(s)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return m
}

// lastLogits are those of the whole model after some tokens.
func lastLogits(t *testing.T, m *Model, tokens []int) []float32 {
	t.Helper()
	s := m.scope()
	logits := m.LanguageModel(s).Forward(ids(s, "tokens", [][]int{tokens}))
	run(t, s)
	all := value(t, logits).Data().([]float32)
	return all[len(all)-len(all)/len(tokens):]
}

func floats64(x []float32) []float64 {
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return wide
}

// Weights that are packed while they are read are what packing them afterwards gives, and the model
// computes with what they count as.
func TestPackedWhileLoading(t *testing.T) {
	slow.Race(t)
	slow.Emulated(t)
	tokens := []int{3, 1, 4, 1, 5, 9, 2, 6}
	for name, config := range blockConfigs {
		folder := randomFolder(t, config)
		wide := load(t, folder, Options{})
		for _, dtype := range []tensor.Dtype{ops.Int8, ops.Int4, ops.NF4} {
			for _, embeddings := range []tensor.Dtype{{}, ops.BFloat16, dtype} {
				last := int64(-1)
				m := load(t, folder, Options{Weights: dtype, Embeddings: embeddings, Progress: func(done, total int64) {
					if done < last || done > total {
						t.Errorf("%s in %v: read %d of %d bytes after %d", name, dtype, done, total, last)
					}
					last = done
				}})
				for _, l := range m.arch.links {
					for _, p := range l.parts {
						have, want := m.Parameters().Value(p.ours), wide.Parameters().Value(p.ours)
						switch {
						case l.linear:
							turned, err := ops.Transposed(want)
							if err != nil {
								t.Fatal(err)
							}
							packed, err := ops.Packed(turned, dtype)
							if err != nil {
								t.Fatal(err)
							}
							if have.Dtype() != dtype || !bytes.Equal(ops.PackedBytes(have), ops.PackedBytes(packed)) {
								t.Errorf("%s in %v: %s is another, of %v", name, dtype, p.ours, have.Dtype())
							}
						case (l.embedding || p.ours == "head.weight") && embeddings != tensor.Dtype{}:
							if have.Dtype() != embeddings {
								t.Errorf("%s in %v: %s is %v, want %v", name, dtype, p.ours, have.Dtype(), embeddings)
							}
						case have.Dtype() != tensor.Float32:
							t.Errorf("%s in %v: %s is %v", name, dtype, p.ours, have.Dtype())
						}
					}
				}
				again := t.TempDir()
				if err := m.Save(again, SaveOptions{}); err != nil {
					t.Fatal(err)
				}
				want := lastLogits(t, load(t, again, Options{}), tokens)
				near(t, fmt.Sprintf("%s in %v", name, dtype), want, floats64(lastLogits(t, m, tokens)), 1e-5)
				d, err := m.NewDecoder(16)
				if err != nil {
					t.Fatal(err)
				}
				cached, err := d.Logits(tokens)
				if err != nil {
					t.Fatal(err)
				}
				near(t, fmt.Sprintf("%s in %v, decoded", name, dtype), want, cached, 1e-5)
			}
		}
	}
}

// A LoRA is trained beside packed weights, and is not merged into them.
func TestLoRABesidePacked(t *testing.T) {
	m := load(t, randomFolder(t, blockConfigs["llama"]), Options{Weights: ops.NF4})
	if err := m.AddLoRA(LoRA{Rank: 2, Alpha: 4}); err != nil {
		t.Fatal(err)
	}
	s := m.scope()
	loss := m.LanguageModel(s).Loss(ids(s, "tokens", [][]int{{3, 1, 4}}), ids(s, "targets", [][]int{{1, 4, 1}}))
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	trained := s.Trainable()
	if _, err := gorgonia.Grad(loss.Node(), trained...); err != nil || len(trained) == 0 {
		t.Fatalf("%d parameters are trained: %v", len(trained), err)
	}
	if err := m.Parameters().MergeLoRA(); err == nil || !strings.Contains(err.Error(), "is kept in NF4") {
		t.Errorf("merging: %v", err)
	}
}

// A model whose weights have no whole blocks is refused, and so is one with a weight that is not
// finite.
func TestPackedWhileLoadingErrors(t *testing.T) {
	_, err := Load("testdata/llama2", Options{Weights: ops.NF4})
	if err == nil || !strings.Contains(err.Error(), "cannot be NF4 in blocks, they need to be a multiple of 64") {
		t.Errorf("odd weights: %v", err)
	}
	folder := randomFolder(t, blockConfigs["llama"])
	path := filepath.Join(folder, weightsFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 9; i++ { // an infinity, in the last tensor
		copy(content[len(content)-512*i:], []byte{0, 0, 0x80, 0x7f})
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []tensor.Dtype{ops.Int8, ops.Int4, ops.NF4} {
		if _, err := Load(folder, Options{Weights: dtype, Embeddings: dtype}); err == nil || !strings.Contains(err.Error(), "an element is not finite") {
			t.Errorf("an infinity in %v: %v", dtype, err)
		}
	}
}
