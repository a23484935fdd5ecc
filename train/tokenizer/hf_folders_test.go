package tokenizer_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// hfFolder is a file that testdata/folders.py writes.
type hfFolder struct {
	Files, Models map[string]string
	hfGolden
}

// write makes the folder.
func (f *hfFolder) write(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range f.Files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range f.Models {
		content, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// Folders without a tokenizer.json have the tokens that transformers' AutoTokenizer finds.
func TestFolders(t *testing.T) {
	files, err := filepath.Glob("testdata/folders/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no golden files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			content, err := os.ReadFile(file)
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
			f.check(t, tok)
		})
	}
}

// check compares a tokenizer with what Python's did.
func (g *hfGolden) check(t *testing.T, tok *tokenizer.HuggingFace) {
	t.Helper()
	for _, c := range g.Cases {
		e, err := tok.EncodeWith(c.Text, tokenizer.EncodeOptions{Second: c.Pair})
		if err != nil {
			t.Errorf("%q: %v", c.Text, err)
			continue
		}
		if !slices.Equal(e.IDs, c.IDs) {
			t.Errorf("%q has the tokens\n%q %v, want\n%q %v", c.Text, tokensOf(t, tok, e.IDs), e.IDs, c.Tokens, c.IDs)
			continue
		}
		if !slices.Equal(e.Offsets, c.Offsets) {
			t.Errorf("%q has the tokens\n%q at\n%v, want\n%v", c.Text, c.Tokens, e.Offsets, c.Offsets)
		}
		if !slices.Equal(e.TypeIDs, c.Types) {
			t.Errorf("%q has the types %v, want %v", c.Text, e.TypeIDs, c.Types)
		}
		for i := range e.IDs {
			if e.Special[i] != (c.Special[i] == 1) || e.Padding[i] != (c.Attention[i] == 0) {
				t.Errorf("%q: token %d is special %v and padding %v, want %v and %v", c.Text, i, e.Special[i], e.Padding[i], c.Special[i] == 1, c.Attention[i] == 0)
			}
		}
		if bare, err := tok.EncodeWith(c.Text, tokenizer.EncodeOptions{Second: c.Pair, NoSpecial: true}); err != nil || !slices.Equal(bare.IDs, c.Bare) {
			t.Errorf("%q without special tokens: %v, %v, want %v", c.Text, bare.IDs, err, c.Bare)
		}
		if s, err := tok.Decode(c.IDs); err != nil || lossy(s) != c.Decoded {
			t.Errorf("%q is decoded to\n%q, %v, want\n%q", c.Text, s, err, c.Decoded)
		}
		if s, err := tok.DecodeText(c.IDs); err != nil || lossy(s) != c.Plain {
			t.Errorf("%q is decoded without special tokens to\n%q, %v, want\n%q", c.Text, s, err, c.Plain)
		}
	}
}

// FuzzSentencePiece makes sure that no tokenizer.model makes opening it or encoding with it panic.
func FuzzSentencePiece(f *testing.F) {
	for _, name := range []string{"llama", "plain_unigram", "t5", "tiktoken"} {
		content, err := os.ReadFile(filepath.Join("testdata/folders", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		var folder hfFolder
		if err := json.Unmarshal(content, &folder); err != nil {
			f.Fatal(err)
		}
		for _, text := range folder.Models {
			model, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(model, folder.Files["tokenizer_config.json"], "It's naïve <mask> 12")
		}
	}
	f.Fuzz(func(t *testing.T, model []byte, config, text string) {
		folder := hfFolder{Files: map[string]string{"tokenizer.model": string(model), "tokenizer_config.json": config}}
		tok, err := tokenizer.Open(folder.write(t))
		if err != nil {
			return
		}
		if e, err := tok.EncodeWith(text, tokenizer.EncodeOptions{}); err == nil {
			tok.Decode(e.IDs)
		}
	})
}
