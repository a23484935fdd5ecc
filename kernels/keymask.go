package kernels

import "fmt"

// KeyMaskKernels make a bias of a mask of keys.
type KeyMaskKernels interface {
	// KeyMask computes out, (B, H, S, Sk), which is bias where the mask is true and −∞ where it is
	// false:
	//
	//	out_bhij = bias_bhij if mask_bj ≠ 0, otherwise −∞
	//
	// mask is (B, Sk) of any type with contiguous rows; bias is (1|B, H, S, Sk), row-major, of
	// out's type, or left out: 0. out is row-major.
	KeyMask(mask, bias, out Tensor) error
}

// CheckKeyMask returns what is wrong with a call of KeyMask.
func CheckKeyMask(mask, bias, out Tensor) error {
	if err := out.validateFloat("out"); err != nil {
		return err
	}
	if len(out.Shape) != 4 {
		return fmt.Errorf("out has shape %v, it needs four axes (batch, heads, queries, keys)", out.Shape)
	}
	if !mask.IsSet() {
		return fmt.Errorf("mask is missing")
	}
	biasShape := append([]int{1}, out.Shape[1:]...)
	if bias.IsSet() && len(bias.Shape) == 4 && bias.Shape[0] == out.Shape[0] {
		biasShape = out.Shape
	}
	return checkOperands(
		operand{name: "mask", tensor: mask, shape: []int{out.Shape[0], out.Shape[3]}, dtypes: [2]DType{mask.DType}, layout: contiguousRows},
		operand{name: "bias", tensor: bias, shape: biasShape, dtypes: [2]DType{out.DType}, layout: dense, isOptional: true},
		operand{name: "out", tensor: out, shape: out.Shape, dtypes: [2]DType{out.DType}, layout: dense},
	)
}
