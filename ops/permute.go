package ops

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// Permute is x with its axes in another order: axis i of the result is axis axes[i] of x. In
// contrast to Gorgonia's Transpose it works on a device, and its result is row-major.
func Permute(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error) {
	axes = slices.Clone(axes)
	return apply("Permute", kernel{
		describe: func(in tensors) (description, error) {
			sorted := slices.Sorted(slices.Values(axes))
			for i, axis := range sorted {
				if axis != i || len(sorted) != len(in[0].Shape) {
					return description{}, fmt.Errorf("axes are %v, they need to be the numbers of x's axes, each once: x has shape %v", axes, in[0].Shape)
				}
			}
			return described(in[0].DType, in[0].Permute(axes...).Shape...), nil
		},
		forward:  func(r *run, in, out tensors) error { return r.Copy(out[0], in[0].Permute(axes...)) },
		backward: func(r *run, _, dOut, d tensors) error { return r.Copy(d[0].Permute(axes...), dOut[0]) },
	}, input{name: "x", node: x, form: stridedForm, unread: true})
}
