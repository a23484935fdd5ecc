package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// hfGolden is a file that testdata/huggingface.py writes.
type hfGolden struct {
	Tokenizer json.RawMessage
	Cases     []struct {
		Text           string
		Pair           *string
		IDs, Types     []int
		Tokens         []string
		Offsets        [][2]int
		Special        []int
		Attention      []int
		Bare           []int
		Decoded, Plain string
	}
}

func readHFGolden(t testing.TB, name string) (hfGolden, *tokenizer.HuggingFace) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/huggingface", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var g hfGolden
	if err := json.Unmarshal(content, &g); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.ReadHuggingFace(bytes.NewReader(g.Tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	return g, tok
}

var hfKinds = []string{
	"gpt2", "roberta", "llama3", "qwen2", "smollm", "llama2", "mistral", "gemma", "unigram", "unigram_bytes", "bert", "bert_cased", "words",
	"clip", "bytes_first", "precompiled",
}

// Texts have the tokens that Python's tokenizers library finds, where it finds them.
func TestHuggingFace(t *testing.T) {
	for _, name := range hfKinds {
		t.Run(name, func(t *testing.T) {
			g, tok := readHFGolden(t, name)
			g.check(t, tok)
		})
	}
}

// lossy is a text as Python gives it: what begins a character and does not end it is one �.
func lossy(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		for r == utf8.RuneError && !utf8.FullRuneInString(s[i:i+n]) && i+n < len(s) && !utf8.FullRuneInString(s[i:i+n+1]) {
			n++
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

func tokensOf(t *testing.T, tok *tokenizer.HuggingFace, ids []int) []string {
	t.Helper()
	var list []string
	for _, id := range ids {
		token, err := tok.Token(id)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, token)
	}
	return list
}

// Encode is EncodeWith without template and limits; for bytes, its decoding is the text, whatever
// its bytes.
func TestHuggingFaceEncode(t *testing.T) {
	for _, name := range hfKinds {
		g, tok := readHFGolden(t, name)
		for _, c := range g.Cases {
			ids, err := tok.Encode(c.Text)
			if err != nil {
				t.Fatal(err)
			}
			all, err := tok.EncodeWith(c.Text, tokenizer.EncodeOptions{NoSpecial: true, NoLimits: true})
			if err != nil || !slices.Equal(ids, all.IDs) {
				t.Errorf("%s: %q is %v, EncodeWith gives %v, %v", name, c.Text, ids, all.IDs, err)
			}
		}
	}
	_, tok := readHFGolden(t, "gpt2")
	for _, text := range []string{"\xff\xfe invalid \xe4\xbd", "a\x80b", "\xed\xa0\x80", strings.Repeat("\xf0", 50)} {
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := tok.Decode(ids); err != nil || back != text {
			t.Errorf("%q comes back as %q, %v", text, back, err)
		}
		var joined []byte
		for _, id := range ids {
			b, err := tok.Bytes(id)
			if err != nil {
				t.Fatal(err)
			}
			joined = append(joined, b...)
		}
		if string(joined) != text {
			t.Errorf("the bytes of the tokens of %q are %q", text, joined)
		}
	}
}

// What a file asks for and there is not is an error, and so is what is not valid.
func TestHuggingFaceErrors(t *testing.T) {
	const bpe = `"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}`
	for file, want := range map[string]string{
		`{`:                             "unexpected end",
		`[]`:                            "cannot unmarshal",
		`{}`:                            "it has no model, it needs to be a tokenizer.json",
		`{"model": {"type": "Markov"}}`: `its type is "Markov", it needs to be BPE, Unigram, WordPiece or WordLevel`,
		`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}`:                                           `merge 1: "a" and "b" make "b", which needs to be a token`,
		`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["ab"]}}`:                                            "needs to be two tokens with a space between them",
		`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}}`:                                "dropout is 0.1, only 0 is supported",
		`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "warp": 1}}`:                                     `unknown field "warp"`,
		`{"model": {"type": "BPE", "vocab": {"a": 99999999}, "merges": []}}`:                                         `token "a" has the id 99999999`,
		`{"model": {"type": "Unigram", "unk_id": 7, "vocab": [["a", 0]]}}`:                                           "unk_id needs to be a token",
		`{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}, ` + bpe + `}`:                          `precompiled_charsmap: illegal base64`,
		`{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}, ` + bpe + `}`:                   `precompiled_charsmap has an array of 4294967295 bytes`,
		`{"normalizer": {"type": "Sequence", "normalizers": [null]}, ` + bpe + `}`:                                   `the normalizer "" is not known`,
		`{"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}, ` + bpe + `}`:                 `the pattern "("`,
		`{"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Up"}, ` + bpe + `}`:            `the behavior "Up" is not known`,
		`{"pre_tokenizer": {"type": "Metaspace", "replacement": "", "prepend_scheme": "first"}, ` + bpe + `}`:        "the replacement: the pattern is empty",
		`{"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}, ` + bpe + `}`: `the template has the token "x"`,
		`{"post_processor": {"type": "BertProcessing", "cls": ["x", 9], "sep": ["y", 9]}, ` + bpe + `}`:              "it adds the id 9",
		`{"decoder": {"type": "Rot13"}, ` + bpe + `}`:                                                                `the decoder "Rot13" is not known`,
		`{"decoder": {"type": "Strip", "content": "ab", "start": 1, "stop": 0}, ` + bpe + `}`:                        `the decoder Strip has the content "ab"`,
		`{"pre_tokenizer": {"type": "FixedLength", "length": 0}, ` + bpe + `}`:                                       "FixedLength has the length 0",
		`{"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}]}, ` + bpe + `}`:     "the template of one text has the sequence B",
		`{"truncation": {"strategy": "Random", "max_length": 1}, ` + bpe + `}`:                                       `strategy is "Random"`,
		`{"padding": {"strategy": {"Fixed": 99999999999}}, ` + bpe + `}`:                                             "a length needs to be from 0 to",
		`{"added_tokens": [{"content": "x"}], ` + bpe + `}`:                                                          `added_tokens: "x" has no id`,
		`{"added_tokens": [{"id": 3, "content": ""}], ` + bpe + `}`:                                                  `added_tokens: "" has the id 3`,
	} {
		if _, err := tokenizer.ReadHuggingFace(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", file, err, want)
		}
	}
	for model, want := range map[string]string{
		`{"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "x"}`:              "neither is unk_token",
		`{"type": "WordPiece", "unk_token": "x", "vocab": {"a": 0}}`:                      `"b" is no token`,
		`{"type": "WordLevel", "unk_token": "x", "vocab": {"a": 0}}`:                      `"b" is no token`,
		`{"type": "Unigram", "unk_id": null, "vocab": [["a", 0]], "byte_fallback": true}`: `"b" is no token`,
	} {
		tok, err := tokenizer.ReadHuggingFace(strings.NewReader(`{"model": ` + model + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tok.Encode("b"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", model, err, want)
		}
		if ids, err := tok.Encode("a"); err != nil || !slices.Equal(ids, []int{0}) {
			t.Errorf("%s: %v, %v", model, ids, err)
		}
	}
	tok, err := tokenizer.ReadHuggingFace(strings.NewReader(`{"added_tokens": [{"id": 9, "content": "<end>", "special": true}], ` + bpe + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.Decode([]int{5}); err == nil || !strings.Contains(err.Error(), "id 5 is no token") {
		t.Errorf("an id without a token: %v", err)
	}
	if ids, err := tok.Encode("ab<end>"); err != nil || !slices.Equal(ids, []int{2, 9}) {
		t.Errorf("with special tokens: %v, %v", ids, err)
	}
	if ids, err := tok.WithoutSpecial().Encode("ab<end>"); err != nil || slices.Contains(ids, 9) {
		t.Errorf("without special tokens: %v, %v", ids, err)
	}
	var saved bytes.Buffer
	if err := tokenizer.Save(&saved, tok); err != nil {
		t.Fatal(err)
	}
	again, err := tokenizer.Load(&saved)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := again.Encode("ab<end>"); err != nil || !slices.Equal(ids, []int{2, 9}) {
		t.Errorf("saved and loaded: %v, %v", ids, err)
	}
}

// FuzzHuggingFace makes sure that no file makes reading it or encoding with it panic.
func FuzzHuggingFace(f *testing.F) {
	for _, name := range hfKinds {
		content, err := os.ReadFile(filepath.Join("testdata/huggingface", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		var g hfGolden
		if err := json.Unmarshal(content, &g); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(g.Tokenizer), "It's naïve <mask> 12")
	}
	f.Fuzz(func(t *testing.T, file []byte, text string) {
		tok, err := tokenizer.ReadHuggingFace(bytes.NewReader(file))
		if err != nil {
			return
		}
		e, err := tok.EncodeWith(text, tokenizer.EncodeOptions{NoLimits: true})
		if err != nil {
			return
		}
		for i, o := range e.Offsets {
			if o[0] < 0 || o[0] > o[1] || o[1] > len(text) {
				t.Fatalf("token %d of %q lies at %v", i, text, o)
			}
		}
		tok.Decode(e.IDs)
	})
}
