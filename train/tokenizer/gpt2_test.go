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
	"pgregory.net/rapid"
)

func openGPT2(t testing.TB) *tokenizer.GPT2 {
	gpt2, err := tokenizer.OpenGPT2("testdata/vocab.json", "testdata/merges.txt")
	if err != nil {
		t.Fatal(err)
	}
	return gpt2
}

func withEndOfText(t testing.TB) *tokenizer.GPT2 {
	special, err := openGPT2(t).WithEndOfText()
	if err != nil {
		t.Fatal(err)
	}
	return special
}

// The golden file is what testdata/gpt2.py got from other implementations.
func TestGPT2Golden(t *testing.T) {
	content, err := os.ReadFile("testdata/gpt2.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text         string
		Pieces       []string
		IDs, Special []int
	}
	if err := json.Unmarshal(content, &cases); err != nil {
		t.Fatal(err)
	}
	gpt2, special := openGPT2(t), withEndOfText(t)
	for _, c := range cases {
		if got := tokenizer.Pieces(c.Text); !slices.Equal(got, c.Pieces) {
			t.Errorf("%q has the pieces %q instead of %q", c.Text, got, c.Pieces)
		}
		if c.Special == nil {
			c.Special = c.IDs
		}
		same(t, gpt2, c.Text, c.IDs)
		same(t, special, c.Text, c.Special)
	}
	if len(cases) < 200 {
		t.Errorf("there are only %d cases", len(cases))
	}
}

// same reports whether a text has these ids and they have this text.
func same(t *testing.T, tok tokenizer.Tokenizer, text string, want []int) {
	t.Helper()
	got, err := tok.Encode(text)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%T: %q has the ids %v, %v instead of %v", tok, text, got, err, want)
	}
	if back, err := tok.Decode(want); err != nil || back != text {
		t.Errorf("%T: %v has the text %q, %v instead of %q", tok, want, back, err, text)
	}
}

// naive joins the pair of the lowest rank, and of these the leftmost, until there is none: the
// definition, in time O(n²).
func naive(piece string, merges []string, id func(string) int) (ids []int) {
	var tokens []string
	for i := range len(piece) {
		tokens = append(tokens, piece[i:i+1])
	}
	for {
		best, at := len(merges), 0
		for i := range len(tokens) - 1 {
			if rank := slices.Index(merges, tokens[i]+" "+tokens[i+1]); rank >= 0 && rank < best {
				best, at = rank, i
			}
		}
		if best == len(merges) {
			break
		}
		tokens[at] += tokens[at+1]
		tokens = slices.Delete(tokens, at+1, at+2)
	}
	for _, token := range tokens {
		ids = append(ids, id(token))
	}
	return ids
}

// smallGPT2 has all bytes and the merges that are given, of ASCII.
func smallGPT2(t interface{ Fatal(...any) }, merges []string) (gpt2 *tokenizer.GPT2, id func(string) int) {
	vocab := map[string]int{}
	full, err := os.ReadFile("testdata/vocab.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]int
	if err := json.Unmarshal(full, &all); err != nil {
		t.Fatal(err)
	}
	for token := range all {
		if len([]rune(token)) == 1 {
			vocab[token] = len(vocab)
		}
	}
	for _, merge := range merges {
		token := strings.ReplaceAll(merge, " ", "")
		if _, found := vocab[token]; !found {
			vocab[token] = len(vocab)
		}
	}
	content, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	gpt2, err = tokenizer.NewGPT2(strings.NewReader(string(content)), strings.NewReader(strings.Join(merges, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return gpt2, func(token string) int { return vocab[token] }
}

// Whatever the merges, and whether or not a training could have made them, they are applied as the
// definition says.
func TestGPT2Merges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known, merges := []string{"a", "b", "c"}, []string{}
		for range rapid.IntRange(0, 12).Draw(t, "merges") {
			left, right := rapid.SampledFrom(known).Draw(t, "left"), rapid.SampledFrom(known).Draw(t, "right")
			if merge := left + " " + right; !slices.Contains(merges, merge) && len(merge) < 10 {
				merges, known = append(merges, merge), append(known, left+right)
			}
		}
		merges = rapid.Permutation(merges).Draw(t, "order")
		gpt2, id := smallGPT2(t, merges)
		piece := rapid.StringMatching("[abc]{0,40}").Draw(t, "piece")
		got, err := gpt2.Encode(piece)
		if want := naive(piece, merges, id); err != nil || !slices.Equal(got, want) {
			t.Fatalf("with the merges %q, %q has the ids %v, %v instead of %v", merges, piece, got, err, want)
		}
	})
}

// A long piece takes no time that grows with its square, which would be hours.
func TestGPT2LongPiece(t *testing.T) {
	const n = 1 << 18
	gpt2, id := smallGPT2(t, []string{"a a", "aa aa", "aaaa aaaa"})
	ids, err := gpt2.Encode(strings.Repeat("a", n))
	if err != nil || len(ids) != n/8 || slices.ContainsFunc(ids, func(i int) bool { return i != id("aaaaaaaa") }) {
		t.Errorf("%d letters have %d ids, %v", n, len(ids), err)
	}
}

// Any bytes come back, with and without the special token, and the pieces are the text.
func FuzzGPT2(f *testing.F) {
	for _, text := range []string{
		"", "a", "it's  here \n", "<|endoftext|>", "<|endof<|endoftext|>text|>", "\xff\xf0\x9f", "日本 語", "\u00a0\u00a0x",
	} {
		f.Add(text)
	}
	gpt2, special := openGPT2(f), withEndOfText(f)
	f.Fuzz(func(t *testing.T, text string) {
		pieces := tokenizer.Pieces(text)
		if strings.Join(pieces, "") != text || slices.Contains(pieces, "") {
			t.Fatalf("%q has the pieces %q", text, pieces)
		}
		for _, tok := range []tokenizer.Tokenizer{gpt2, special, tokenizer.Bytes{}} {
			roundTrip(t, tok, text)
		}
	})
}

func TestGPT2EndOfText(t *testing.T) {
	gpt2, special := openGPT2(t), withEndOfText(t)
	id, found := gpt2.EndOfText()
	if id != 0 || !found {
		t.Errorf("the end of text is %d, %v", id, found)
	}
	plain, err := gpt2.Encode(tokenizer.EndOfText)
	if err != nil || len(plain) < 3 {
		t.Errorf("as text it is %v, %v", plain, err)
	}
	same(t, special, tokenizer.EndOfText+tokenizer.EndOfText, []int{id, id})
	same(t, gpt2, tokenizer.EndOfText, plain)

	without, _ := smallGPT2(t, nil)
	if id, found := without.EndOfText(); found {
		t.Errorf("a vocabulary without end of text has it as %d", id)
	}
	_, err = without.WithEndOfText()
	check(t, err, "GPT2: the vocabulary has no <|endoftext|>")
}

func TestGPT2Errors(t *testing.T) {
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	vocab, merges := read("vocab.json"), read("merges.txt")
	cases := map[string]struct{ vocab, merges, want string }{
		"good":              {vocab, merges, ""},
		"no merges":         {vocab, "", ""},
		"carriage returns":  {vocab, strings.ReplaceAll(merges, "\n", "\r\n"), ""},
		"empty":             {"", merges, "vocab: unexpected end of JSON"},
		"no object":         {"[]", merges, "it needs to be a JSON object"},
		"cut off":           {vocab[:len(vocab)/2], merges, "vocab:"},
		"bytes missing":     {`{"a": 0}`, "", "the byte 0x00, written 'Ā', is no token"},
		"gap":               {`{"a": 0, "b": 2}`, "", `token "b" has the id 2, the 2 tokens need ids from 0 to 1`},
		"negative":          {`{"a": -1}`, "", "has the id -1"},
		"no integer":        {`{"a": 0.5}`, "", "vocab:"},
		"twice":             {`{"a": 0, "b": 0}`, "", "have the id 0, each needs one of its own"},
		"empty token":       {`{"": 0}`, "", "is empty"},
		"strange character": {`{"a b": 0}`, "", `token "a b" (id 0) has the character ' '`},
		"one word":          {vocab, "#version: 0.2\nt", `number 1, "t", needs to be two tokens`},
		"three words":       {vocab, "t h e", "needs to be two tokens"},
		"unknown token":     {vocab, "q zzz", `is of "zzz", which needs to be a token`},
		"unknown joined":    {vocab, "q z", `is of "qz"`},
		"strange merge":     {vocab, "a 日", "which has the character '日'"},
		"merge twice":       {vocab, merges + strings.Split(merges, "\n")[1], "is number 1 as well"},
		"endless line":      {vocab, strings.Repeat("a", 1<<17), "merges: bufio.Scanner: token too long"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := tokenizer.NewGPT2(strings.NewReader(c.vocab), strings.NewReader(c.merges))
			check(t, err, c.want)
			if err != nil {
				check(t, err, "NewGPT2: ")
			}
		})
	}
	_, err := tokenizer.OpenGPT2("testdata/none.json", "testdata/merges.txt")
	check(t, err, "OpenGPT2: vocab: stat testdata/none.json")
	_, err = tokenizer.OpenGPT2("testdata/vocab.json", "testdata/none.txt")
	check(t, err, "OpenGPT2: merges: stat testdata/none.txt")
	_, err = tokenizer.OpenGPT2("testdata/merges.txt", "testdata/vocab.json")
	check(t, err, "OpenGPT2: testdata/merges.txt, testdata/vocab.json: vocab: ")
}

// BenchmarkGPT2 encodes this package's own source. All that it remembers of pieces it has to learn
// in each call, so a longer text is faster a byte.
func BenchmarkGPT2(b *testing.B) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		text.Write(content)
	}
	gpt2 := openGPT2(b)
	for _, times := range []int{1, 20} {
		b.Run(fmt.Sprintf("%dKB", times*text.Len()/1000), func(b *testing.B) {
			long := strings.Repeat(text.String(), times)
			b.SetBytes(int64(len(long)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := gpt2.Encode(long); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What is no file is refused before it is opened, which for a pipe would take for ever.
func TestOpenWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	if _, err := tokenizer.OpenGPT2(folder, folder); err == nil || !strings.Contains(err.Error(), folder+" is a folder") {
		t.Errorf("a folder for GPT-2's files: error %v", err)
	}
}
