package tokenizer_test

import (
	"bytes"
	"fmt"
	"log"
	"strings"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// The characters of a text are its tokens, in their order.
func ExampleNewCharacters() {
	t, err := tokenizer.NewCharacters("to be, or not to be")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := t.Encode("not to be")
	if err != nil {
		log.Fatal(err)
	}
	text, err := t.Decode(ids)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Size(), ids, text)
	_, err = t.Encode("to bee or to wasp")
	fmt.Println(err)
	// Output:
	// 8 [4 5 7 0 7 5 0 2 3] not to be
	// Characters: text has 'w' at byte 13 (line 1, character 14), it needs to be one of " ,benort"
}

// Frequent words are one token, others are made of parts.
func ExampleOpenGPT2() {
	t, err := tokenizer.OpenGPT2("testdata/vocab.json", "testdata/merges.txt")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := t.Encode("It's the tokenizer")
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		token, err := t.Bytes(id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q ", token)
	}
	// Output:
	// "I" "t" "'s" " the" " token" "izer"
}

// What was saved beside a model is the same tokenizer when it is loaded.
func ExampleSave() {
	t, err := tokenizer.NewCharacters("hello")
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := tokenizer.Save(&file, t); err != nil {
		log.Fatal(err)
	}
	fmt.Print(file.String())
	loaded, err := tokenizer.Load(&file)
	if err != nil {
		log.Fatal(err)
	}
	text, err := loaded.Decode([]int{1, 0, 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// {"kind":"characters","characters":"ehlo"}
	// hel
}

// A tokenizer.json with WordPiece, as BERT has it: the template puts a token before and behind the
// text.
func ExampleReadHuggingFace() {
	t, err := tokenizer.ReadHuggingFace(strings.NewReader(`{
		"added_tokens": [{"id": 0, "content": "[CLS]", "special": true}, {"id": 1, "content": "[SEP]", "special": true}],
		"normalizer": {"type": "BertNormalizer", "clean_text": true, "lowercase": true},
		"pre_tokenizer": {"type": "BertPreTokenizer"},
		"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 0], "sep": ["[SEP]", 1]},
		"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
			"vocab": {"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "stone": 3, "##s": 4, "!": 5}}}`))
	if err != nil {
		log.Fatal(err)
	}
	e, err := t.EncodeWith("Stones, Stone!", tokenizer.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i, id := range e.IDs {
		token, err := t.Token(id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token, e.Offsets[i], " ")
	}
	text, err := t.DecodeText(e.IDs)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: [CLS][0 0] stone[0 5] ##s[5 6] [UNK][6 7] stone[8 13] ![13 14] [SEP][0 0] stones [UNK] stone!
}
