package data

import (
	"math/bits"

	"github.com/stheno-ml/stheno/kernels"
)

// random is what Random makes.
type random struct {
	cutter
	seed uint64
}

// Random makes batches whose rows begin anywhere: at independent, uniformly chosen places, which
// follow from the seed, the batch's number and the row. There are no epochs: some windows come up
// again before others have been seen.
func Random(tokens *Tokens, rows, length int, seed uint64) (Batches, error) {
	c, err := newCutter("Random", tokens, rows, length)
	if err != nil {
		return nil, err
	}
	return &random{c, seed}, nil
}

// Batch returns batch n.
func (r *random) Batch(n int) (Batch, error) {
	starts := uint64(r.tokens.Len() - r.length)
	return r.batch(n, func(row int) int {
		words := draw(r.seed, uint64(n), uint32(row), startStream)
		// The high word of the product is uniform over the starts, to a part in 2⁶⁴/starts.
		start, _ := bits.Mul64(uint64(words[0])<<32|uint64(words[1]), starts)
		return int(start)
	})
}

// The streams keep draws for different purposes apart, and apart from dropout's under the same
// seed, whose last word of the counter is small.
const (
	startStream   = 0xB0000000
	shuffleStream = 0xC0000000 // and the number of a round added
	mixStream     = 0xD0000000 // likewise
)

// draw is four random words that follow from the arguments.
func draw(seed, n uint64, position, stream uint32) [4]uint32 {
	const rounds = 10
	return kernels.Philox(rounds, kernels.PhiloxKey(seed), [4]uint32{uint32(n), uint32(n >> 32), position, stream})
}
