package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Tokenizers that testdata/drawn.py drew from the whole language of tokenizer.json do what Python's
// library does with them.
func TestDrawn(t *testing.T) {
	content, err := os.ReadFile("testdata/drawn.json")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(content), []byte("\n")) {
		var g hfGolden
		if err := json.Unmarshal(line, &g); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			tok, err := tokenizer.ReadHuggingFace(bytes.NewReader(g.Tokenizer))
			if err != nil {
				t.Fatal(err)
			}
			g.check(t, tok)
		})
	}
}
