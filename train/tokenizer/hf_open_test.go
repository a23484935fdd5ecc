package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// A folder of older files has the tokens of the tokenizer.json that it could have.
func TestOpen(t *testing.T) {
	type parts struct {
		Model struct {
			Vocab  map[string]int
			Merges []json.RawMessage
		}
		Added []json.RawMessage `json:"added_tokens"`
	}
	read := func(name string) (hfGolden, parts) {
		g, _ := readHFGolden(t, name)
		var p parts
		if err := json.Unmarshal(g.Tokenizer, &p); err != nil {
			t.Fatal(err)
		}
		return g, p
	}
	object := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	open := func(files map[string]string) (*tokenizer.HuggingFace, error) {
		folder := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return tokenizer.Open(folder)
	}

	bert, b := read("bert")
	words := make([]string, len(b.Model.Vocab))
	for word, id := range b.Model.Vocab {
		words[id] = word
	}
	gpt2, g := read("gpt2")
	var merges strings.Builder
	merges.WriteString("#version: 0.2\n")
	for _, m := range g.Model.Merges {
		var pair []string
		if err := json.Unmarshal(m, &pair); err != nil {
			t.Fatal(err)
		}
		merges.WriteString(strings.Join(pair, " ") + "\n")
	}
	specials := map[string]any{}
	for id, name := range []string{"<s>", "</s>", "<unk>", "<pad>", "<|end|>"} {
		specials[fmt.Sprint(id)] = map[string]any{"content": name, "special": true}
	}
	config := object(map[string]any{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": specials})
	for name, c := range map[string]struct {
		golden hfGolden
		files  map[string]string
	}{
		"tokenizer.json": {gpt2, map[string]string{"tokenizer.json": string(gpt2.Tokenizer)}},
		"vocab.txt":      {bert, map[string]string{"vocab.txt": strings.Join(words, "\n") + "\n", "tokenizer_config.json": `{"tokenizer_class": "BertTokenizerFast"}`}},
		"vocab.json":     {gpt2, map[string]string{"vocab.json": object(g.Model.Vocab), "merges.txt": merges.String(), "tokenizer_config.json": config}},
	} {
		tok, err := open(c.files)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range c.golden.Cases {
			want := text.IDs
			if name == "vocab.txt" && len(want) >= 16 {
				continue // which its tokenizer.json cuts off
			}
			e, err := tok.EncodeWith(text.Text, tokenizer.EncodeOptions{Second: text.Pair})
			if err != nil || !slices.Equal(e.IDs, want) {
				t.Errorf("%s: %q is %v, %v, want %v", name, text.Text, e.IDs, err, want)
			}
		}
	}

	// Tokens that tokenizer_config.json has beside those of tokenizer.json.
	more := object(map[string]any{"added_tokens_decoder": map[string]any{"700": map[string]any{"content": "<more>", "lstrip": true, "special": true}}})
	tok, err := open(map[string]string{"tokenizer.json": string(gpt2.Tokenizer), "tokenizer_config.json": more})
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := tok.Encode("  <more>"); err != nil || !slices.Equal(ids, []int{700}) {
		t.Errorf("an added token is %v, %v", ids, err)
	}
	// Special tokens that it names. Where they go, tokenizer.json says.
	ends := object(map[string]any{"bos_token": "<s>", "eos_token": "<eos>", "add_bos_token": true, "add_eos_token": true})
	if tok, err = open(map[string]string{"tokenizer.json": string(gpt2.Tokenizer), "tokenizer_config.json": ends}); err != nil {
		t.Fatal(err)
	}
	e, err := tok.EncodeWith("a", tokenizer.EncodeOptions{})
	if err != nil || !slices.Equal(tokensOf(t, tok, e.IDs), []string{"a"}) {
		t.Errorf("with its ends a text has the tokens %q, %v", tokensOf(t, tok, e.IDs), err)
	}
	// The first files of Mistral's tekken list no special tokens.
	if tok, err = open(map[string]string{"tekken.json": `{"config": {"pattern": ".", "default_num_special_tokens": 22}, "vocab": [{"token_bytes": "YQ=="}]}`}); err != nil {
		t.Fatal(err)
	}
	if ids, err := tok.Encode("[INST]a<SPECIAL_21>"); err != nil || !slices.Equal(ids, []int{3, 22, 21}) {
		t.Errorf("an old tekken gives %v, %v", ids, err)
	}
	for want, files := range map[string]map[string]string{
		"there is no tokenizer.json": {},
		`for the class "XTokenizer"`: {"vocab.txt": "a\n", "tokenizer_config.json": `{"tokenizer_class": "XTokenizer"}`},
		`has no token "[CLS]"`:       {"vocab.txt": "a\n"},
		`"x" is no id`:               {"tokenizer_config.json": `{"added_tokens_decoder": {"x": {"content": "a"}}}`},
		"tokenizer_config.json: ":    {"tokenizer_config.json": `[`},
		"not a message of protocol":  {"tokenizer.model": "\x0a\x05a"},
		"it has 0 pieces":            {"spiece.model": ""},
		"piece 0 is \"\"":            {"spm.model": "\x0a\x00"},
		"its unk_id is 9":            {"tokenizer.model": "\x0a\x03\x0a\x01a\x12\x03\xc0\x02\x09"},
		"its model_type is 4":        {"tokenizer.model": "\x0a\x03\x0a\x01a\x12\x02\x18\x04"},
		`the class "YTokenizer"`:     {"tokenizer.model": "\x0a\x03\x0a\x01a", "tokenizer_config.json": `{"tokenizer_class": "YTokenizer"}`},
		"needs 2":                    {"tokenizer.model": "\x0a\x03\x0a\x01a", "tokenizer_config.json": `{"tokenizer_class": "LlamaTokenizer"}`},
		"extra_ids is -1":            {"spiece.model": "\x0a\x03\x0a\x01a", "tokenizer_config.json": `{"tokenizer_class": "T5Tokenizer", "extra_ids": -1}`},
		"T5 needs at least 3":        {"spiece.model": "\x0a\x03\x0a\x01a", "tokenizer_config.json": `{"tokenizer_class": "T5Tokenizer", "extra_ids": 0}`},
		"num_special_tokens is 3":    {"tekken.json": `{"config": {"default_num_special_tokens": 3}}`},
		`"a" has the rank 1`:         {"tekken.json": `{"special_tokens": [{"rank": 1, "token_str": "a"}]}`},
		"default_vocab_size is 0":    {"tekken.json": `{"config": {"default_vocab_size": 0}, "special_tokens": [{"rank": 0, "token_str": "a"}]}`},
		`token 0 is "!"`:             {"tekken.json": `{"vocab": [{"token_bytes": "!"}], "special_tokens": []}`},
		"added_tokens_decoder has":   {"tokenizer.model": "YQ== 0\n", "tokenizer_config.json": `{"added_tokens_decoder": {"99999999": "x"}}`},
		"merge 1":                    {"vocab.json": `{"a": 0}`, "merges.txt": "a b\n"},
	} {
		if _, err := open(files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v gives %v, want an error with %q", files, err, want)
		}
	}
}
