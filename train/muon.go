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

// Update changes all matrices of one shape together, and as many at once as there are ranks that
// share the state.
func (m Muon) Update(u Update) error {
	decided, err := u.unscaled()
	if err != nil {
		return err
	}
	if u.shared != nil {
		return m.updateShared(u, decided)
	}
	for _, list := range alike(u.Weights) {
		if err := m.updateAlike(u, decided, list); err != nil {
			return fmt.Errorf("%s: %w", u.Names[list[0]], err)
		}
	}
	return nil
}

// alike lists matrices of one shape together, as many as one product is to compute with.
func alike(weights []kernels.Tensor) (lists [][]int) {
	const most = 1 << 25 // elements, which fill a GPU
	open := map[[2]int]int{}
	for i, w := range weights {
		shape := [2]int(w.Shape)
		at, ok := open[shape]
		if !ok || (len(lists[at])+1)*w.Elements() > most {
			at = len(lists)
			open[shape], lists = at, append(lists, nil)
		}
		lists[at] = append(lists[at], i)
	}
	return lists
}

// updateAlike changes matrices of one shape.
func (m Muon) updateAlike(u Update, decided kernels.Update, list []int) error {
	shape := u.Weights[list[0]].Shape
	all, err := u.Scratch(scratchMatrix, u.Weights[list[0]].DType, len(list), shape[0], shape[1])
	if err != nil {
		return err
	}
	directions := matricesOf(all)
	if err := u.Backend.Fill(all, 0); err != nil {
		return err
	}
	if err := m.move(u, list, directions); err != nil {
		return err
	}
	if err := m.orthogonal(u, all); err != nil {
		return err
	}
	return m.step(u, decided, list, directions, shape)
}

// matricesOf are the matrices of a stack.
func matricesOf(stack kernels.Tensor) []kernels.Tensor {
	list := make([]kernels.Tensor, stack.Shape[0])
	for k := range list {
		list[k] = stack.Slice(0, k, k+1).Reshape(stack.Shape[1:]...)
	}
	return list
}

// chosen are the tensors that a list of numbers names.
func chosen(all []kernels.Tensor, list []int) []kernels.Tensor {
	tensors := make([]kernels.Tensor, len(list))
	for k, i := range list {
		tensors[k] = all[i]
	}
	return tensors
}

// step changes weights, all of each matrix or a part, along directions that orthogonal left. The
// rows of our weights are inputs, those of Muon's definition are outputs.
func (m Muon) step(u Update, decided kernels.Update, list []int, directions []kernels.Tensor, matrix []int) error {
	in, out := float64(matrix[0]), float64(matrix[1])
	ratio := math.Sqrt(max(1, out/in))
	if m.MatchAdamW {
		ratio = 0.2 * math.Sqrt(max(in, out))
	}
	ratio *= schulzUnit
	step := kernels.SGD{Update: decided, Decoupled: true}
	step.LearningRate *= ratio
	step.WeightDecay *= m.WeightDecay / ratio
	return u.Backend.SGD(step, chosen(u.Weights, list), directions, nil)
}

// move takes the gradients of matrices, or of parts of them, into their momenta, and gives in y,
// which is zero, where those point. It stays zero in a step that is to be skipped.
func (m Muon) move(u Update, list []int, y []kernels.Tensor) error {
	// A step from zero leaves what a step adds, and keeps the momentum as the device decides. Its
	// size does not matter: the direction is divided by it.
	moved := kernels.SGD{Update: u.Update, Momentum: or(m.Momentum, 0.95), Nesterov: !m.Plain}
	moved.LearningRate, moved.WeightDecay = 1<<14, 0 // beside the epsilon below, any rate is then large
	return u.Backend.SGD(moved, y, chosen(u.Gradients, list), chosen(u.State[0], list))
}

// orthogonal puts into the matrices of a stack, (matrices, rows, columns), the nearest ones to
// their negatives whose rows or columns are orthogonal, over schulzUnit.
func (m Muon) orthogonal(u Update, y kernels.Tensor) error {
	dtype, count, rows, columns := y.DType, y.Shape[0], y.Shape[1], y.Shape[2]
	if _, ok := u.Backend.(kernels.Rounder); ok && dtype == kernels.F32 {
		dtype = kernels.F16 // for products as fast as a device has them: numbers are small here
	}
	small := min(rows, columns)
	square := []int{count, small, small}
	var rooms [7]kernels.Tensor
	for k, shape := range [7][]int{y.Shape, y.Shape, square, square, square, square, square} {
		var err error
		if rooms[k], err = u.Scratch(scratchMatrix+1+k, dtype, shape...); err != nil {
			return err
		}
	}
	x, next := rooms[0], rooms[1]
	if err := minusUnits(u, y, x); err != nil {
		return err
	}
	together := 1
	if max(rows, columns) >= 2*small {
		together = 3 // products of square matrices are the smaller ones then
	}
	for left := cmp.Or(m.Iterations, 5); left > 0; x, next = next, x {
		n := min(together, left)
		if left -= n; left == 0 {
			next = y
		}
		if err := newtonSchulz(u.Backend, x, next, [5]kernels.Tensor(rooms[2:]), n); err != nil {
			return err
		}
	}
	return nil
}

// minusUnits is x = −y/(|y|·schulzUnit) of each matrix of a stack, and zero where y is. It may
// change y.
func minusUnits(u Update, y, x kernels.Tensor) error {
	count, columns := y.Shape[0], y.Shape[2]
	var rooms [3]kernels.Tensor
	for k, room := range [3]struct {
		dtype kernels.DType
		shape []int
	}{{kernels.F64, []int{count}}, {y.DType, []int{count}}, {y.DType, []int{count, columns}}} {
		var err error
		if rooms[k], err = u.Scratch(scratchMatrix+8+k, room.dtype, room.shape...); err != nil {
			return err
		}
	}
	squares, norms, rows := rooms[0], rooms[1], rooms[2]
	eachNorm, eachRow := norms, rows
	eachNorm.Shape, eachNorm.Strides = rows.Shape, []int{1, 0}
	eachRow.Shape, eachRow.Strides = y.Shape, []int{columns, 0, 1}
	quotient := y
	if x.DType == y.DType {
		quotient = x
	}
	err := firstError(
		u.Backend.SumSquares(matricesOf(y), squares),
		u.Backend.Copy(norms, squares),
		u.Backend.AddScalar(1e-30, norms, norms),
		u.Backend.Apply(kernels.Sqrt, norms, norms),
		u.Backend.MulScalar(-schulzUnit, norms, norms),
		u.Backend.Copy(rows, eachNorm), // so that whole rows are divided at once
		u.Backend.Div(y, eachRow, quotient),
	)
	if err != nil || x.DType == y.DType {
		return err
	}
	return u.Backend.Copy(x, y)
}

// newtonSchulz makes the singular values of matrices y nearer to 1 than those of x, by a polynomial
// that is steep at zero and ends between 0.7 and 1.2, which is applied n times:
//
//	A = x·xᵀ   P = a + b·A + c·A²   y = P·x   y·yᵀ = P·A·P
//
// or by A = xᵀ·x from the other side, whichever is smaller. All n polynomials are multiplied before
// x is. Where there are many, their product is large beside what it leaves of the largest singular
// values, and so are the errors of its numbers. In units of schulzUnit, c is 1, so that
//
//	P = (A + b/2)² + a − b²/4
//
// which is one product, and two sums with a diagonal.
func newtonSchulz(backend kernels.Backend, x, y kernels.Tensor, square [5]kernels.Tensor, n int) (err error) {
	product := func(left, right, into kernels.Tensor) {
		if err == nil {
			err = backend.MatMul(&kernels.MatMul{A: left, B: right}, kernels.MatMulOutputs{C: into})
		}
	}
	addToDiagonal := func(t kernels.Tensor, number float64) {
		side := t.Shape[1]
		t.Shape, t.Strides = []int{t.Shape[0], side, 1}, []int{side * side, side + 1, 1}
		if err == nil {
			err = backend.AddScalar(number, t, t)
		}
	}
	turned, wide := x.Permute(0, 2, 1), x.Shape[1] <= x.Shape[2]
	a, beside, p, all, next := square[0], square[1], square[2], square[3], square[4]
	if wide {
		product(x, turned, a)
	} else {
		product(turned, x, a)
	}
	for k := range n {
		goesOn, shifted := k < n-1, a
		if goesOn && err == nil {
			shifted, err = beside, backend.Copy(beside, a)
		}
		addToDiagonal(shifted, schulzHalf)
		product(shifted, shifted, p)
		addToDiagonal(p, schulzA-schulzHalf*schulzHalf)
		if goesOn {
			product(p, a, beside)
			product(beside, p, a)
		}
		if k == 0 {
			p, all = all, p
			continue
		}
		product(p, all, next)
		all, next = next, all
	}
	if wide {
		product(all, x, y)
	} else {
		product(x, all, y)
	}
	return err
}

// The polynomial a·x + b·x³ + c·x⁵ of Muon.
const schulzA, schulzB, schulzC = 3.4445, -4.7750, 2.0315

// schulzUnit is c^(−1/4): with x = schulzUnit·z the polynomial is a·z + b·schulzUnit²·z³ + z⁵.
// schulzHalf is half of its middle number.
var (
	schulzUnit = math.Pow(schulzC, -0.25)
	schulzHalf = schulzB / (2 * math.Sqrt(schulzC))
)
