package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// KeyMask is a Bias for [FlashAttention] that hides keys, such as the padding of a batch of
// sentences: mask, (B, Sk), is bool, or a float or integer of which 0 means false, and true means
// attend. bias may be nil; otherwise it is (1|B, 1|Hq, 1|Sq, Sk) and the result is bias where the
// mask is true. The result is (B, 1, 1, Sk), or with a bias (B, 1|Hq, 1|Sq, Sk), of the given type,
// and −∞ where the mask is false.
//
// The mask may change from run to run. It has no gradient; bias has.
func KeyMask(mask, bias *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	return apply("KeyMask", kernel{
		describe: func(in tensors) (description, error) { return describeKeyMask(in[0], in[1], dtype) },
		forward:  func(r *run, in, out tensors) error { return r.KeyMask(in[0], in[1], out[0]) },
		// The gradient of the bias is the output's, which is 0 where a key is hidden, summed over
		// the batch where the bias is one for all of it.
		backward: func(r *run, _, dOut, d tensors) error {
			if !d[1].IsSet() {
				return nil
			}
			columns := d[1].Elements()
			return r.SumRows(dOut[0].Reshape(dOut[0].Elements()/columns, columns), d[1].Reshape(columns), false)
		},
	}, input{name: "mask", node: mask, form: constantForm},
		input{name: "bias", node: bias, form: denseForm, optional: true, unread: true})
}

func describeKeyMask(mask, bias kernels.Tensor, of tensor.Dtype) (is description, err error) {
	dtype := dtypeOf(of)
	if dtype == kernels.NoDType {
		return is, fmt.Errorf("dtype is %v, it needs to be %s", of, floatTypes)
	}
	if len(mask.Shape) != 2 {
		return is, fmt.Errorf("mask has shape %v, it needs two axes (batch, keys)", mask.Shape)
	}
	batch, keys := mask.Shape[0], mask.Shape[1]
	shape := []int{batch, 1, 1, keys}
	if bias.IsSet() {
		if bias.DType != dtype {
			return is, fmt.Errorf("bias is %v, it needs to be %v", bias.DType, dtype)
		}
		if len(bias.Shape) != 4 || bias.Shape[0] != 1 && bias.Shape[0] != batch || bias.Shape[3] != keys {
			return is, fmt.Errorf("bias has shape %v, it needs (1 or %d, heads or 1, queries or 1, %d)", bias.Shape, batch, keys)
		}
		shape[1], shape[2] = bias.Shape[1], bias.Shape[2]
	}
	return described(dtype, shape...), nil
}
