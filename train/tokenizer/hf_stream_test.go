package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// stream decodes ids one by one.
func stream(tok *tokenizer.HuggingFace, ids []int, skipSpecial bool) (string, error) {
	s := tok.NewStream(skipSpecial)
	var text strings.Builder
	for _, id := range ids {
		part, err := s.Add(id)
		if err != nil {
			return "", err
		}
		text.WriteString(part)
	}
	rest, err := s.Close()
	return text.String() + rest, err
}

// drawIDs are ids that have a token.
func drawIDs(r *rand.Rand, tok *tokenizer.HuggingFace, n int) []int {
	var ids []int
	for tries := 0; len(ids) < n && tries < 10*n; tries++ {
		id := r.IntN(tok.Size())
		if _, err := tok.Token(id); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Ids that are decoded one by one give the text that they give together.
func TestStream(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	toks := map[string]*tokenizer.HuggingFace{}
	for _, name := range hfKinds {
		_, toks[name] = readHFGolden(t, name)
	}
	for _, name := range []string{"llama", "gemma", "t5", "xlm_roberta", "tekken"} {
		toks[name], _ = openGolden(t, name)
	}
	for _, name := range slices.Sorted(maps.Keys(toks)) {
		tok := toks[name]
		for n := range 60 {
			ids := drawIDs(r, tok, n)
			if got, err := stream(tok, ids, false); err != nil {
				t.Errorf("%s: %v: %v", name, ids, err)
			} else if want, err := tok.Decode(ids); err != nil || got != want {
				t.Errorf("%s: %v one by one is\n%q, want\n%q, %v", name, ids, got, want, err)
			}
			if got, err := stream(tok, ids, true); err != nil {
				t.Errorf("%s: %v: %v", name, ids, err)
			} else if want, err := tok.DecodeText(ids); err != nil || got != want {
				t.Errorf("%s: %v one by one without special tokens is\n%q, want\n%q, %v", name, ids, got, want, err)
			}
		}
	}
	if _, err := toks["gpt2"].NewStream(false).Add(-1); err == nil {
		t.Error("the id -1 is no error")
	}
}

// Whatever the decoders are, the text is right or an error.
func TestStreamDrawn(t *testing.T) {
	content, err := os.ReadFile("testdata/drawn.json")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i, line := range bytes.Split(bytes.TrimSpace(content), []byte("\n")) {
		var g hfGolden
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.ReadHuggingFace(bytes.NewReader(g.Tokenizer))
		if err != nil {
			t.Fatal(err)
		}
		ids := drawIDs(r, tok, 40)
		want, err := tok.Decode(ids)
		if err != nil {
			continue
		}
		if got, err := stream(tok, ids, false); err == nil && got != want {
			t.Errorf("%d: %v one by one is\n%q, want\n%q", i, ids, got, want)
		}
	}
}
