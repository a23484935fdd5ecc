package train

import (
	"cmp"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Muon moves each matrix along the nearest matrix with orthogonal rows or columns to a momentum of
// its gradient, which it finds by Newton and Schulz's iteration: products of matrices, which run on
// any device. It trains the matrices inside of a model. Embeddings, heads, biases and the scales of
// norms want another optimiser, as a group of [Options] gives it:
//
//	Optimizer: train.Muon{WeightDecay: 0.1}, Options: train.Options{Groups: []train.Group{{
//		Match: train.Any(train.Vectors, train.Named("tokens.*", "positions.*")), Optimizer: train.AdamW{}, LearningRateScale: 0.1,
//	}}, ...}
type Muon struct {
	Momentum    float64 // 0 means 0.95
	Plain       bool    // the momentum itself, without Nesterov's look ahead
	Iterations  int     // of Newton and Schulz; 0 means 5
	MatchAdamW  bool    // steps as large as AdamW's, so that both take one rate: 0.2·√(larger side)
	WeightDecay float64 // a step multiplies weights by 1 − learning rate · this; 0 means none
}

// Name is Muon.
func (m Muon) Name() string { return "Muon" }

// State is the momentum, m.
func (m Muon) State() []string { return []string{"m"} }

// StateShape is that of the parameter, which needs to be a matrix.
func (m Muon) StateShape(_ int, parameter []int) ([]int, error) {
	if len(parameter) != 2 {
		return nil, fmt.Errorf("has shape %v, Muon needs a matrix: a group with another optimizer takes the rest", parameter)
	}
	return parameter, nil
}

// Validate checks momentum, iterations and decay.
func (m Muon) Validate(kernels.DType) error {
	if m.Iterations < 0 || m.Iterations > 100 {
		return fmt.Errorf("iterations is %d, it needs to be from 1 to 100, or 0 for 5", m.Iterations)
	}
	return kernels.SGD{Update: kernels.Update{WeightDecay: m.WeightDecay}, Momentum: or(m.Momentum, 0.95), Decoupled: true}.Validate()
}

// Update changes one matrix after the other, or as many at once as there are ranks that share the
// state.
func (m Muon) Update(u Update) error {
	decided, err := u.unscaled()
	if err != nil {
		return err
	}
	if u.shared != nil {
		return m.updateShared(u, decided)
	}
	for i, w := range u.Weights {
		y, err := u.Scratch(scratchMatrix, w.DType, w.Shape...)
		if err == nil {
			err = m.move(u, i, y)
		}
		if err == nil {
			y, err = m.orthogonal(u, y)
		}
		if err == nil {
			err = m.step(u, decided, i, y, w.Shape)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", u.Names[i], err)
		}
	}
	return nil
}

// step changes weights, all of a matrix or a part, along a direction. The rows of our weights are
// inputs, those of Muon's definition are outputs.
func (m Muon) step(u Update, decided kernels.Update, i int, direction kernels.Tensor, matrix []int) error {
	in, out := float64(matrix[0]), float64(matrix[1])
	ratio := math.Sqrt(max(1, out/in))
	if m.MatchAdamW {
		ratio = 0.2 * math.Sqrt(max(in, out))
	}
	step := kernels.SGD{Update: decided, Decoupled: true}
	step.LearningRate *= ratio
	step.WeightDecay *= m.WeightDecay / ratio
	return u.Backend.SGD(step, u.Weights[i:i+1], []kernels.Tensor{direction}, nil)
}

// move takes the gradient of a matrix, or of a part of it, into its momentum, and gives in y where
// that points. It is zero in a step that is to be skipped.
func (m Muon) move(u Update, i int, y kernels.Tensor) error {
	// A step from zero leaves what a step adds, and keeps the momentum as the device decides. Its
	// size does not matter: the direction is divided by it.
	if err := u.Backend.Fill(y, 0); err != nil {
		return err
	}
	moved := kernels.SGD{Update: u.Update, Momentum: or(m.Momentum, 0.95), Nesterov: !m.Plain}
	moved.LearningRate, moved.WeightDecay = 1<<14, 0 // beside the epsilon below, any rate is then large
	return u.Backend.SGD(moved, []kernels.Tensor{y}, u.Gradients[i:i+1], u.State[0][i:i+1])
}

// orthogonal is the nearest matrix to −y whose rows or columns are orthogonal, in scratch memory.
func (m Muon) orthogonal(u Update, y kernels.Tensor) (x kernels.Tensor, err error) {
	small := min(y.Shape[0], y.Shape[1])
	var rooms [3]kernels.Tensor
	for k, shape := range [3][]int{y.Shape, {small, small}, {small, small}} {
		if rooms[k], err = u.Scratch(scratchMatrix+1+k, y.DType, shape...); err != nil {
			return x, err
		}
	}
	x = rooms[0]
	n := y.Elements()
	unit := kernels.Norm{RMS: true, X: y.Reshape(1, n), Eps: 1e-30}
	if err := u.Backend.NormForward(&unit, kernels.NormOutputs{Y: x.Reshape(1, n)}); err != nil {
		return x, err
	}
	if err := u.Backend.MulScalar(-1/math.Sqrt(float64(n)), x, x); err != nil {
		return x, err
	}
	for range cmp.Or(m.Iterations, 5) {
		if err := newtonSchulz(u.Backend, x, y, rooms[1], rooms[2]); err != nil {
			return x, err
		}
		x, y = y, x
	}
	return x, nil
}

// newtonSchulz makes the singular values of y nearer to 1 than those of x, by a polynomial that is
// steep at zero and ends between 0.7 and 1.2:
//
//	A = x·xᵀ   y = a·x + (b·A + c·A²)·x
//
// or by A = xᵀ·x from the other side, whichever is smaller. A GPU may round float32 to TF32 here,
// which is faster: the singular values end further from 1 than that.
func newtonSchulz(backend kernels.Backend, x, y, a, polynomial kernels.Tensor) error {
	product := func(left, right, into kernels.Tensor, adds bool) error {
		return backend.MatMul(&kernels.MatMul{A: left, B: right, Accumulate: adds, Precision: kernels.PrecisionTF32}, kernels.MatMulOutputs{C: into})
	}
	turned, wide := x.Permute(1, 0), x.Shape[0] <= x.Shape[1]
	left, right := x, turned
	if !wide {
		left, right = turned, x
	}
	if err := product(left, right, a, false); err != nil {
		return err
	}
	between, beside := polynomial, x
	if !wide {
		between, beside = x, polynomial
	}
	return firstError(
		backend.MulScalar(schulzB/schulzC, a, polynomial), // c multiplies this and A²
		product(a, a, polynomial, true),
		backend.MulScalar(schulzC, polynomial, polynomial),
		backend.MulScalar(schulzA, x, y),
		product(between, beside, y, true),
	)
}

// The polynomial a·x + b·x³ + c·x⁵ of Muon.
const schulzA, schulzB, schulzC = 3.4445, -4.7750, 2.0315
