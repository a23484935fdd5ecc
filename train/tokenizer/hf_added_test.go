package tokenizer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Added tokens at odd places are those that Python's library finds, with its offsets, or an error
// where it ends by a panic.
func TestAddedTokens(t *testing.T) {
	const model = `"model": {"type": "BPE", "vocab": {"a": 0, "1": 1, " ": 2, "k": 3, "<unk>": 4, "x": 5, ".": 6}, "merges": [], "unk_token": "<unk>"}`
	// Offsets are trimmed by what the model calls a token, or an added one in the text.
	const trimmed = `{"added_tokens": [{"id": 1, "content": "1", "normalized": true}], "normalizer": {"type": "Prepend", "prepend": " "},
		"post_processor": {"type": "RobertaProcessing", "sep": [".", 6], "cls": ["x", 5], "trim_offsets": true, "add_prefix_space": true}, ` + model + `}`
	// A token may begin within the white space that the one before it takes.
	const within = `{"added_tokens": [{"id": 7, "content": "<r>", "rstrip": true, "normalized": true}, {"id": 8, "content": " x", "normalized": true},
		{"id": 9, "content": "  ", "lstrip": true, "normalized": true}], ` + model + `}`
	// One that the normaliser makes an empty text of stands everywhere.
	const empty = `{"added_tokens": [{"id": 7, "content": "é", "rstrip": true, "normalized": true}, {"id": 8, "content": "<r>", "normalized": true}],
		"normalizer": {"type": "Replace", "pattern": {"String": "é"}, "content": ""}, ` + model + `}`
	for _, c := range []struct{ file, text, want string }{
		{trimmed, "a1k", "[2 0 1 3] [[0 0] [0 1] [1 2] [2 3]]"},
		{trimmed, "1", "[1] [[0 1]]"},
		{within, "a<r>  xa", "[0 7 5 0] [[0 1] [1 6] [6 7] [7 8]]"},
		{within, "<r> x", "[7 8] [[0 4] [3 5]]"},
		{within, "<r>   x a", "it begins within the white space"},
		{within, "a   a", "[0 9 2 0] [[0 1] [1 3] [3 4] [4 5]]"},
		{empty, "a k", "[0 7 3] [[0 1] [1 2] [2 3]]"},
		{empty, "a  ", "[0 7 7] [[0 1] [1 3] [2 3]]"},
		{empty, "aé<r>", "[0 8] [[0 1] [3 6]]"},
		{empty, "東", "stands within a character"},
	} {
		tok, err := tokenizer.ReadHuggingFace(strings.NewReader(c.file))
		if err != nil {
			t.Fatal(err)
		}
		e, err := tok.EncodeWith(c.text, tokenizer.EncodeOptions{NoSpecial: true})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v, want %s", c.text, err, c.want)
			}
			continue
		}
		if have := fmt.Sprint(e.IDs, e.Offsets); have != c.want {
			t.Errorf("%q is %s, want %s", c.text, have, c.want)
		}
	}
}

// An empty text before a text is refused.
func TestPrependNothing(t *testing.T) {
	const file = `{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": ""}]},
		"model": {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}}`
	_, err := tokenizer.ReadHuggingFace(strings.NewReader(file))
	if want := "prepend is empty"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}
