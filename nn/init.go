package nn

import (
	"errors"
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// Init is how a parameter of a shape begins: it returns what gives its elements, in row-major
// order, from random numbers of r.
type Init func(shape []int, r *rand.Rand) (next func() float64)

// Normal draws from a normal distribution with mean 0.
func Normal(std float64) Init {
	return func(_ []int, r *rand.Rand) func() float64 {
		return func() float64 { return std * r.NormFloat64() }
	}
}

// Uniform draws from -bound to bound, each as likely.
func Uniform(bound float64) Init {
	return func(_ []int, r *rand.Rand) func() float64 {
		return func() float64 { return bound * (2*r.Float64() - 1) }
	}
}

// Constant gives all elements one value.
func Constant(x float64) Init {
	return func([]int, *rand.Rand) func() float64 { return func() float64 { return x } }
}

// Zero gives all elements 0.
var Zero = Constant(0)

// FanIn is [Normal] with a standard deviation of 1/√in for a parameter of shape (in, ...), so that
// a linear layer's result is as large as what it is made of. It is how linear layers begin that are
// told nothing else.
func FanIn(shape []int, r *rand.Rand) func() float64 {
	return Normal(1/math.Sqrt(float64(shape[0])))(shape, r)
}

// ofDepth is [FanIn] for what blocks add to x: less, the more blocks add something, so that the sum
// is about as large whatever the depth.
func ofDepth(layers int) Init {
	return func(shape []int, r *rand.Rand) func() float64 {
		return Normal(1/math.Sqrt(float64(shape[0])*2*float64(layers)))(shape, r)
	}
}

// firstTimes is an Init of a weight (in, out) whose first columns are multiplied by a factor.
func firstTimes(init Init, columns int, factor float64) Init {
	if factor == 1 {
		return init
	}
	return func(shape []int, r *rand.Rand) func() float64 {
		next, column := init(shape, r), -1
		return func() float64 {
			if column++; column == shape[1] {
				column = 0
			}
			if column < columns {
				return factor * next()
			}
			return next()
		}
	}
}

// gpt2Std is the standard deviation of embeddings, and of the weights of GPT-2, BERT and Llama.
const gpt2Std = 0.02

// initOr is an Init, or another where it is nil.
func initOr(init, otherwise Init) Init {
	if init == nil {
		return otherwise
	}
	return init
}

// first makes the first value of a parameter; its random numbers follow from the two words. They do
// not depend on the type but for rounding. The value's gradients are clones of it, to which a
// machine adds by their engine.
func (init Init) first(seed [2]uint64, dtype tensor.Dtype, shape []int) (*tensor.Dense, error) {
	next := init(shape, rand.New(rand.NewPCG(seed[0], seed[1])))
	if next == nil {
		return nil, errors.New("its Init gave nil, it needs to give a function")
	}
	return fill(dtype, shape, next), nil
}

// filled is a value of equal elements.
func filled(x float64, dtype tensor.Dtype, shape []int) *tensor.Dense {
	return fill(dtype, shape, func() float64 { return x })
}

// fill makes a value of elements that next gives in row-major order.
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
