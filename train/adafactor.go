package train

import "github.com/stheno-ml/stheno/kernels"

// Adafactor keeps of the squares of a matrix's gradients the means of rows and columns alone, which
// is little beside the matrix. Its steps are relative to the size of the weights, and the learning
// rate, which usually is 1e-2, is at most 1/√step.
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
	row, column, v := kernels.Adafactor{}.StateShapes(parameter)
	return [][]int{row, column, v}[slot], nil
}

// Validate checks the numbers.
func (a Adafactor) Validate(kernels.DType) error {
	o := a.kernel(kernels.Update{WeightDecay: a.WeightDecay})
	o.Step = 1
	return o.Validate()
}

// Update is one kernel for all parameters.
func (a Adafactor) Update(u Update) error {
	return u.Backend.Adafactor(a.kernel(u.withDecay(a.WeightDecay)), u.Weights, u.Gradients, u.State[0], u.State[1], u.State[2])
}

func (a Adafactor) kernel(u kernels.Update) kernels.Adafactor {
	return kernels.Adafactor{Update: u, Beta2Decay: or(a.Beta2Decay, -0.8), Epsilon: or(a.Epsilon, 1e-3), Clip: or(a.Clip, 1)}
}
