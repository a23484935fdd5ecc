package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// check compares an error with the text that it needs to hold; an empty text means none.
func check(t *testing.T, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v instead of %q", err, want)
	}
}

// roundTrip makes sure that a text becomes ids in range, and these the text again, at once and one
// by one.
func roundTrip(t *testing.T, tok tokenizer.Tokenizer, text string) {
	t.Helper()
	ids, err := tok.Encode(text)
	if err != nil {
		t.Fatalf("%T: %q: %v", tok, text, err)
	}
	back, err := tok.Decode(ids)
	if err != nil || back != text {
		t.Fatalf("%T: %q becomes %v and then %q, %v", tok, text, ids, back, err)
	}
	var streamed []byte
	for _, id := range ids {
		b, err := tok.Bytes(id)
		if err != nil || len(b) == 0 || id < 0 || id >= tok.Size() {
			t.Fatalf("%T: id %d of %d of %q is %q, %v", tok, id, tok.Size(), text, b, err)
		}
		streamed = append(streamed, b...)
	}
	if string(streamed) != text {
		t.Fatalf("%T: the ids of %q are %q one by one", tok, text, streamed)
	}
}

func characters(t testing.TB, text string) *tokenizer.Characters {
	c, err := tokenizer.NewCharacters(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCharacters(t *testing.T) {
	c := characters(t, "hello, wörld\n\ufffd日\x00")
	if want := "\x00\n ,dehlorwö日\ufffd"; c.String() != want || c.Size() != utf8.RuneCountInString(want) {
		t.Errorf("the characters are %q instead of %q, %d of them", c, want, c.Size())
	}
	same(t, c, "\x00\nwö日\ufffd", []int{0, 1, 10, 11, 12, 13})
	same(t, c, "", []int{})
}

// Every valid text can be written with its own characters; any other is refused.
func FuzzCharacters(f *testing.F) {
	for _, text := range []string{"", "a", "first\nsecond", "日本\ufffd", "\xff", "a\xf0\x9f"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := tokenizer.NewCharacters(text)
		if valid := text != "" && utf8.ValidString(text); (err == nil) != valid {
			t.Fatalf("%q: the error is %v", text, err)
		}
		if err == nil {
			roundTrip(t, c, text)
			roundTrip(t, reload(t, c), text)
		}
	})
}

func TestCharactersErrors(t *testing.T) {
	c := characters(t, "abc\n")
	encode := func(text string) error { _, err := c.Encode(text); return err }
	check(t, encode("ab\nac"), "")
	check(t, encode("ab\nax"), `Characters: text has 'x' at byte 4 (line 2, character 2), it needs to be one of "\nabc"`)
	check(t, encode("cé"), `has 'é' at byte 1 (line 1, character 2)`)
	check(t, encode("a\xff"), "has the byte 0xff at byte 1 (line 1, character 2), it needs to be UTF-8")
	_, err := characters(t, "\ufffd").Encode("\xff")
	check(t, err, "the byte 0xff")
	var many strings.Builder
	for r := range rune(200) {
		many.WriteRune(r)
	}
	_, err = characters(t, many.String()).Encode("日")
	check(t, err, "it needs to be one of the 200 known characters")

	_, err = tokenizer.NewCharacters("")
	check(t, err, "NewCharacters: text is empty")
	_, err = tokenizer.NewCharacters("ab\n\x80")
	check(t, err, "NewCharacters: text has the byte 0x80 at byte 3 (line 2, character 1), it needs to be UTF-8")
}

func TestBytes(t *testing.T) {
	same(t, tokenizer.Bytes{}, "é\xff\x00", []int{0xc3, 0xa9, 0xff, 0})
	same(t, tokenizer.Bytes{}, "", nil)
}

func TestIDErrors(t *testing.T) {
	for _, tok := range []tokenizer.Tokenizer{tokenizer.Bytes{}, characters(t, "abc"), openGPT2(t)} {
		for _, id := range []int{-1, tok.Size()} {
			want := fmt.Sprintf("id is %d, it needs to be from 0 to %d", id, tok.Size()-1)
			_, err := tok.Bytes(id)
			check(t, err, want)
			_, err = tok.Decode([]int{0, id})
			check(t, err, want)
		}
	}
}

// reload is a tokenizer that was written and read.
func reload(t testing.TB, tok tokenizer.Tokenizer) tokenizer.Tokenizer {
	t.Helper()
	var file bytes.Buffer
	if err := tokenizer.Save(&file, tok); err != nil {
		t.Fatal(err)
	}
	loaded, err := tokenizer.Load(&file)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestSaveLoad(t *testing.T) {
	const text = "it's the tokenizer<|endoftext|>\n"
	for _, tok := range []tokenizer.Tokenizer{
		tokenizer.Bytes{}, characters(t, text+"<&>\u2028\ufffd"), openGPT2(t), withEndOfText(t),
	} {
		loaded := reload(t, tok)
		if got, want := fmt.Sprintf("%T", loaded), fmt.Sprintf("%T", tok); got != want || loaded.Size() != tok.Size() {
			t.Errorf("it is a %s of size %d instead of a %s of size %d", got, loaded.Size(), want, tok.Size())
		}
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		same(t, loaded, text, ids)
		for id := range tok.Size() {
			got, _ := loaded.Bytes(id)
			if want, _ := tok.Bytes(id); !bytes.Equal(got, want) {
				t.Errorf("%T: id %d is %q instead of %q", tok, id, got, want)
			}
		}
	}
}

// A checkpoint may hold a tokenizer as a field.
func TestJSON(t *testing.T) {
	type checkpoint struct {
		Characters *tokenizer.Characters
		GPT2       tokenizer.GPT2
		Bytes      tokenizer.Bytes
	}
	var loaded checkpoint
	saved := map[string]any{"Characters": characters(t, "abc"), "GPT2": openGPT2(t), "Bytes": tokenizer.Bytes{}}
	content, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &loaded); err != nil {
		t.Fatal(err)
	}
	same(t, loaded.Characters, "cab", []int{2, 0, 1})
	roundTrip(t, &loaded.GPT2, "the tokenizer")
	for text, want := range map[string]string{
		`{"Characters": {"kind": "bytes"}}`: "it is a tokenizer.Bytes, it needs to be a *tokenizer.Characters",
		`{"GPT2": {"kind": "bytes"}}`:       "it needs to be a *tokenizer.GPT2",
		`{"Bytes": {"kind": "gpt3"}}`:       `kind is "gpt3"`,
	} {
		check(t, json.Unmarshal([]byte(text), &loaded), want)
	}
	same(t, loaded.Characters, "cab", []int{2, 0, 1})
}

// foreign is a tokenizer of somebody else.
type foreign struct{ tokenizer.Tokenizer }

// full is a writer and reader that fails.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }
func (full) Read([]byte) (int, error)  { return 0, errFull }

func TestSaveLoadErrors(t *testing.T) {
	check(t, tokenizer.Save(&bytes.Buffer{}, foreign{}), "Save: t is a tokenizer_test.foreign")
	check(t, tokenizer.Save(&bytes.Buffer{}, nil), "Save: t is a <nil>")
	check(t, tokenizer.Save(full{}, tokenizer.Bytes{}), "Save: no space left")
	_, err := tokenizer.Load(full{})
	check(t, err, "Load: no space left")
	for text, want := range map[string]string{
		``:                      "unexpected end of JSON",
		`{"kind": "bytes"} x`:   "invalid character 'x'",
		`{}`:                    `kind is "", it needs to be bytes, characters, gpt2 or huggingface`,
		`{"kind": 7}`:           "cannot unmarshal number",
		`{"kind": "characters"`: "unexpected end",
		`{"kind":"characters"}`: "characters is empty",
		`{"kind":"characters","characters":"ba"}`:  "has 'b' before 'a', they need to be in order",
		`{"kind":"characters","characters":"abb"}`: "has 'b' before 'b'",
		`{"kind":"gpt2","vocab":["a"]}`:            "vocab: the byte 0x0",
		`{"kind":"gpt2","vocab":["a","a"]}`:        `vocab: token "a" has the ids 0 and 1`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := tokenizer.Load(strings.NewReader(text))
			check(t, err, want)
			check(t, err, "Load: ")
		})
	}
}

// Whatever a file holds, it is refused or it is a tokenizer that can be saved again.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"kind":"bytes"}`))
	f.Add([]byte(`{"kind":"characters","characters":"ab"}`))
	f.Add([]byte(`{"kind":"gpt2","vocab":["a"],"merges":["a a"],"endOfText":true}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if tok, err := tokenizer.Load(bytes.NewReader(content)); err == nil && reload(t, tok).Size() != tok.Size() {
			t.Fatalf("%q has another size when it was saved", content)
		}
	})
}
