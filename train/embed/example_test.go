package embed_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/train/embed"
)

// A small model with random weights, as sentence-transformers wrote it, reads two texts that differ
// in capitals alone.
func Example() {
	e, err := embed.Load("testdata/bert", pretrained.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	vectors, err := e.Embed("the cat sat", "The Cat sat")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d numbers, cosine %.3f\n", len(vectors[0]), embed.Cosine(vectors[0], vectors[1]))
	// Output: 16 numbers, cosine 1.000
}
