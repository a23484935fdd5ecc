package kernels

import (
	"fmt"
)

// RowsProduct is the products of a few rows by weights that lie anywhere, with what a model does
// before and behind them, in the time that the weights take to be read. With W_i the weights and
// b_i their biases:
//
//	A = X                  or, with Norm,     A = γ·X/√(mean of X² over each row + eps)
//	C = A·W_0 + b_0, A·W_1 + b_1, …           side by side
//	C = silu(A·W_0 + b_0)·(A·W_1 + b_1)       if Gated is set
//	C ← C + Residual                          if it is given
type RowsProduct struct {
	X        Tensor   // (rows, depth)
	Norm     *RowNorm // of the rows of X; nil for none
	Weights  []Tensor // (depth, columns), of X's dtype, or transposes of packed matrices of one dtype
	Biases   []Tensor // (columns) each, of X's dtype or its wide one, or left out; nil for none
	Gated    bool
	Residual Tensor // like C, of X's dtype; left out by the zero Tensor
}

// RowNorm is an RMS norm without a place of its own.
type RowNorm struct {
	Gamma Tensor // (depth) row-major, of the rows' dtype or its wide one; left out by the zero Tensor
	Eps   float64
}

// RowsProductKernels is a device that computes [RowsProduct]. Elsewhere, and where it does not take
// a problem, norms, products and sums one after the other give the same.
type RowsProductKernels interface {
	// TakesRowsProduct reports whether there is a kernel for the problem.
	TakesRowsProduct(p *RowsProduct) bool
	// RowsProductForward computes C, (rows, columns), of X's dtype or its wide one.
	RowsProductForward(p *RowsProduct, c Tensor) error
}

// Columns is how many columns C has.
func (p *RowsProduct) Columns() int {
	columns := 0
	for _, w := range p.Weights {
		columns += w.Shape[1]
	}
	if p.Gated {
		columns /= 2
	}
	return columns
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil.
func (p *RowsProduct) Validate() error {
	if p == nil {
		return errNoProblem
	}
	if err := p.X.validateMatrices("x"); err != nil {
		return err
	}
	if len(p.X.Shape) != 2 {
		return fmt.Errorf("x has shape %v, it needs two axes", p.X.Shape)
	}
	own, depth := p.X.DType, p.X.Shape[1]
	if len(p.Weights) == 0 || p.Biases != nil && len(p.Biases) != len(p.Weights) {
		return fmt.Errorf("there are %d weights and %d biases, it needs at least one weight, and as many biases or none", len(p.Weights), len(p.Biases))
	}
	for i, w := range p.Weights {
		name := fmt.Sprintf("weights[%d]", i)
		validate, isOf := w.validateMatrices, own
		if first := p.Weights[0].DType; first.IsPacked() && own != F64 {
			validate, isOf = w.validatePacked, first
		}
		if err := validate(name); err != nil {
			return err
		}
		if len(w.Shape) != 2 || w.Shape[0] != depth || w.DType != isOf {
			return fmt.Errorf("%s is %v of shape %v, it needs to be %v with a row for each of x's %d columns", name, w.DType, w.Shape, isOf, depth)
		}
		if p.Biases == nil {
			continue
		}
		if err := checkOperands(ownOrWide(fmt.Sprintf("biases[%d]", i), p.Biases[i], w.Shape[1:], own).optional()); err != nil {
			return err
		}
	}
	if p.Gated && (len(p.Weights) != 2 || p.Weights[0].Shape[1] != p.Weights[1].Shape[1]) {
		return fmt.Errorf("there are %d weights, a gated product needs two of one shape", len(p.Weights))
	}
	if p.Norm != nil {
		if err := checkOperands(ownOrWide("gamma", p.Norm.Gamma, []int{depth}, own).optional()); err != nil {
			return err
		}
	}
	return checkOperands(like("residual", p.Residual, []int{p.X.Shape[0], p.Columns()}, own).optional())
}

// Check returns what is wrong with a call of RowsProductForward.
func (p *RowsProduct) Check(c Tensor) error {
	if err := p.Validate(); err != nil {
		return err
	}
	own := p.X.DType
	return checkOperands(
		operand{name: "x", tensor: p.X, shape: p.X.Shape, dtypes: [2]DType{own}, layout: contiguousRows},
		operand{name: "c", tensor: c, shape: []int{p.X.Shape[0], p.Columns()}, dtypes: [2]DType{own, own.Wide()}, layout: writtenRows})
}
