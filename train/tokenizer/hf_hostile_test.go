package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A pattern that would try for hours gives an error, whether one match takes so long or many do together.
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
