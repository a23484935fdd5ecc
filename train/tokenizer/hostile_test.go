package tokenizer_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Tokens of which each can be made of all others in every way take no more memory than a multiple
// of the file, whichever kind of file lists them.
func TestTokensOfEachOther(t *testing.T) {
	const most = 512
	type piece struct {
		Bytes string `json:"token_bytes"`
	}
	var vocab []piece
	var tiktoken strings.Builder
	var texts []string
	for _, of := range []string{"a", "b", "c", "d"} {
		for n := range most {
			text := strings.Repeat(of, n+1)
			encoded := base64.StdEncoding.EncodeToString([]byte(text))
			vocab, texts = append(vocab, piece{encoded}), append(texts, text)
			fmt.Fprintf(&tiktoken, "%s %d\n", encoded, len(texts)-1)
		}
	}
	tekken, err := json.Marshal(map[string]any{"config": map[string]any{"pattern": `\S+`}, "vocab": vocab})
	if err != nil {
		t.Fatal(err)
	}
	open := func(files map[string]string) func() (*tokenizer.HuggingFace, error) {
		folder := hfFolder{Files: files}
		path := folder.write(t)
		return func() (*tokenizer.HuggingFace, error) { return tokenizer.Open(path) }
	}
	for name, opened := range map[string]func() (*tokenizer.HuggingFace, error){
		"tekken":   open(map[string]string{"tekken.json": string(tekken)}),
		"tiktoken": open(map[string]string{"tiktoken.model": tiktoken.String()}),
		"GGUF": func() (*tokenizer.HuggingFace, error) {
			return tokenizer.FromGGUF(map[string]any{
				"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": texts, "tokenizer.ggml.scores": make([]float32, len(texts)),
			})
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := opened()
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "made of each other in too many ways") {
			t.Errorf("%s: the error is %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
			t.Errorf("%s: %d bytes of memory", name, took)
		}
	}
}

// FuzzRanked makes sure that no tekken.json and no file of tiktoken makes opening it or encoding
// with it panic.
func FuzzRanked(f *testing.F) {
	for _, name := range []string{"tekken", "tekken_short", "tiktoken"} {
		content, err := os.ReadFile(filepath.Join("testdata/folders", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		var folder hfFolder
		if err := json.Unmarshal(content, &folder); err != nil {
			f.Fatal(err)
		}
		for file, text := range folder.Files {
			if file == "tekken.json" {
				f.Add([]byte(text), true, "It's naïve <mask> 12")
			}
		}
		for _, text := range folder.Models {
			model, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(model, false, "It's naïve <mask> 12")
		}
	}
	f.Add([]byte(`{"config": {"pattern": "\\S+", "default_vocab_size": 5, "default_num_special_tokens": 2}, "vocab": [{"token_bytes": "YQ=="}, {"token_bytes": "YWE="}],
		"special_tokens": [{"rank": 0, "token_str": "<s>"}]}`), true, "aaa <s>")
	f.Add([]byte("YQ== 0\nYWE= 1\n"), false, "aaa")
	f.Fuzz(func(t *testing.T, content []byte, isTekken bool, text string) {
		name := "tiktoken.model"
		if isTekken {
			name = "tekken.json"
		}
		folder := hfFolder{Files: map[string]string{name: string(content)}}
		if tok, err := tokenizer.Open(folder.write(t)); err == nil {
			use(tok, text)
		}
	})
}

// use encodes a text and decodes it.
func use(tok *tokenizer.HuggingFace, text string) {
	if e, err := tok.EncodeWith(text, tokenizer.EncodeOptions{}); err == nil {
		tok.Decode(e.IDs)
	}
}

// FuzzFromGGUF makes sure that no metadata of a GGUF file makes a tokenizer of it panic.
func FuzzFromGGUF(f *testing.F) {
	add := func(metadata map[string]any) {
		var file bytes.Buffer
		if err := gguf.Write(&file, metadata, nil); err != nil {
			f.Fatal(err)
		}
		f.Add(file.Bytes(), "It's naïve <s> 12")
	}
	add(map[string]any{
		"general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{"<unk>", "<s>", "</s>", "▁", "a", "▁a", "<0x41>"},
		"tokenizer.ggml.scores": []float32{0, 0, 0, -1, -2, -3, -4}, "tokenizer.ggml.token_type": []int32{2, 3, 3, 1, 1, 1, 6},
		"tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.unknown_token_id": uint32(0),
	})
	for _, pre := range []string{"gpt-2", "llama-bpe", "smollm", "tekken"} {
		add(map[string]any{
			"general.architecture": "qwen2", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": []string{"a", "b", "ab", "Ġ", "<s>"},
			"tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.token_type": []int32{1, 1, 1, 1, 3}, "tokenizer.ggml.eos_token_id": uint32(4),
		})
	}
	f.Fuzz(func(t *testing.T, content []byte, text string) {
		file, err := gguf.Read(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		if tok, err := tokenizer.FromGGUF(file.Metadata()); err == nil {
			use(tok, text)
		}
	})
}
