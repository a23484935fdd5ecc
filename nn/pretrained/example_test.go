package pretrained_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/nn/pretrained"
)

// A small OLMo 2 with random weights, as transformers wrote it, goes on from three tokens, always
// with the likeliest.
func Example() {
	m, err := pretrained.Load("testdata/olmo2", pretrained.Options{})
	if err != nil {
		log.Fatal(err)
	}
	decoder, err := m.NewDecoder(0)
	if err != nil {
		log.Fatal(err)
	}
	next := []int{3, 1, 4}
	for range 5 {
		logits, err := decoder.Logits(next)
		if err != nil {
			log.Fatal(err)
		}
		best := 0
		for id, x := range logits {
			if x > logits[best] {
				best = id
			}
		}
		next = []int{best}
	}
	fmt.Println(m.Family(), decoder.Window())
	// Output: olmo2 [3 1 4 13 1 45 3]
}
