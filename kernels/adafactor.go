package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Adafactor is one step of Adafactor, with PyTorch's arithmetic. It keeps of the squares of a
// matrix's gradients the means r of rows and c of columns alone, and of a vector's the means v of
// each element. With η the learning rate, λ the weight decay, t the step, ϵ the dtype's distance
// from 1 to the next number, and n the number of elements:
//
//	α ← max(Epsilon, √(Σw²/n)) · min(η, 1/√t)
//	w ← (1 − η·λ)·w
//	r ← r + tᵝ·(means of g² along rows − r)      c ← c + tᵝ·(means of g² along columns − c)
//	u ← g / √max(r·c / max(mean of r, ϵ), ϵ²)    of a matrix
//	v ← v + tᵝ·(g² − v)     u ← g / √max(v, ϵ²)  of a vector
//	w ← w − α / max(1, √(Σu²/n)/Clip) · u
//
// A tensor of more than two axes is a list of matrices. α and the clipping are of all its elements.
type Adafactor struct {
	Update
	Beta2Decay float64 // β: negative, or 0 for means that forget all
	Epsilon    float64 // the least size of weights that steps are relative to
	Clip       float64 // the largest root mean square of a step's direction
	Step       int     // t, which counts from 1; not used beside a control vector
}

// StateShapes are the shapes of the means that are kept for weights of a shape: r and c of a
// matrix, v of a vector. The others are nil.
func (o Adafactor) StateShapes(weights []int) (r, c, v []int) {
	axes := len(weights)
	if axes < 2 {
		return nil, nil, append([]int{}, weights...)
	}
	return slices.Clone(weights[:axes-1]), append(slices.Clone(weights[:axes-2]), weights[axes-1]), nil
}

// Matrices is how weights of a shape are cut: into how many matrices, with how many rows and
// columns. A vector is one row.
func (o Adafactor) Matrices(weights []int) (count, rows, columns int) {
	count, rows, columns = 1, 1, 1
	for i, n := range weights {
		switch len(weights) - i {
		case 1:
			columns = n
		case 2:
			rows = n
		default:
			count *= n
		}
	}
	return count, rows, columns
}

// Check returns what is wrong with a call of Adafactor.
func (o Adafactor) Check(w, g, r, c, v []Tensor) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := checkLists(tensorList{"w", w}, tensorList{"g", g}); err != nil {
		return err
	}
	for _, l := range []tensorList{{"r", r}, {"c", c}, {"v", v}} {
		if len(l.tensors) != len(w) {
			return fmt.Errorf("%s has %d tensors, it needs one for each of the %d of w", l.name, len(l.tensors), len(w))
		}
	}
	for i, weights := range w {
		rows, columns, all := o.StateShapes(weights.Shape)
		for _, s := range []struct {
			name   string
			tensor Tensor
			shape  []int
		}{{"r", r[i], rows}, {"c", c[i], columns}, {"v", v[i], all}} {
			if s.shape == nil && !s.tensor.IsSet() {
				continue
			}
			name := fmt.Sprintf("%s[%d]", s.name, i)
			if s.shape == nil {
				return fmt.Errorf("%s is set, it needs to be left out beside weights of shape %v", name, weights.Shape)
			}
			if err := checkOperands(operand{name: name, tensor: s.tensor, shape: s.shape, dtypes: [2]DType{weights.DType}, layout: dense}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate returns what is wrong with the options, or nil.
func (o Adafactor) Validate() error {
	if err := o.Update.Validate(); err != nil {
		return err
	}
	switch {
	case !(o.Beta2Decay <= 0) || math.IsInf(o.Beta2Decay, 0):
		return fmt.Errorf("beta2 decay is %v, it needs to be finite and not positive", o.Beta2Decay)
	case !(o.Epsilon >= 0) || math.IsInf(o.Epsilon, 0):
		return fmt.Errorf("epsilon is %v, it needs to be finite and not negative", o.Epsilon)
	case !(o.Clip > 0) || math.IsInf(o.Clip, 0):
		return fmt.Errorf("clip is %v, it needs to be finite and positive", o.Clip)
	case o.Step < 1 && !o.Control.IsSet():
		return fmt.Errorf("step is %d, it needs to be at least 1", o.Step)
	}
	return nil
}
