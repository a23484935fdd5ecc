package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// KeyMask computes out, which is bias where the mask is true, −∞ elsewhere.
func (b *Backend) KeyMask(mask, bias, out kernels.Tensor) (err error) {
	defer catch("key mask", &err)
	if err := kernels.CheckKeyMask(mask, bias, out); err != nil {
		return callError("key mask", err)
	}
	batch, rows, keys := out.Shape[0], out.Shape[1]*out.Shape[2], out.Shape[3]
	to := out.Reshape(batch, rows, keys)
	if !bias.IsSet() {
		kernels.FillHost(to, 0)
	} else {
		from := bias.Reshape(bias.Shape[0], rows, keys)
		if bias.Shape[0] == 1 {
			from.Shape, from.Strides = to.Shape, []int{0, keys, 1}
		}
		kernels.CopyHost(to, from)
	}
	for item := range batch {
		for j := range keys {
			if kernels.HostElement(mask, mask.Offset(item, j)) == 0 {
				kernels.FillHost(to.Slice(0, item, item+1).Slice(2, j, j+1), math.Inf(-1))
			}
		}
	}
	return nil
}
