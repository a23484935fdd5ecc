//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// AttentionScores has no kernel: what is for looking at is left to the host.
func (d *Device) AttentionScores(a *kernels.Attention, rows []int, s kernels.Tensor) error {
	if err := d.checked("attention scores", a.CheckScores(rows, s), a.Q.DType); err != nil {
		return err
	}
	return kernels.Unsupported{Device: d.Name(), What: "the scores of attention"}
}
