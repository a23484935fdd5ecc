package distributed_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/distributed"
)

// A program that a launcher starts once for each GPU adds up numbers of all of them. Without a
// launcher it is a group of one.
func ExampleJoin() {
	config, err := distributed.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	group, err := distributed.Join(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()

	x := []float32{1, 2}
	if err := group.Sum(kernels.Of(x, len(x))); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d of %d has the sum %v\n", group.Rank(), group.Size(), x)
	// Output: rank 0 of 1 has the sum [1 2]
}
