package tokenizer_test

import (
	"bytes"
	"fmt"
	"log"

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
