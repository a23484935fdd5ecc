package kernels

import "fmt"

// MergeKernels put together what was computed in parts.
type MergeKernels interface {
	// AttentionMerge joins attention to some keys with attention to others, row by row:
	//
	//	L = log(exp LSE_i + exp lse_i)    O_i ← O_i·exp(LSE_i − L) + o_i·exp(lse_i − L)    LSE_i ← L
	//
	// LSE and O are the sum's, of the type of sums; lse and o are the part's, and o may have 16
	// bits. A row whose logsumexp is −∞ in one of them is that of the other.
	AttentionMerge(sum, part AttentionOutputs) error
}

// CheckMerge returns what is wrong with a call of AttentionMerge.
func CheckMerge(sum, part AttentionOutputs) error {
	if err := part.O.validateFloat("part's o"); err != nil {
		return err
	}
	if err := part.O.validateRows("part's o"); err != nil {
		return err
	}
	dtype, shape := part.O.DType, part.O.Shape
	if len(shape) != 4 {
		return fmt.Errorf("part's o has shape %v, it needs four axes (batch, heads, length, size)", shape)
	}
	lse := func(name string, t Tensor, l layout) operand {
		return operand{name: name, tensor: t, shape: shape[:3], dtypes: [2]DType{dtype.Wide()}, layout: l}
	}
	return checkOperands(like("part's o", part.O, shape, dtype), lse("part's lse", part.LSE, contiguousRows),
		writtenLike("sum's o", sum.O, shape, dtype.Wide()), lse("sum's lse", sum.LSE, writtenRows))
}
