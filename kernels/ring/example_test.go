package ring_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/kernels/ring"
)

// Each of two ranks holds an early and a late part of a sequence, and so as many pairs that a
// causal mask shows.
func ExampleHeld() {
	const size, length = 2, 16
	for rank := range size {
		held, err := ring.Held(rank, size, length)
		if err != nil {
			log.Fatal(err)
		}
		pairs := 0
		for _, rows := range held {
			fmt.Printf("rank %d: rows %d to %d\n", rank, rows.From, rows.From+rows.Count-1)
			for i := range rows.Count {
				pairs += rows.From + i + 1
			}
		}
		fmt.Printf("rank %d: %d pairs\n", rank, pairs)
	}
	// Output:
	// rank 0: rows 0 to 3
	// rank 0: rows 12 to 15
	// rank 0: 68 pairs
	// rank 1: rows 4 to 7
	// rank 1: rows 8 to 11
	// rank 1: 68 pairs
}
