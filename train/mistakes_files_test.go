package train_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/nn/pretrained/hub"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/data/prepare"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMistakesWithFiles makes mistakes with files, folders, names, devices and arithmetic. Each is
// an error of one line that names what to change.
func TestMistakesWithFiles(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	of := func(_ any, err error) error { return err }
	prepared := func(path string, change func(o *prepare.Options)) error {
		o := prepare.Options{Tokenizer: tokenizer.Bytes{}, Folder: filepath.Join(folder, "out")}
		change(&o)
		return of(prepare.Run(t.Context(), []string{path}, o))
	}
	nothing := func(*prepare.Options) {}
	model := func(make func(s *nn.Scope, x, ids nn.Tensor)) error {
		s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(1))
		make(s, s.Constant("x", data.Floats(make32(6), 2, 3)), s.Constant("ids", data.Ints([]int{0, 1, 2, 0, 1, 2}, 2, 3)))
		return s.Err()
	}
	g := gorgonia.NewGraph()
	scalar := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("loss"))
	lines := file("lines.jsonl", `{"text": "a"}`+"\n"+`{"body": "b"}`+"\n")
	for i, m := range []struct {
		err  error
		want string
	}{
		{of(pretrained.Load(filepath.Join(folder, "nowhere"), pretrained.Options{})), "nowhere: there is no config.json, it needs to be a model's folder"},
		{of(pretrained.Load(filepath.Dir(file("empty/readme.md", "")), pretrained.Options{})), "empty: there is no config.json, it needs to be a model's folder"},
		{of(pretrained.Load(filepath.Dir(file("bad/config.json", "{")), pretrained.Options{})), "config.json"},
		{of(pretrained.Load(filepath.Dir(file("strange/config.json", `{"model_type": "mamba9"}`)), pretrained.Options{})), "mamba9"},
		{of(hub.Fetch(t.Context(), "https://huggingface.co/gpt2", hub.Options{})), "it needs to be of the form owner/name"},
		{of(hub.Fetch(t.Context(), "owner/name", hub.Options{Cache: folder, Offline: true})), "it is not in the cache"},
		{of(tokenizer.Open(folder)), "there is no tokenizer.json, it needs that, or vocab.json"},
		{of(tokenizer.OpenHuggingFace(file("tokenizer.json", "{}"))), "tokenizer.json: it has no model"},
		{of(safetensors.Open(file("weights.safetensors", "short"))), "weights.safetensors: has 5 bytes, it needs at least"},
		{of(gguf.Open(file("model.gguf", "no model"))), "model.gguf does not begin with GGUF, it needs"},
		{of(checkpoint.Load(filepath.Join(folder, "step-5"))), "step-5, it needs to be a checkpoint's folder"},
		{of(data.Open(file("text.bin", "plain"))), "text.bin"},
		{prepared(file("table.csv", "a,b"), nothing), "the name needs to end in .txt, .jsonl or .parquet"},
		{prepared(lines, nothing), `line 2 has no field "text"`},
		{prepared(file("text.parquet", "no parquet here"), nothing), "no Parquet file"},
		{prepared(file("none.txt", ""), nothing), "there is no text in the 1 files"},
		{prepared(lines, func(o *prepare.Options) { o.Validation = 20 }), "validation is 20, it needs to be at least 0 and less than 1"},
		{of(ops.OpenDevice(99)), "OpenDevice: "},
		{of(train.OpenPlace(t.Context(), train.PlaceConfig{Device: "gpu"})), `Device is "gpu", it needs to be auto, cpu, cuda or cuda:N`},
		{of(train.OpenPlace(t.Context(), train.PlaceConfig{SequenceRanks: -1})), "SequenceRanks is -1, it needs"},
		{model(func(_ *nn.Scope, x, _ nn.Tensor) { x.Add("2") }), "y is a string, it needs to be a Tensor, an int or a float"},
		{model(func(_ *nn.Scope, x, ids nn.Tensor) { x.Add(ids) }), "they need one type: Cast makes it"},
		{model(func(_ *nn.Scope, x, _ nn.Tensor) { x.MatMul(x) }), "the inner sizes need to be equal"},
		{model(func(_ *nn.Scope, x, _ nn.Tensor) { x.Reshape(4, 2) }), "x has shape [2 3], it cannot become [4 2]"},
		{model(func(_ *nn.Scope, x, _ nn.Tensor) { x.Gather(x) }), "ids is float32, it needs to be int, int32 or int64"},
		{model(func(_ *nn.Scope, x, _ nn.Tensor) { x.TopK(5) }), "k is 5, it needs to be from 1 to 3"},
		{model(func(_ *nn.Scope, x, _ nn.Tensor) { x.Div(0) }), "y is 0, it needs to be another number"},
		{model(func(_ *nn.Scope, x, ids nn.Tensor) { x.CrossEntropy(x) }), "targets is float32, it needs to be int, int32 or int64"},
		{of(ops.Cast(scalar, ops.BFloat16)), "it needs to stay float32 or float64"},
		{of(ops.NewMachine(nil)), "g is nil, it needs to be a graph"},
	} {
		if m.err == nil {
			t.Errorf("mistake %d, %q, has no error", i, m.want)
			continue
		}
		said := m.err.Error()
		t.Log(said)
		if !strings.Contains(said, m.want) || !isPlain(said) {
			t.Errorf("mistake %d says %s, want one line with %q", i, said, m.want)
		}
	}
}

func make32(n int) []float32 { return make([]float32, n) }
