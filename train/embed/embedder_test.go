package embed

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn/pretrained"
)

// golden is what sentence-transformers makes of texts; see testdata/golden.py.
type golden struct {
	Texts            []string
	Vectors, Queries [][]float64
}

func load(t *testing.T, name string) (*Embedder, golden) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	e, err := Load(filepath.Join("testdata", name), pretrained.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, g
}

func compare(t *testing.T, have [][]float32, want [][]float64) {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("there are %d vectors, want %d", len(have), len(want))
	}
	for i := range want {
		if len(have[i]) != len(want[i]) {
			t.Fatalf("vector %d has %d numbers, want %d", i, len(have[i]), len(want[i]))
		}
		for j, x := range want[i] {
			if !(math.Abs(float64(have[i][j])-x) <= 1e-5) {
				t.Errorf("number %d of vector %d is %v, want %v", j, i, have[i][j], x)
			}
		}
	}
}

// Vectors are those of sentence-transformers, of many texts at once and of one.
func TestEmbed(t *testing.T) {
	for _, name := range []string{"bert", "roberta", "qwen3", "gemma3"} {
		t.Run(name, func(t *testing.T) {
			e, want := load(t, name)
			texts, vectors := want.Texts, want.Vectors
			have, err := e.Embed(texts...)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, have, vectors)
			for i, text := range texts {
				one, err := e.Embed(text)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, one, vectors[i:i+1])
			}
			if want.Queries != nil {
				have, err := e.EmbedWith("query", texts...)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, have, want.Queries)
			}
			if have, err := e.Embed(); err != nil || len(have) != 0 {
				t.Errorf("no texts: %v, %v", have, err)
			}
			if _, err := e.EmbedWith("other", "a"); err == nil || !strings.Contains(err.Error(), `prompt is "other"`) {
				t.Errorf("a prompt that there is not: %v", err)
			}
		})
	}
}

func TestPools(t *testing.T) {
	h := []float32{1, -2, 4, 8, 4, 6} // three tokens
	for way, want := range map[string][2]float64{
		"cls": {1, -2}, "lasttoken": {4, 6}, "max": {4, 8}, "mean": {3, 4}, "mean_sqrt_len_tokens": {9 / math.Sqrt(3), 12 / math.Sqrt(3)},
		"weightedmean": {21.0 / 6, 32.0 / 6},
	} {
		have := pools[way](h, 2)
		for i := range want {
			if math.Abs(have[i]-want[i]) > 1e-12 {
				t.Errorf("%s is %v, want %v", way, have, want)
			}
		}
	}
	if c := Cosine([]float32{3, 0}, []float32{1, 1}); math.Abs(c-math.Sqrt(0.5)) > 1e-12 {
		t.Errorf("the cosine is %v", c)
	}
	if c := Cosine([]float32{0, 0}, []float32{1, 1}); c != 0 {
		t.Errorf("the cosine of a zero vector is %v", c)
	}
}

// Folders that ask for something else are errors that name the file.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ model, file, text, want string }{
		{"bert", "modules.json", `{}`, "modules.json: json"},
		{"bert", "modules.json", `[]`, "modules.json: there is no Pooling"},
		{"bert", "modules.json", `[{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.LSTM", "path": "1_LSTM"}]`, `module 1 is "sentence_transformers.models.LSTM"`},
		{"bert", "modules.json", `[{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Normalize"}]`, `module 1 is "sentence_transformers.models.Normalize"`},
		{"bert", "modules.json", `[{"type": "sentence_transformers.models.Transformer", "path": "0_T"}]`, `module 0 is "sentence_transformers.models.Transformer" in folder "0_T"`},
		{"bert", "modules.json", `[{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling", "path": "../other"}]`, "is not the name of a file in the folder"},
		{"bert", "modules.json", `[{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling", "path": "other"}]`, "other/config.json is missing"},
		{"bert", "modules.json", `[{"type": "custom_st.Transformer"}]`, `module 0 is "custom_st.Transformer"`},
		{"bert", "1_Pooling/config.json", `{"pooling_mode": []}`, "pooling_mode is empty"},
		{"bert", "2_Normalize/config.json", `{"module_input_name": "token_embeddings"}`, `module_input_name is "token_embeddings"`},
		{"bert", "config_sentence_transformers.json", `{"model_type": "SparseEncoder"}`, `model_type is "SparseEncoder"`},
		{"bert", "sentence_bert_config.json", `{"query_length": 9}`, `field "query_length", which is "9", is not supported`},
		{"bert", "sentence_bert_config.json", `{"tokenizer_args": {"padding_side": "left"}}`, `field "tokenizer_args"`},
		{"bert", "sentence_bert_config.json", `{"transformer_task": "fill-mask"}`, `field "transformer_task"`},
		{"bert", "tokenizer_config.json", `{"truncation_side": "up"}`, `truncation_side is "up"`},
		{"bert", "1_Pooling/config.json", `{"pooling_mode": "median"}`, `pooling_mode is "median"`},
		{"bert", "1_Pooling/config.json", `{"pooling_mode": 3}`, `pooling_mode is "3"`},
		{"gemma3", "2_Dense/config.json", `{"in_features": 0}`, "in_features and out_features are 0 and 0"},
		{"gemma3", "2_Dense/config.json", `{"in_features": 16, "out_features": 9}`, "has shape [24 16], the config asks for [9 16]"},
		{"gemma3", "2_Dense/config.json", `{"in_features": 16, "out_features": 24}`, "linear.bias"},
		{"gemma3", "2_Dense/config.json", `{"in_features": 16, "out_features": 24, "activation_function": "x.Y"}`, `activation_function is "x.Y"`},
		{"gemma3", "2_Dense/config.json", `{"in_features": 16, "out_features": 24, "use_residual": true}`, "use_residual is true"},
		{"gemma3", "2_Dense/config.json", `{"in_features": 16, "out_features": 24, "module_input_name": "x"}`, `module_input_name is "x"`},
		{"bert", "config_sentence_transformers.json", `{"default_prompt_name": "x"}`, `default_prompt_name is "x"`},
		{"bert", "sentence_bert_config.json", `{"max_seq_length": 0}`, "max_seq_length is 0"},
		{"bert", "tokenizer.json", `{}`, "tokenizer"},
		{"qwen3", "modules.json", "", "there is no modules.json"},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(filepath.Join("testdata", c.model))); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, filepath.FromSlash(c.file))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if c.text != "" {
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Load(folder, pretrained.Options{}); err == nil || !strings.Contains(filepath.ToSlash(err.Error()), c.want) {
			t.Errorf("%s with %s of %s: %v, want an error with %q", c.model, c.file, c.text, err, c.want)
		}
	}
	var zero Embedder
	if _, err := zero.Embed("a"); err == nil || zero.Close() != nil {
		t.Errorf("a zero Embedder: %v", err)
	}
}

// A prompt that the pooling leaves out is an error, as is a folder of nothing; a bare encoder is
// averaged.
func TestFolders(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("testdata", "bert"))); err != nil {
		t.Fatal(err)
	}
	pooling := filepath.Join(folder, "1_Pooling", "config.json")
	if err := os.WriteFile(pooling, []byte(`{"pooling_mode": "mean", "include_prompt": false}`), 0o644); err != nil {
		t.Fatal(err)
	}
	e, err := Load(folder, pretrained.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.EmbedWith("query", "a"); err == nil || !strings.Contains(err.Error(), "leaves out its prompt") {
		t.Errorf("a prompt that is left out: %v", err)
	}
	// Older files of what becomes of texts count too, and with both options a text is what it says.
	short := filepath.Join(folder, "sentence_bert_config.json")
	if err := os.Rename(short, filepath.Join(folder, "sentence_roberta_config.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "sentence_roberta_config.json"), []byte(`{"max_seq_length": 4, "do_lower_case": true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	cut, err := Load(folder, pretrained.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	if same, err := cut.Embed("the CAT sat on", "the cat"); err != nil || !slices.EqualFunc(same[0], same[1], alike) {
		t.Errorf("cut to two words: %v, %v", same, err)
	}
	if err := os.Remove(filepath.Join(folder, "sentence_roberta_config.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, "modules.json")); err != nil {
		t.Fatal(err)
	}
	bare, err := Load(folder, pretrained.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	_, want := load(t, "bert")
	vectors, err := bare.Embed(want.Texts...)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		length := 0.0
		for _, x := range v {
			length += float64(x) * float64(x)
		}
		for j := range v {
			v[j] /= float32(math.Sqrt(length))
		}
		compare(t, [][]float32{v}, want.Vectors[i:i+1])
	}
}

// alike reports whether two numbers differ by no more than rounding: rows of a batch may be summed
// in different orders.
func alike(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6 }
