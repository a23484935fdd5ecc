package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// A Precompiled normaliser finds the clusters of characters that Python's tokenizers finds, new
// marks among them; testdata/clusters.py is the other side.
func TestClusters(t *testing.T) {
	content, err := os.ReadFile("testdata/clusters.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text    string
		IDs     []int
		Offsets [][2]int
	}
	if err := json.Unmarshal(content, &cases); err != nil || len(cases) < 100 {
		t.Fatal(len(cases), err)
	}
	_, tok := readHFGolden(t, "precompiled")
	for _, c := range cases {
		e, err := tok.EncodeWith(c.Text, tokenizer.EncodeOptions{NoSpecial: true})
		if err != nil || !slices.Equal(e.IDs, c.IDs) || !slices.Equal(e.Offsets, c.Offsets) {
			t.Errorf("%+q gives %v, %v, %v, want %v, %v", c.Text, e.IDs, e.Offsets, err, c.IDs, c.Offsets)
		}
	}
}

// Most cuts a text at the side that the folder says, and what was saved does so still. Lowered
// makes letters small before the normaliser sees them.
func TestMostAndLowered(t *testing.T) {
	base, _ := readHFGolden(t, "roberta")
	for side, want := range map[string][2]int{"left": {2, 3}, "right": {0, 1}} {
		folder := hfFolder{Files: map[string]string{
			"tokenizer.json": string(base.Tokenizer), "tokenizer_config.json": `{"truncation_side": "` + side + `"}`,
		}}
		opened, err := tokenizer.Open(folder.write(t))
		if err != nil {
			t.Fatal(err)
		}
		all, err := opened.EncodeWith("a b c d", tokenizer.EncodeOptions{NoSpecial: true, NoLimits: true})
		if err != nil || len(all.IDs) < 4 {
			t.Fatal(all, err)
		}
		content, err := json.Marshal(opened)
		if err != nil {
			t.Fatal(err)
		}
		again, err := tokenizer.Load(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		for _, tok := range []*tokenizer.HuggingFace{opened, again.(*tokenizer.HuggingFace)} {
			e, err := tok.EncodeWith("a b c d", tokenizer.EncodeOptions{Most: 4})
			if err != nil || len(e.IDs) != 4 || !e.Special[0] || !e.Special[3] {
				t.Fatalf("four tokens with those of the template are %+v, %v", e, err)
			}
			first := len(all.IDs) - 2
			if side == "right" {
				first = want[0]
			}
			if !slices.Equal(e.IDs[1:3], all.IDs[first:first+2]) {
				t.Errorf("cut at the %s: %v of %v", side, e.IDs, all.IDs)
			}
		}
	}
	for _, kind := range []string{"gpt2", "bert_cased", "clip"} {
		_, tok := readHFGolden(t, kind)
		lowered, err := tok.Lowered()
		if err != nil {
			t.Fatal(err)
		}
		have, err := lowered.Encode("It's NAÏVE <s>")
		if err != nil {
			t.Fatal(err)
		}
		if want, err := tok.Encode("it's naïve <s>"); err != nil || !slices.Equal(have, want) {
			t.Errorf("%s, lowered: %v, %v, want %v", kind, have, err, want)
		}
	}
	if _, err := new(tokenizer.HuggingFace).Lowered(); err == nil {
		t.Error("a zero tokenizer was lowered")
	}
}
