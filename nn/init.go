package nn

import (
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// initializer makes the first value of a parameter; its random numbers follow from the two words.
type initializer func(seed [2]uint64, dtype tensor.Dtype, shape []int) *tensor.Dense

// gpt2Std is the standard deviation of weights and embeddings in GPT-2 and in Llama.
const gpt2Std = 0.02

// normal draws from a normal distribution with mean 0.
func normal(std float64) initializer {
	return func(seed [2]uint64, dtype tensor.Dtype, shape []int) *tensor.Dense {
		r := rand.New(rand.NewPCG(seed[0], seed[1]))
		return fill(dtype, shape, func() float64 { return std * r.NormFloat64() })
	}
}

// uniform draws uniformly between −bound and bound.
func uniform(bound float64) initializer {
	return func(seed [2]uint64, dtype tensor.Dtype, shape []int) *tensor.Dense {
		r := rand.New(rand.NewPCG(seed[0], seed[1]))
		return fill(dtype, shape, func() float64 { return bound * (2*r.Float64() - 1) })
	}
}

// constant gives all elements one value.
func constant(x float64) initializer {
	return func(_ [2]uint64, dtype tensor.Dtype, shape []int) *tensor.Dense {
		return fill(dtype, shape, func() float64 { return x })
	}
}

// fill makes a value of elements that next gives in row-major order. The numbers do not depend on the type but for
// rounding. The values' gradients are clones of them, to which a machine adds by their engine.
func fill(dtype tensor.Dtype, shape []int, next func() float64) *tensor.Dense {
	n := tensor.Shape(shape).TotalSize()
	if dtype == tensor.Float64 {
		data := make([]float64, n)
		for i := range data {
			data[i] = next()
		}
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data), tensor.WithEngine(ops.Engine()))
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(next())
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data), tensor.WithEngine(ops.Engine()))
}
