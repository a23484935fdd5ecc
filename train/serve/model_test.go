package serve_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

// A model that was written as a GGUF file has the tokenizer, the template and the end of answers
// that its folder has, and predicts the same tokens. Weights are kept as is asked for.
func TestOpenGGUF(t *testing.T) {
	folder := smallmodel.Llama(t, true)
	ofTypes := func(place, weights, embeddings string) *serve.Model {
		t.Helper()
		m, err := serve.Open(t.Context(), serve.ModelConfig{Folder: place, Device: "cpu", Weights: weights, Embeddings: embeddings})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	of := func(place, weights string) *serve.Model { return ofTypes(place, weights, "") }
	m := of(folder, "float32")
	metadata, err := m.Tokenizer.GGUF(m.Tokenizer.Size())
	if err != nil {
		t.Fatal(err)
	}
	metadata["tokenizer.chat_template"], metadata["tokenizer.ggml.eos_token_id"] = smallmodel.Template, uint32(2)
	path := filepath.Join(t.TempDir(), "small.gguf")
	if err := m.SaveGGUF(path, pretrained.GGUFOptions{Type: gguf.F32, Metadata: metadata}); err != nil {
		t.Fatal(err)
	}
	again := of(path, "float32")
	if !slices.Equal(again.Options.Stop, m.Options.Stop) {
		t.Errorf("answers end at %v, in the folder at %v", again.Options.Stop, m.Options.Stop)
	}
	conversation := []chat.Message{{Role: "user", Content: "What is a gorgon, and why?"}}
	prompt, err := m.Prompt(conversation)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := again.Prompt(conversation); err != nil || !slices.Equal(have, prompt) {
		t.Errorf("the prompt is %v, %v, that of the folder %v", have, err, prompt)
	}
	logits := func(m *serve.Model) []float64 {
		t.Helper()
		d, err := m.NewDecoder(0)
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.Logits(prompt)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want := logits(m)
	if have := logits(again); !slices.Equal(have, want) {
		t.Errorf("the logits are %v, those of the folder %v", have[:8], want[:8])
	}
	for _, weights := range []string{"bfloat16", "float16"} {
		if have := logits(of(folder, weights)); len(have) != len(want) || slices.Equal(have, want) {
			t.Errorf("%s: %d logits, equal to float32's: %t", weights, len(have), slices.Equal(have, want))
		}
	}
	for _, weights := range []string{"float32", "bfloat16"} { // embeddings of a type of their own
		if have, plain := logits(ofTypes(folder, weights, "float16")), logits(of(folder, weights)); slices.Equal(have, plain) {
			t.Errorf("%s with embeddings of float16: the logits are those without", weights)
		}
	}
	for _, embeddings := range []string{"float32", "fp16"} {
		_, err := serve.Open(t.Context(), serve.ModelConfig{Folder: folder, Device: "cpu", Embeddings: embeddings})
		if err == nil || !strings.Contains(err.Error(), "-embeddings") || !strings.Contains(err.Error(), embeddings) {
			t.Errorf("embeddings of %s: %v", embeddings, err)
		}
	}
	for _, weights := range []string{"int8", "int4", "nf4"} { // whose blocks are longer than this model's rows
		_, err := serve.Open(t.Context(), serve.ModelConfig{Folder: folder, Device: "cpu", Weights: weights})
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "cannot be "+weights) {
			t.Errorf("%s: %v", weights, err)
		}
	}
}

// A text has room for what was asked for, or by default for as much as the model takes.
func TestCapacity(t *testing.T) {
	folder := smallmodel.Llama(t, true) // takes 128
	for context, want := range map[int]int{0: 128, 100: 100, 128: 128} {
		m, err := serve.Open(t.Context(), serve.ModelConfig{Folder: folder, Device: "cpu", Context: context})
		if err != nil || m.Capacity != want {
			t.Fatalf("context %d: %+v, %v, it needs room for %d", context, m, err, want)
		}
	}
	for context, want := range map[int]string{129: "takes at most 128 tokens", -1: "needs to be positive"} {
		if _, err := serve.Open(t.Context(), serve.ModelConfig{Folder: folder, Device: "cpu", Context: context}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("context %d: the error is %v, it needs %q", context, err, want)
		}
	}
}
