package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Permute is x with its axes in another order: axis i of the result is axis axes[i] of x. In
// contrast to Gorgonia's Transpose it works on a device, and its result is row-major.
func Permute(x *gorgonia.Node, axes ...int) (*gorgonia.Node, error) {
	axes = slices.Clone(axes)
	return arrange("Permute", func(in tensors) (a arrangement, err error) {
		sorted := slices.Sorted(slices.Values(axes))
		for i, axis := range sorted {
			if axis != i || len(sorted) != len(in[0].Shape) {
				return a, fmt.Errorf("axes are %v, they need to be the numbers of x's axes, each once: x has shape %v", axes, in[0].Shape)
			}
		}
		turned := func(t kernels.Tensor) kernels.Tensor { return t.Permute(axes...) }
		return arrangement{shape: turned(in[0]).Shape, parts: []arranged{{0, turned, whole}}}, nil
	}, input{name: "x", node: x})
}
