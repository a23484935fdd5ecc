package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// TokenPositions is the position of each of ids, (B, S) of int, int32 or int64, as RoBERTa counts
// them: padding + 1 for the first id of a row that is not padding, one more for each that follows,
// and padding for padding itself, wherever it stands. The result has the shape of ids and is int32
// or int64. It has no gradient.
func TokenPositions(ids *gorgonia.Node, padding int) (*gorgonia.Node, error) {
	return apply("TokenPositions", kernel{
		describe: func(in tensors) (description, error) {
			p := kernels.TokenPositions{IDs: in[0], Padding: padding}
			is := described(in[0].DType, in[0].Shape...)
			is.gradients = noGradient
			return is, p.Validate()
		},
		forward: func(r *run, in, out tensors) error {
			return r.TokenPositions(&kernels.TokenPositions{IDs: in[0], Padding: padding}, out[0])
		},
	}, input{name: "ids", node: ids, form: indexForm})
}
