package data

import (
	"errors"
	"math/bits"
)

// Windows are [Batches] that visit each window of the tokens once an epoch. The windows lie end to
// end: window w begins at token w·length. What is left behind the last one, fewer than length
// tokens and the target after them, is not visited.
type Windows struct {
	cutter
	count int
	order func(epoch, i int) int // the window that comes i-th in an epoch
}

// Sequential makes batches of one window after another, from the first to the last, epoch after
// epoch. Where the rows do not divide the number of windows, a batch holds the end of one epoch and
// the beginning of the next.
func Sequential(tokens *Tokens, rows, length int) (*Windows, error) {
	return newWindows("Sequential", tokens, rows, length, func(_, i int) int { return i })
}

// Shuffled is [Sequential] with the windows of each epoch in another order, which follows from the
// seed and the epoch.
func Shuffled(tokens *Tokens, rows, length int, seed uint64) (*Windows, error) {
	w, err := newWindows("Shuffled", tokens, rows, length, nil)
	if err != nil {
		return nil, err
	}
	w.order = func(epoch, i int) int { return permute(seed, epoch, w.count, i) }
	return w, nil
}

func newWindows(name string, tokens *Tokens, rows, length int, order func(epoch, i int) int) (*Windows, error) {
	c, err := newCutter(name, tokens, rows, length)
	if err != nil {
		return nil, err
	}
	return &Windows{cutter: c, count: (tokens.Len() - 1) / length, order: order}, nil
}

// Count is the number of windows, which are the rows of one epoch.
func (w *Windows) Count() int { return w.count }

// Batch returns batch n.
func (w *Windows) Batch(n int) (Batch, error) {
	if w.count == 0 {
		return nil, errors.New("Windows: it has no tokens, it needs to be made by Sequential or Shuffled")
	}
	return w.batch(n, func(row int) int {
		i := n*w.rows + row
		return w.length * w.order(i/w.count, i%w.count)
	})
}

// permute is a permutation of 0..count-1 for each seed and epoch, computed for one i alone, in
// constant time and without memory: a Feistel network permutes the numbers below the next power of
// four, and numbers that are not below count are permuted again until they are, which takes fewer
// than four tries on average.
func permute(seed uint64, epoch, count, i int) int {
	return permuteIn(shuffleStream, seed, uint64(epoch), count, i)
}

// permuteIn is permute for draws of some stream and number n.
func permuteIn(stream uint32, seed, n uint64, count, i int) int {
	half := (bits.Len64(uint64(count-1)) + 1) / 2
	mask := uint64(1)<<half - 1
	x := uint64(i)
	for {
		left, right := x>>half, x&mask
		for round := range uint32(shuffleRounds) {
			word := draw(seed, n, uint32(right), stream+round)[0]
			left, right = right, left^uint64(word)&mask
		}
		x = left<<half | right
		if x < uint64(count) {
			return int(x)
		}
	}
}

// shuffleRounds is enough for a good permutation where the network is only a few bits wide.
const shuffleRounds = 8
