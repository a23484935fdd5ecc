package tokenizer_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// What is learnt from a text is what Hugging Face's trainer learns, and encodes the text in fewer
// tokens than it has bytes.
func TestTrainGPT2(t *testing.T) {
	content, err := os.ReadFile("testdata/train.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Text   string
		Size   int
		Merges []string
	}
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	learnt, err := tokenizer.TrainGPT2(golden.Text, golden.Size+1) // and the token that ends a text
	if err != nil {
		t.Fatal(err)
	}
	written, err := learnt.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var have struct{ Merges []string }
	if err := json.Unmarshal(written, &have); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(have.Merges, golden.Merges) {
		for i := range min(len(have.Merges), len(golden.Merges)) {
			if have.Merges[i] != golden.Merges[i] {
				t.Fatalf("merge %d is %q, want %q", i, have.Merges[i], golden.Merges[i])
			}
		}
		t.Fatalf("there are %d merges, want %d", len(have.Merges), len(golden.Merges))
	}
	if end, found := learnt.EndOfText(); !found || end != learnt.Size()-1 || learnt.Size() != golden.Size+1 {
		t.Errorf("there are %d tokens, and %d ends a text", learnt.Size(), end)
	}
	ids, err := learnt.Encode(golden.Text)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := learnt.Decode(ids); err != nil || text != golden.Text || len(ids) > len(text)/2 {
		t.Errorf("%d bytes are %d tokens, which are %d bytes: %v", len(golden.Text), len(ids), len(text), err)
	}
}

func TestTrainGPT2OfLittle(t *testing.T) {
	for text, size := range map[string]int{"": 257, "ab": 257, "abab": 258, strings.Repeat("a", 9): 259, "\xff\xfe\xff\xfe": 258} {
		learnt, err := tokenizer.TrainGPT2(text, 300)
		if err != nil {
			t.Fatal(err)
		}
		if learnt.Size() != size {
			t.Errorf("%q gives %d tokens, want %d", text, learnt.Size(), size)
		}
		if ids, err := learnt.Encode(text); err != nil {
			t.Error(err)
		} else if back, err := learnt.Decode(ids); err != nil || back != text {
			t.Errorf("%q comes back as %q: %v", text, back, err)
		}
	}
	if _, err := tokenizer.TrainGPT2("text", 256); err == nil || err.Error() != "TrainGPT2: size is 256, it needs to be at least 257: the bytes and <|endoftext|>" {
		t.Errorf("a size of 256: %v", err)
	}
}
