package pretrained

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
)

// testdata/padding.py is the other side of this file.

// With FreezePadding the vector of padding gets the gradient that transformers gives it: none from
// texts, in most families, and that of a head which is tied to it.
func TestFreezePadding(t *testing.T) {
	slow.Race(t)
	text, err := os.ReadFile("testdata/padding.json")
	if err != nil {
		t.Fatal(err)
	}
	var norms map[string][2]*float64
	if err := json.Unmarshal(text, &norms); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(languageModels, writers) {
		if testing.Short() && name != "llama3" && name != "bart" {
			continue
		}
		for i, padding := range []string{"5", ""} {
			want := norms[name][i]
			if want == nil {
				continue // transformers refuses it
			}
			t.Run(name+padding, func(t *testing.T) {
				near(t, "the gradient of the embeddings", []float32{embeddingsGradient(t, name, padding)}, []float64{*want}, 1e-5)
			})
		}
	}
}

// embeddingsGradient is the norm of that of the golden loss where the config has that padding, or
// does not say which it is.
func embeddingsGradient(t *testing.T, name, padding string) float32 {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("testdata", name))); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(folder, configFile)
	text, err := os.ReadFile(place)
	if err != nil {
		t.Fatal(err)
	}
	config := parseFields(string(text))
	if delete(config, "pad_token_id"); padding != "" {
		config["pad_token_id"] = json.RawMessage(padding)
	}
	if err := os.WriteFile(place, []byte(textOf(config)), 0o666); err != nil {
		t.Fatal(err)
	}
	m, want := load(t, folder, Options{FreezePadding: true}), readGolden(t, name)
	s := m.scope()
	loss := lossOf(s, m, want)
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if _, err := gorgonia.Grad(loss.Node(), s.Trainable()...); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	sum := 0.0
	for _, n := range s.Trainable() {
		if n.Name() != "tokens.weight" && n.Name() != "decoder.tokens.weight" {
			continue
		}
		v, err := n.Grad()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range v.Data().([]float32) {
			sum += float64(x) * float64(x)
		}
	}
	return float32(math.Sqrt(sum))
}

// lossOf is that of predicting each next golden token.
func lossOf(s *nn.Scope, m *Model, want golden) nn.Tensor {
	if m.arch.reads {
		_, loss := written(s, m.EncoderDecoder(s), want)
		return loss
	}
	targets := make([][]int, len(want.Tokens))
	for i, row := range want.Tokens {
		targets[i] = append(slices.Clone(row[1:]), nn.IgnoreTarget)
	}
	return m.LanguageModel(s).Loss(ids(s, "tokens", want.Tokens), ids(s, "targets", targets))
}
