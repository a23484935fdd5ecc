package data_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
)

// Tokens are written once, mapped from then on, and split into what is trained on and what is
// validated on.
func Example() {
	directory, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)
	ids := make([]int, 100)
	for i := range ids {
		ids[i] = i
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(directory, "tokens.bin")
	if err := data.Write(path, tokens, data.Raw); err != nil {
		log.Fatal(err)
	}

	opened, err := data.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer opened.Close()
	train, validation, err := opened.Split(0.9)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(train.Len(), validation.Len(), validation.At(0), opened.Max())
	// Output:
	// 90 10 90 99
}

// Batch n is the same whether it is made when it is asked for or ahead of time.
func ExamplePrefetch() {
	tokens, err := data.FromBytes([]byte("H\x00e\x00l\x00l\x00o\x00,\x00 \x00G\x00o\x00"))
	if err != nil {
		log.Fatal(err)
	}
	batches, err := data.Sequential(tokens, 1, 3)
	if err != nil {
		log.Fatal(err)
	}
	ahead, err := data.Prefetch(batches, 0, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer ahead.Close()
	for n := range 3 {
		b, err := ahead.Batch(n)
		if err != nil {
			log.Fatal(err)
		}
		x, y := b["tokens"].Ints(), b["targets"].Ints()
		fmt.Printf("%q → %q\n", []rune{rune(x[0]), rune(x[1]), rune(x[2])}, []rune{rune(y[0]), rune(y[1]), rune(y[2])})
	}
	// Output:
	// ['H' 'e' 'l'] → ['e' 'l' 'l']
	// ['l' 'o' ','] → ['o' ',' ' ']
	// ['H' 'e' 'l'] → ['e' 'l' 'l']
}

// Each example of a data set comes once an epoch, in an order that follows from the seed. Where the
// rows do not divide the number of examples, an epoch begins within a batch.
func ExampleExamples() {
	batches, err := data.Examples(data.Batch{
		"images": tensor.New(tensor.WithShape(3, 2), tensor.WithBacking([]float32{0, 0, 1, 1, 2, 2})),
		"labels": tensor.New(tensor.WithShape(3), tensor.WithBacking([]int{0, 1, 2})),
	}, 2, 7)
	if err != nil {
		log.Fatal(err)
	}
	for n := range 3 {
		b, err := batches.Batch(n)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(b["labels"].Data(), b["images"].Data())
	}
	// Output:
	// [2 1] [2 2 1 1]
	// [0 1] [0 0 1 1]
	// [0 2] [0 0 2 2]
}
