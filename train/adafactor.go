package train

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// Adafactor keeps of the squares of a matrix's gradients the means of rows and columns alone, which
// is little beside the matrix. Its steps are relative to the size of the weights, and the learning
// rate, which usually is 1e-2, is at most 1/√step. It computes on the host: a GPU returns an error
// that wraps [errors.ErrUnsupported].
type Adafactor struct {
	Beta2Decay  float64 // the means forget as step to the power of this; 0 means −0.8
	Epsilon     float64 // the least size of weights that steps are relative to; 0 means 1e-3
	Clip        float64 // the largest root mean square of a step's direction; 0 means 1
	WeightDecay float64 // a step multiplies weights by 1 − learning rate · this; 0 means none
}

// Name is Adafactor.
func (a Adafactor) Name() string { return "Adafactor" }

// State is the means of squares: of rows and of columns of matrices, of each element of vectors.
func (a Adafactor) State() []string { return []string{"row", "column", "v"} }

// StateShape is that of one of the means.
func (a Adafactor) StateShape(slot int, parameter []int) ([]int, error) {
	axes := len(parameter)
	switch {
	case axes < 2 && slot == 2:
		return parameter, nil
	case axes < 2 || slot == 2:
		return nil, nil
	case slot == 0:
		return parameter[: axes-1 : axes-1], nil
	}
	return append(parameter[:axes-2:axes-2], parameter[axes-1]), nil
}

// Validate checks the numbers.
func (a Adafactor) Validate(kernels.DType) error {
	for _, c := range []struct {
		name     string
		x, least float64
	}{{"epsilon", a.Epsilon, 0}, {"clip", a.Clip, 0}, {"weight decay", a.WeightDecay, 0}, {"beta2 decay", -a.Beta2Decay, 0}} {
		if !(c.x >= c.least) || math.IsInf(c.x, 0) {
			return fmt.Errorf("%s is %v, it needs to be finite and of the usual sign, or 0", c.name, c.x)
		}
	}
	return nil
}

// Update changes one parameter after the other, on the host.
func (a Adafactor) Update(u Update) error {
	if u.Control.Owner != nil {
		return kernels.Unsupported{Device: u.Backend.Name(), What: "Adafactor"}
	}
	return u.EachOnHost(func(p Parameter) error {
		if p.Weights.Dtype() == tensor.Float64 {
			adafactor(a, p, 0x1p-52, func(t *tensor.Dense) []float64 { return t.Float64s() })
		} else {
			adafactor(a, p, 0x1p-23, func(t *tensor.Dense) []float32 { return t.Float32s() })
		}
		return nil
	})
}

// adafactor is one step of a parameter, with PyTorch's arithmetic but for sums, which are float64.
func adafactor[T kernels.Float](a Adafactor, p Parameter, machineEpsilon float64, of func(*tensor.Dense) []T) {
	w, g := of(p.Weights), of(p.Gradient)
	step, n := float64(p.Step), float64(len(w))
	forget := T(math.Pow(step, or(a.Beta2Decay, -0.8)))
	size := max(or(a.Epsilon, 1e-3), math.Sqrt(sumSquares(w)/n))
	rate := size * min(p.LearningRate, 1/math.Sqrt(step))
	if decay := p.WeightDecay * a.WeightDecay; decay != 0 {
		multiply(w, T(1-p.LearningRate*decay))
	}
	least := T(machineEpsilon * machineEpsilon)
	shape := p.Weights.Shape()
	if len(shape) < 2 {
		v := of(p.State[2])
		for i, x := range g {
			v[i] += forget * (x*x - v[i])
			g[i] = x / T(math.Sqrt(float64(max(v[i], least))))
		}
	} else {
		rows, columns := shape[len(shape)-2], shape[len(shape)-1]
		row, column := of(p.State[0]), of(p.State[1])
		for i := range len(g) / (rows * columns) {
			factored(g[i*rows*columns:][:rows*columns], row[i*rows:][:rows], column[i*columns:][:columns], forget, T(machineEpsilon))
		}
	}
	rate /= max(1, math.Sqrt(sumSquares(g)/n)/or(a.Clip, 1))
	for i, x := range g {
		w[i] -= T(rate) * x
	}
}

// factored divides the gradients of a matrix by the roots of the means of their squares, which it
// takes for the product of a row's and a column's.
func factored[T kernels.Float](g, row, column []T, forget, epsilon T) {
	sums := make([]float64, len(column))
	total := 0.0
	for i := range row {
		sum := 0.0
		for j, x := range g[i*len(column):][:len(column)] {
			square := float64(x) * float64(x)
			sum, sums[j] = sum+square, sums[j]+square
		}
		row[i] += forget * (T(sum/float64(len(column))) - row[i])
		total += float64(row[i])
	}
	for j := range column {
		column[j] += forget * (T(sums[j]/float64(len(row))) - column[j])
	}
	mean := max(T(total/float64(len(row))), epsilon)
	for i := range row {
		for j := range column {
			g[i*len(column)+j] /= T(math.Sqrt(float64(max(row[i]*column[j]/mean, epsilon*epsilon))))
		}
	}
}

func sumSquares[T kernels.Float](list []T) (sum float64) {
	for _, x := range list {
		sum += float64(x) * float64(x)
	}
	return sum
}
