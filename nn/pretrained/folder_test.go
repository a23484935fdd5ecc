package pretrained

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// allTensors are those of a model's one file.
func allTensors(t *testing.T, model string) safetensors.Tensors {
	t.Helper()
	file, err := safetensors.Open(filepath.Join("testdata", model, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, err := file.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// copyOf is a folder with a model's config and tensors.
func copyOf(t *testing.T, model string, tensors safetensors.Tensors) string {
	t.Helper()
	folder := t.TempDir()
	config, err := os.ReadFile(filepath.Join("testdata", model, configFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, configFile), config, 0o644); err != nil {
		t.Fatal(err)
	}
	shard(tensors)(t, folder)
	return folder
}

// A tensor that the config ties to another may stand in a file too, as that one.
func TestTiedTensors(t *testing.T) {
	for _, c := range []struct{ model, head, of string }{
		{"gpt2", "lm_head.weight", "transformer.wte.weight"},
		{"llama3", "lm_head.weight", "model.embed_tokens.weight"},
		{"bert-masked", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
		{"bert-masked", "cls.predictions.decoder.bias", "cls.predictions.bias"},
		{"roberta-masked", "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
		{"roberta-masked", "lm_head.decoder.bias", "lm_head.bias"},
	} {
		t.Run(c.model+" "+c.head, func(t *testing.T) {
			all := allTensors(t, c.model)
			at := slices.IndexFunc(all, func(x safetensors.Tensor) bool { return x.Name == c.of })
			values := slices.Clone(all[at].Value.Float32s())
			head := func(values []float32, shape ...int) safetensors.Tensors {
				return append(slices.Clone(all), safetensors.Tensor{Name: c.head, Value: data.Floats(values, shape...)})
			}
			shape := all[at].Value.Shape()
			load(t, copyOf(t, c.model, head(values, shape...)), Options{})

			other := slices.Clone(values)
			other[len(other)-1]++
			want := "tensor \"" + c.head + "\" differs from \"" + c.of + "\""
			for _, tensors := range []safetensors.Tensors{head(other, shape...), head(values, append(shape.Clone(), 1)...)} {
				if _, err := Load(copyOf(t, c.model, tensors), Options{}); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want an error with %s", err, want)
				}
			}
		})
	}
}

// A file of all tensors is read in the place of what an index beside it lists.
func TestIndexBesideAFile(t *testing.T) {
	all := allTensors(t, "gpt2")
	folder := copyOf(t, "gpt2", all)
	index := `{"weight_map": {"transformer.wte.weight": "model-00001-of-00001.safetensors"}}`
	if err := os.WriteFile(filepath.Join(folder, indexFile), []byte(index), 0o644); err != nil {
		t.Fatal(err)
	}
	have, want := load(t, folder, Options{}).Parameters(), load(t, "testdata/gpt2", Options{}).Parameters()
	for _, name := range want.Names() {
		if !slices.Equal(have.Value(name).Float32s(), want.Value(name).Float32s()) {
			t.Errorf("%s is not that of the file", name)
		}
	}
}

// A graph of a model evaluates, unless it was told to train.
func TestGraphsEvaluate(t *testing.T) {
	for _, train := range []bool{false, true} {
		m := load(t, "testdata/gpt2", Options{}) // its dropouts are 0.1
		s := m.scope()
		if train {
			ops.ModeOf(s.Graph()).Train(1)
		}
		want := readGolden(t, "gpt2")
		logits := m.LanguageModel(s).Forward(ids(s, "tokens", want.Tokens))
		machine := gorgonia.NewTapeMachine(s.Graph())
		defer machine.Close()
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		have := value(t, logits).(*tensor.Dense).Float32s()
		if !train {
			near(t, "the logits", have, want.Logits, 1e-5)
		} else if distance(have, want.Logits) < 0.01 {
			t.Error("a graph that trains drops nothing")
		}
	}
}

// distance is the largest difference.
func distance(have []float32, want []float64) (d float64) {
	for i := range want {
		d = max(d, float64(have[i])-want[i], want[i]-float64(have[i]))
	}
	return d
}

// A panic in one of the goroutines that read weights, such as that of the caller's progress, is
// Load's error.
func TestPanicsWhileLoading(t *testing.T) {
	folder := randomFolder(t, blockConfigs[slices.Sorted(maps.Keys(blockConfigs))[0]])
	calls := 0
	m, err := Load(folder, Options{Progress: func(done, total int64) {
		if calls++; calls == 3 {
			panic("a fault")
		}
	}})
	if m != nil || err == nil || !strings.Contains(err.Error(), "reading weights panicked: a fault") {
		t.Errorf("the error is %v, want the panic", err)
	}
}
