package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Permute is x with its axes in another order: axis i of the result is axis axes[i] of x. In contrast to Gorgonia's Transpose it works
// on a device, and its result is row-major.
func Permute(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error) {
	return apply("Permute", permutation{axes: slices.Clone(axes)}, input{name: "x", node: x, form: stridedForm, unread: true})
}

type permutation struct {
	stateless
	axes []int
}

func (k permutation) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	sorted := slices.Sorted(slices.Values(k.axes))
	for i, axis := range sorted {
		if axis != i || len(sorted) != len(in[0].Shape) {
			return nil, fmt.Errorf("axes are %v, they need to be the numbers of x's axes, each once: x has shape %v", k.axes, in[0].Shape)
		}
	}
	return described(in[0].DType, in[0].Permute(k.axes...).Shape...), nil
}

func (k permutation) forward(r *run, in, out []kernels.Tensor) error {
	return r.Copy(out[0], in[0].Permute(k.axes...))
}

func (k permutation) backward(r *run, _, dOut, d []kernels.Tensor) error {
	return r.Copy(d[0].Permute(k.axes...), dOut[0])
}
