package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A pattern that would try for hours gives an error, whether one match takes so long or many do
// together.
func TestSlowPatterns(t *testing.T) {
	before := longestMatch
	defer func() { longestMatch = before }()
	longestMatch = 300 * time.Millisecond
	for _, c := range []struct{ pattern, text, want string }{
		{`^(a|aa)+$`, strings.Repeat("a", 60) + "!", "timeout"},
		{`(a|aa)+\z|[a!]`, strings.Repeat(strings.Repeat("a", 20)+"!", 1000), "takes more than"},
	} {
		quoted, err := json.Marshal(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := ReadHuggingFace(strings.NewReader(fmt.Sprintf(`{"model": {"type": "WordLevel", "vocab": {"a": 0, "x": 1}, "unk_token": "x"},
			"pre_tokenizer": {"type": "Split", "pattern": {"Regex": %s}, "behavior": "Isolated", "invert": false}}`, quoted)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = tok.Encode(c.text)
		switch {
		case err == nil:
			t.Errorf("%s: there is no error, want %q", c.pattern, c.want)
		case !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "timeout"): // any match may, on a busy machine
			t.Errorf("%s: the error is %.200v, want %q", c.pattern, err, c.want)
		}
	}
}

// What a small file can ask for stays small: text that grows, words without end, tokens that begin
// alike.
func TestAbsurdFiles(t *testing.T) {
	long := strings.Repeat("a", 3000)
	replace := fmt.Sprintf(`{"type": "Replace", "pattern": {"String": "a"}, "content": %q}`, long)
	sequence := func(name string, step string) string {
		return fmt.Sprintf(`{"type": "Sequence", %q: [%s]}`, name, strings.Join(slices.Repeat([]string{step}, 40), ","))
	}
	const words = `"model": {"type": "WordLevel", "vocab": {"a": 0, "x": 1}, "unk_token": "x"}`
	for _, c := range []struct{ name, file, text, want string }{
		{"replacements", `{"normalizer": ` + sequence("normalizers", replace) + `, ` + words + `}`, "a", "becomes one of more than"},
		{"prefixes", `{"normalizer": ` + sequence("normalizers", fmt.Sprintf(`{"type": "Prepend", "prepend": %q}`, strings.Repeat(long, 20))) + `, ` + words + `}`, "a", "becomes one of more than"},
		{"decoders", `{"decoder": ` + sequence("decoders", replace) + `, ` + words + `}`, "a", "become a text of more than"},
		{"spaces", `{"decoder": ` + sequence("decoders", `{"type": "BPEDecoder", "suffix": ""}`) + `, ` + words + `}`, "a a", "become a text of more than"},
		{"WordPiece", fmt.Sprintf(`{"model": {"type": "WordPiece", "unk_token": "a", "max_input_chars_per_word": 1000000000, "continuing_subword_prefix": "", "vocab": {"a": 0, %q: 1}}}`, long+"b"),
			strings.Repeat("a", 200_000) + "b", ""},
		{"Unigram", fmt.Sprintf(`{"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1], [%q, -2]]}}`, long+"b"), strings.Repeat("a", 200_000), ""},
		{"added", fmt.Sprintf(`{"added_tokens": [{"id": 2, "content": %q}], %s}`, long+"b", words), strings.Repeat("a", 200_000), ""},
	} {
		tok, err := ReadHuggingFace(strings.NewReader(c.file))
		var ids []int
		if err == nil {
			ids, err = tok.Encode(c.text)
		}
		if err == nil {
			_, err = tok.Decode(slices.Repeat(ids, 30))
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: the error is %.200v, want %q", c.name, err, c.want)
		}
	}
}
