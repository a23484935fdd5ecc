package kernels

import "fmt"

// TokenPositions counts the tokens of each row that are not padding, behind the padding's own id.
// With n_bs the number of ids_bt ≠ padding for t ≤ s:
//
//	positions_bs = padding + n_bs if ids_bs ≠ padding, otherwise padding
type TokenPositions struct {
	IDs     Tensor // (B, S), int32 or int64 with contiguous rows
	Padding int
}

// PositionKernels find where in its text a token stands.
type PositionKernels interface {
	// TokenPositions writes positions, which is like the ids. There is no gradient.
	TokenPositions(p *TokenPositions, positions Tensor) error
}

// Check returns what is wrong with a call of TokenPositions.
func (p *TokenPositions) Check(positions Tensor) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return checkOperands(indices("ids", p.IDs), writtenLike("positions", positions, p.IDs.Shape, p.IDs.DType))
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil.
func (p *TokenPositions) Validate() error {
	if p == nil {
		return errNoProblem
	}
	if err := p.IDs.validateIndices("ids"); err != nil {
		return err
	}
	if len(p.IDs.Shape) != 2 {
		return fmt.Errorf("ids has shape %v, it needs two axes (batch, length)", p.IDs.Shape)
	}
	if p.Padding < 0 {
		return fmt.Errorf("padding is %d, it needs to be the id of a token", p.Padding)
	}
	return nil
}
