package main

import (
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
)

// random makes the numbers of a case, the same in every run.
type random struct{ *rand.Rand }

func newRandom() random { return random{rand.New(rand.NewPCG(1, 2))} }

// period is after how many numbers a long list repeats itself: an odd number, so that no two of its
// rows are alike.
const period = 1<<20 + 7

// numbers are normal.
func (r random) numbers(n int) []float32 {
	list := make([]float32, n)
	for i := range min(n, period) {
		list[i] = float32(r.NormFloat64())
	}
	for done := period; done < n; {
		done += copy(list[done:], list[:period])
	}
	return list
}

// tensor is a tensor of normal numbers.
func (r random) tensor(shape ...int) kernels.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return kernels.Of(r.numbers(n), shape...)
}

// indices are numbers below a limit.
func (r random) indices(n, limit int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = r.Int32N(int32(limit))
	}
	return list
}
