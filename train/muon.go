package train

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

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

// Update changes all matrices of one smaller side together, and as many at once as there are ranks
// that share the state.
func (m Muon) Update(u Update) error {
	decided, err := u.unscaled()
	if err != nil {
		return err
	}
	if u.shared != nil {
		return m.updateShared(u, decided)
	}
	shapes := make([][]int, len(u.Weights))
	for i, w := range u.Weights {
		shapes[i] = w.Shape
	}
	for _, group := range together(shapes, 1) {
		if err := m.updateTogether(u, decided, group); err != nil {
			return fmt.Errorf("%s: %w", u.Names[group[0][0]], err)
		}
	}
	return nil
}

// together lists matrices of one smaller side, as many as one product is to compute with on each
// rank, by their shapes.
func together(shapes [][]int, ranks int) (groups [][][]int) {
	const mostSquares, most = 1 << 25, 1 << 27 // elements: they fill a GPU, and take a little of its memory
	type open struct{ at, squares, elements int }
	bySide, places := map[int]*open{}, map[[2]int]int{}
	for i := range shapes {
		shape := [2]int(shapes[i])
		side, n := min(shape[0], shape[1]), shape[0]*shape[1]
		o := bySide[side]
		if o == nil || o.squares+side*side > mostSquares*ranks || o.elements+n > most*ranks {
			o = &open{at: len(groups)}
			bySide[side], groups = o, append(groups, nil)
			maps.DeleteFunc(places, func(s [2]int, _ int) bool { return min(s[0], s[1]) == side })
		}
		o.squares, o.elements = o.squares+side*side, o.elements+n
		place, ok := places[shape]
		if !ok {
			place = len(groups[o.at])
			places[shape], groups[o.at] = place, append(groups[o.at], nil)
		}
		groups[o.at][place] = append(groups[o.at][place], i)
	}
	return groups
}

// updateTogether changes matrices of one smaller side, of which each list has one shape.
func (m Muon) updateTogether(u Update, decided kernels.Update, lists [][]int) error {
	var shapes [][]int
	all := slices.Concat(lists...)
	for _, list := range lists {
		shapes = append(shapes, append([]int{len(list)}, u.Weights[list[0]].Shape...))
	}
	y, err := u.stacks(scratchMatrix, u.Weights[all[0]].DType, shapes)
	if err != nil {
		return err
	}
	squares, err := u.squaresOf(len(all))
	if err != nil {
		return err
	}
	if err := m.move(u, all, y.matrices(), squares); err != nil {
		return err
	}
	directions, err := m.orthogonal(u, y, squares)
	if err != nil {
		return err
	}
	for k, list := range lists {
		if err := m.step(u, decided, list, matricesOf(directions.list[k]), shapes[k][1:]); err != nil {
			return err
		}
	}
	return nil
}

// squaresOf is scratch memory for the sums of the squares of so many matrices.
func (u Update) squaresOf(matrices int) (kernels.Tensor, error) {
	return u.Scratch(scratchMatrix+8, kernels.F64, matrices)
}

// stacks are matrices of some shapes in one piece of memory: a stack of each shape, (matrices,
// rows, columns).
type stacks struct {
	all  kernels.Tensor
	list []kernels.Tensor
}

// stacks are some in scratch memory.
func (u Update) stacks(scratch int, dtype kernels.DType, shapes [][]int) (s stacks, err error) {
	n := 0
	for _, shape := range shapes {
		n += elements(shape)
	}
	s.all, err = u.Scratch(scratch, dtype, n)
	at := 0
	for _, shape := range shapes {
		s.list = append(s.list, s.all.Slice(0, at, at+elements(shape)).Reshape(shape...))
		at += elements(shape)
	}
	return s, err
}

func (s stacks) matrices() (list []kernels.Tensor) {
	for _, stack := range s.list {
		list = append(list, matricesOf(stack)...)
	}
	return list
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

// move takes the gradients of matrices, or of parts of them, into their momenta, and gives in y
// where a step goes, and the sums of its squares, unless these are left out: zeros in a step that
// is to be skipped.
func (m Muon) move(u Update, list []int, y []kernels.Tensor, squares kernels.Tensor) error {
	o := kernels.SGD{Update: u.Update, Momentum: or(m.Momentum, 0.95), Nesterov: !m.Plain}
	return u.Backend.Momentum(o, chosen(u.Gradients, list), chosen(u.State[0], list), y, squares)
}

// productType is what matrices of a type are multiplied in, and so that of directions: as fast as a
// device has it. Their numbers are small.
func (u Update) productType(dtype kernels.DType) kernels.DType {
	if _, ok := u.Backend.(kernels.Rounder); ok && dtype == kernels.F32 {
		return kernels.F16
	}
	return dtype
}

// orthogonal gives the nearest matrices to the negatives of some of one smaller side whose rows or
// columns are orthogonal, over schulzUnit. It is told the sums of their squares, and may write over
// them.
func (m Muon) orthogonal(u Update, y stacks, squares kernels.Tensor) (x stacks, err error) {
	dtype, shapes, count := u.productType(y.all.DType), make([][]int, len(y.list)), 0
	for k, stack := range y.list {
		shapes[k] = stack.Shape
		count += stack.Shape[0]
	}
	if x, err = u.stacks(scratchMatrix+1, dtype, shapes); err != nil {
		return x, err
	}
	next := y
	if dtype != y.all.DType {
		if next, err = u.stacks(scratchMatrix+2, dtype, shapes); err != nil {
			return x, err
		}
	}
	small := min(shapes[0][1], shapes[0][2])
	var square [5]kernels.Tensor
	for k := range square {
		if square[k], err = u.Scratch(scratchMatrix+3+k, dtype, count, small, small); err != nil {
			return x, err
		}
	}
	if err := u.Backend.Normalize(y.matrices(), squares, -1/schulzUnit, x.matrices()); err != nil {
		return x, err
	}
	const most = 3 // of more polynomials at once, float16 has too few digits
	for left := cmp.Or(m.Iterations, 5); left > 0; x, next = next, x {
		n := min(most, left)
		left -= n
		if err := newtonSchulz(u.Backend, x.list, next.list, square, n); err != nil {
			return x, err
		}
	}
	return x, nil
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
// which is one product, and two sums with a diagonal that products leave with. All products but
// that with x are symmetric.
func newtonSchulz(backend kernels.Backend, x, y []kernels.Tensor, square [5]kernels.Tensor, n int) (err error) {
	product := func(left, right kernels.Tensor, epilogue kernels.Epilogue, into kernels.Tensor) {
		if err == nil {
			err = backend.MatMul(&kernels.MatMul{A: left, B: right, Epilogue: epilogue}, kernels.MatMulOutputs{C: into})
		}
	}
	// squares multiplies polynomials of A, and adds to the diagonal. The product is symmetric too.
	squares := func(left, right kernels.Tensor, diagonal float64, into kernels.Tensor) {
		product(left, right.Permute(0, 2, 1), kernels.Symmetric{Diagonal: diagonal}, into)
	}
	// each calls do with each stack, its transposes, and the place of its square matrices.
	each := func(do func(k int, x, turned kernels.Tensor, at int, wide bool)) {
		at := 0
		for k, x := range x {
			do(k, x, x.Permute(0, 2, 1), at, x.Shape[1] <= x.Shape[2])
			at += x.Shape[0]
		}
	}
	a, shifted, p, all, next := square[0], square[1], square[2], square[3], square[4]
	// shift gives A in the one of n polynomials that is before others, and the base of its square.
	shift := func(k int, a kernels.Tensor) kernels.Symmetric {
		if k == n-1 {
			return kernels.Symmetric{Diagonal: schulzHalf}
		}
		return kernels.Symmetric{Diagonal: schulzHalf, Pre: a}
	}
	each(func(_ int, x, turned kernels.Tensor, at int, wide bool) {
		end := at + x.Shape[0]
		if !wide {
			x, turned = turned, x
		}
		product(x, turned, shift(0, a.Slice(0, at, end)), shifted.Slice(0, at, end))
	})
	for k := range n {
		squares(shifted, shifted, schulzA-schulzHalf*schulzHalf, p)
		if k < n-1 {
			squares(p, a, 0, next)
			product(next, p.Permute(0, 2, 1), shift(k+1, a), shifted)
		}
		if k == 0 {
			p, all = all, p
			continue
		}
		squares(p, all, 0, next)
		all, next = next, all
	}
	each(func(k int, x, _ kernels.Tensor, at int, wide bool) {
		all := all.Slice(0, at, at+x.Shape[0])
		if wide {
			product(all, x, nil, y[k])
		} else {
			product(x, all, nil, y[k])
		}
	})
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
