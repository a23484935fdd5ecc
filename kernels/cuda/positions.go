//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// TokenPositions is not supported on a GPU.
func (d *Device) TokenPositions(*kernels.TokenPositions, kernels.Tensor) error {
	return kernels.Unsupported{Device: d.Name(), What: "token positions"}
}
