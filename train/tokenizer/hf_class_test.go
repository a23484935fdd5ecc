package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Folders with a tokenizer.json of which a class keeps only the tokens split texts as transformers'
// AutoTokenizer does with them.
func TestRebuilt(t *testing.T) {
	content, err := os.ReadFile("testdata/rebuilt.json")
	if err != nil {
		t.Fatal(err)
	}
	var folders []struct {
		From string
		hfFolder
	}
	if err := json.Unmarshal(content, &folders); err != nil || len(folders) == 0 {
		t.Fatal(len(folders), err)
	}
	differ := map[string]bool{}
	for i, f := range folders {
		t.Run(fmt.Sprint(i, " ", f.From), func(t *testing.T) {
			base, asItIs := readHFGolden(t, f.From)
			f.Files["tokenizer.json"] = string(base.Tokenizer)
			tok, err := tokenizer.Open(f.write(t))
			if err != nil {
				t.Fatal(err)
			}
			f.check(t, tok)
			for _, c := range f.Cases {
				e, err := asItIs.EncodeWith(c.Text, tokenizer.EncodeOptions{Second: c.Pair})
				if err != nil || !slices.Equal(e.IDs, c.IDs) {
					differ[f.From] = true
				}
			}
		})
	}
	if len(differ) < 8 { // or the cases show nothing
		t.Errorf("read as they are, only the tokenizers %v give other ids", differ)
	}
	bpe, _ := readHFGolden(t, "gpt2")
	words := hfFolder{Files: map[string]string{
		"tokenizer.json":        string(bpe.Tokenizer),
		"tokenizer_config.json": `{"tokenizer_class": "BertTokenizer"}`,
	}}
	want := `model is a BPE, the class "BertTokenizer" needs a WordPiece`
	if _, err := tokenizer.Open(words.write(t)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another kind of model gives %v, want an error with %s", err, want)
	}
}

// FuzzRebuilt makes sure that nothing beside a tokenizer.json makes opening or encoding panic.
func FuzzRebuilt(f *testing.F) {
	content, err := os.ReadFile("testdata/rebuilt.json")
	if err != nil {
		f.Fatal(err)
	}
	var folders []struct {
		From string
		hfFolder
	}
	if err := json.Unmarshal(content, &folders); err != nil {
		f.Fatal(err)
	}
	for _, folder := range folders {
		base, _ := readHFGolden(f, folder.From)
		files := folder.Files
		f.Add(string(base.Tokenizer), files["tokenizer_config.json"], files["config.json"], "a <s>")
	}
	f.Fuzz(func(t *testing.T, tokens, config, model, text string) {
		folder := hfFolder{Files: map[string]string{
			"tokenizer.json": tokens, "tokenizer_config.json": config, "config.json": model,
		}}
		tok, err := tokenizer.Open(folder.write(t))
		if err != nil {
			return
		}
		if e, err := tok.EncodeWith(text, tokenizer.EncodeOptions{}); err == nil {
			tok.Decode(e.IDs)
		}
	})
}
