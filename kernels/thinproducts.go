package kernels

import (
	"fmt"
	"slices"
)

// ThinProducts are the products of a large matrix by thin ones, from either side or both, in the
// time that it takes to read the large one:
//
//	Across = Scale·X·Right      Down = Leftᵀ·X
//
// A change of low rank has such products beside its layer's: with X its input, those by A and for
// A's gradient; with X the gradient of its output, those by Bᵀ and for B's gradient. Where Up is
// given, silu(X)·Up is in the place of X: what goes through A of the last layer of a gated MLP. It
// may be rounded to X's dtype.
type ThinProducts struct {
	X     Tensor  // (rows, columns)
	Right Tensor  // (columns, ranks), of X's dtype; left out by the zero Tensor where Left is given
	Left  Tensor  // (rows, ranks), of X's dtype; left out by the zero Tensor where Right is given
	Up    Tensor  // of X's shape and dtype, or left out by the zero Tensor
	Scale float64 // of Across
}

// ThinOutputs are the tensors that receive them.
type ThinOutputs struct {
	Across Tensor     // (rows, ranks), of X's dtype or its wide one; given where Right is
	Down   []ThinPart // given where Left is
}

// ThinPart receives a part of Down, its ranks and columns from the given ones on. What is in no
// part is not kept.
type ThinPart struct {
	Out          Tensor // (ranks, columns) with any strides, of X's dtype or its wide one
	Rank, Column int
}

// ThinKernels is a device that computes [ThinProducts]. Elsewhere, and where it does not take a
// problem, products one after the other give the same.
type ThinKernels interface {
	// TakesThinProducts reports whether there is a kernel for the problem, with so many parts.
	TakesThinProducts(p *ThinProducts, parts int) bool
	// ThinProducts computes the outputs. They overlap neither each other nor the inputs.
	ThinProducts(p *ThinProducts, out ThinOutputs) error
	// ThinProductsBorrow tells how many bytes of the device a call borrows, as a [Borrower] does.
	ThinProductsBorrow(p *ThinProducts) int
}

// FLOPs is how many operations the products take.
func (p *ThinProducts) FLOPs() float64 {
	products := 0.0
	if p.Right.IsSet() {
		products++
	}
	if p.Left.IsSet() {
		products++
	}
	return 2 * products * float64(p.X.Elements()) * float64(p.Ranks())
}

// Ranks is how many rows Down has, and columns Across.
func (p *ThinProducts) Ranks() int {
	if p.Right.IsSet() {
		return p.Right.Shape[1]
	}
	return p.Left.Shape[1]
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil.
func (p *ThinProducts) Validate() error {
	if p == nil {
		return errNoProblem
	}
	if err := p.X.validateMatrices("x"); err != nil {
		return err
	}
	if len(p.X.Shape) != 2 {
		return fmt.Errorf("x has shape %v, it needs two axes", p.X.Shape)
	}
	if !p.Right.IsSet() && !p.Left.IsSet() {
		return fmt.Errorf("right and left are missing, it needs at least one of them")
	}
	for _, f := range []struct {
		name   string
		tensor Tensor
		axis   int // of X
		sides  string
	}{{"right", p.Right, 1, "columns"}, {"left", p.Left, 0, "rows"}} {
		if !f.tensor.IsSet() {
			continue
		}
		if err := f.tensor.validateMatrices(f.name); err != nil {
			return err
		}
		if len(f.tensor.Shape) != 2 || f.tensor.Shape[0] != p.X.Shape[f.axis] || f.tensor.DType != p.X.DType {
			return fmt.Errorf("%s is %v of shape %v, it needs to be %v with a row for each of x's %d %s", f.name, f.tensor.DType, f.tensor.Shape, p.X.DType, p.X.Shape[f.axis], f.sides)
		}
	}
	if p.Up.IsSet() && (p.Up.DType != p.X.DType || !slices.Equal(p.Up.Shape, p.X.Shape)) {
		return fmt.Errorf("up is %v of shape %v, it needs to be %v of x's shape %v", p.Up.DType, p.Up.Shape, p.X.DType, p.X.Shape)
	}
	if p.Right.IsSet() && p.Left.IsSet() && p.Right.Shape[1] != p.Left.Shape[1] {
		return fmt.Errorf("left has %d columns, it needs right's %d", p.Left.Shape[1], p.Right.Shape[1])
	}
	if !p.Right.IsSet() {
		return nil
	}
	return ValidateFactor(p.Scale, p.X.DType)
}

// Check returns what is wrong with a call of ThinProducts.
func (p *ThinProducts) Check(out ThinOutputs) error {
	if err := p.Validate(); err != nil {
		return err
	}
	own := [2]DType{p.X.DType, p.X.DType.Wide()}
	across := operand{name: "across", tensor: out.Across, shape: []int{p.X.Shape[0], p.Ranks()}, dtypes: own, layout: writtenRows}
	err := checkOperands(
		operand{name: "x", tensor: p.X, shape: p.X.Shape, dtypes: own},
		operand{name: "up", tensor: p.Up, shape: p.X.Shape, dtypes: own, isOptional: true},
		operand{name: "right", tensor: p.Right, shape: p.Right.Shape, dtypes: own, isOptional: true},
		operand{name: "left", tensor: p.Left, shape: p.Left.Shape, dtypes: own, isOptional: true})
	switch {
	case err != nil:
		return err
	case out.Across.IsSet() && !p.Right.IsSet():
		return fmt.Errorf("across has shape %v, it needs to be left out without right", out.Across.Shape)
	case len(out.Down) > 0 && !p.Left.IsSet():
		return fmt.Errorf("down has %d parts, it needs none without left", len(out.Down))
	case len(out.Down) == 0 && p.Left.IsSet():
		return fmt.Errorf("down has no parts, with left it needs at least one")
	}
	if p.Right.IsSet() {
		if err := checkOperands(across); err != nil {
			return err
		}
	}
	for i, d := range out.Down {
		name := fmt.Sprintf("down[%d]", i)
		if err := checkOperands(operand{name: name, tensor: d.Out, shape: d.Out.Shape, dtypes: own}); err != nil {
			return err
		}
		if len(d.Out.Shape) != 2 || d.Rank < 0 || d.Column < 0 || d.Rank+d.Out.Shape[0] > p.Ranks() || d.Column+d.Out.Shape[1] > p.X.Shape[1] {
			return fmt.Errorf("%s has shape %v from rank %d and column %d on, it needs to be a part of (%d, %d)", name, d.Out.Shape, d.Rank, d.Column, p.Ranks(), p.X.Shape[1])
		}
		if d.Out.Overlaps() {
			return fmt.Errorf("%s has strides %v for shape %v, no two elements may lie in the same place", name, d.Out.Strides, d.Out.Shape)
		}
	}
	return nil
}
