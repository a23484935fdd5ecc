package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// openGolden opens a folder that testdata/folders.py wrote.
func openGolden(t *testing.T, name string) (*tokenizer.HuggingFace, hfGolden) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/folders", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var f hfFolder
	if err := json.Unmarshal(content, &f); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Open(f.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return tok, f.hfGolden
}

// withParts is a tokenizer with other parts in its tokenizer.json.
func withParts(t *testing.T, tok *tokenizer.HuggingFace, parts map[string]string) *tokenizer.HuggingFace {
	t.Helper()
	var saved bytes.Buffer
	if err := tokenizer.Save(&saved, tok); err != nil {
		t.Fatal(err)
	}
	var file struct{ Tokenizer map[string]json.RawMessage }
	if err := json.Unmarshal(saved.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	for name, part := range parts {
		file.Tokenizer[name] = json.RawMessage(part)
	}
	content, err := json.Marshal(file.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	if tok, err = tokenizer.ReadHuggingFace(bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	return tok
}

const prependSpace = `{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
	{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}`

// A tokenizer that goes through a GGUF file's metadata gives the same ids and texts.
func TestGGUF(t *testing.T) {
	llama, g := openGolden(t, "llama")
	gemma, _ := openGolden(t, "gemma")
	tekken, _ := openGolden(t, "tekken_short")
	toks := map[string]*tokenizer.HuggingFace{
		"llama": withParts(t, llama, map[string]string{"normalizer": prependSpace, "pre_tokenizer": "null"}), "gemma": gemma, "tekken": tekken,
	}
	for _, name := range []string{"gpt2", "llama3", "qwen2", "smollm"} {
		_, toks[name] = readHFGolden(t, name)
		if name == "qwen2" || name == "llama3" { // without the normaliser, and added tokens with more than a text, which files do not say
			toks[name] = withParts(t, toks[name], map[string]string{"normalizer": "null", "added_tokens": "[]", "post_processor": "null"})
		}
	}
	for name, tok := range toks {
		t.Run(name, func(t *testing.T) {
			metadata, err := tok.GGUF(tok.Size() + 5)
			if err != nil {
				t.Fatal(err)
			}
			metadata["general.architecture"] = name
			back, err := tokenizer.FromGGUF(metadata)
			if err != nil {
				t.Fatal(err)
			}
			if back.Size() != tok.Size()+5 {
				t.Errorf("it has %d ids, want %d", back.Size(), tok.Size()+5)
			}
			for _, c := range g.Cases {
				want, err := tok.EncodeWith(c.Text, tokenizer.EncodeOptions{Second: c.Pair, NoLimits: true})
				if err != nil {
					t.Fatal(err)
				}
				got, err := back.EncodeWith(c.Text, tokenizer.EncodeOptions{Second: c.Pair})
				if err != nil || !slices.Equal(got.IDs, want.IDs) {
					t.Errorf("%q has the tokens\n%q, %v, want\n%q", c.Text, tokensOf(t, back, got.IDs), err, tokensOf(t, tok, want.IDs))
					continue
				}
				before, err := tok.Decode(want.IDs)
				if after, err2 := back.Decode(want.IDs); err != nil || err2 != nil || after != before {
					t.Errorf("%q is decoded to %q, %v, %v, want %q", c.Text, after, err, err2, before)
				}
			}
			again, err := back.GGUF(back.Size())
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range metadata {
				if list, is := value.([]string); is && strings.HasSuffix(key, "tokens") && !slices.Equal(list, again[key].([]string)) {
					t.Errorf("%s changed on the way", key)
				}
			}
		})
	}
}

// What GGUF cannot say is an error, and so is metadata that is not a tokenizer.
func TestGGUFErrors(t *testing.T) {
	llama, _ := openGolden(t, "llama")
	good, err := llama.GGUF(llama.Size())
	if err != nil {
		t.Fatal(err)
	}
	with := func(key string, value any) map[string]any {
		m := maps.Clone(good)
		m["tokenizer.ggml."+key] = value
		return m
	}
	for _, c := range []struct {
		metadata map[string]any
		want     string
	}{
		{nil, "tokens has 0 tokens"},
		{with("model", "rwkv"), `model is "rwkv", it needs to be gpt2 or llama`},
		{with("model", 7), "tokenizer.ggml.model is a int, it needs to be a string"},
		{with("token_type", []int32{1}), "token_type has 1 elements"},
		{with("scores", []float32{1}), "scores has 1 elements"},
		{with("bos_token_id", uint32(1<<30)), "bos_token_id is 1073741824"},
		{with("add_bos_token", "yes"), "add_bos_token is a string"},
		{map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": []string{"a"}}, `pre is "", which is not known`},
		{map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{strings.Repeat("a", 1000)},
			"tokenizer.ggml.scores": []float32{0}}, "token 0 has 1000 bytes"},
	} {
		if _, err := tokenizer.FromGGUF(c.metadata); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want an error with %q", err, c.want)
		}
	}
	for name, want := range map[string]string{
		"bert": "the model needs to be a BPE", "unigram": "the model needs to be a BPE", "clip": "without prefixes and suffixes",
		"roberta": "the pre_tokenizer", "bytes_first": "byte_fallback", "mistral": "no merge joins them",
	} {
		_, tok := readHFGolden(t, name)
		if _, err := tok.GGUF(tok.Size()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
	if _, err := llama.GGUF(3); err == nil || !strings.Contains(err.Error(), "the size is 3") {
		t.Errorf("a size that is too small: %v", err)
	}
}
