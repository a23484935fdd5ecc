//go:build gpu

package cuda

import "github.com/stheno-ml/stheno/kernels"

// This file lists the kernels that a GPU does not have: each says so.

var _ kernels.Backend = (*Device)(nil)

func (d *Device) unavailable(kernel string) error {
	return kernels.Unsupported{Device: d.Name(), What: kernel}
}

// Activate is unavailable.
func (d *Device) Activate(kernels.Activation, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("Activate")
}

// ActivateBackward is unavailable.
func (d *Device) ActivateBackward(kernels.Activation, kernels.Tensor, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("Activate backward")
}

// CrossEntropyBackward is unavailable.
func (d *Device) CrossEntropyBackward(*kernels.CrossEntropy, kernels.CrossEntropyGradients) error {
	return d.unavailable("Cross entropy backward")
}

// CrossEntropyForward is unavailable.
func (d *Device) CrossEntropyForward(*kernels.CrossEntropy, kernels.CrossEntropyOutputs) error {
	return d.unavailable("Cross entropy forward")
}

// Dropout is unavailable.
func (d *Device) Dropout(kernels.Dropout, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("Dropout")
}

// EmbeddingBackward is unavailable.
func (d *Device) EmbeddingBackward(*kernels.Embedding, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("Embedding backward")
}

// EmbeddingForward is unavailable.
func (d *Device) EmbeddingForward(*kernels.Embedding, kernels.Tensor) error {
	return d.unavailable("Embedding forward")
}

// LayerNormBackward is unavailable.
func (d *Device) LayerNormBackward(*kernels.LayerNorm, kernels.LayerNormGradients) error {
	return d.unavailable("LayerNorm backward")
}

// LayerNormForward is unavailable.
func (d *Device) LayerNormForward(*kernels.LayerNorm, kernels.LayerNormOutputs) error {
	return d.unavailable("LayerNorm forward")
}

// Mul is unavailable.
func (d *Device) Mul(kernels.Tensor, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("Mul")
}

// MulScalar is unavailable.
func (d *Device) MulScalar(float64, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("MulScalar")
}

// SoftCap is unavailable.
func (d *Device) SoftCap(float64, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("SoftCap")
}

// SoftCapBackward is unavailable.
func (d *Device) SoftCapBackward(float64, kernels.Tensor, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("SoftCap backward")
}

// LinearCrossEntropy is unavailable.
func (d *Device) LinearCrossEntropy(*kernels.LinearCrossEntropy, kernels.LinearCrossEntropyOutputs) error {
	return d.unavailable("Linear cross entropy")
}

// RMSNormBackward is unavailable.
func (d *Device) RMSNormBackward(*kernels.RMSNorm, kernels.RMSNormGradients) error {
	return d.unavailable("RMSNorm backward")
}

// RMSNormForward is unavailable.
func (d *Device) RMSNormForward(*kernels.RMSNorm, kernels.RMSNormOutputs) error {
	return d.unavailable("RMSNorm forward")
}

// RoPEBackward is unavailable.
func (d *Device) RoPEBackward(*kernels.RoPE, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("RoPE backward")
}

// RoPEForward is unavailable.
func (d *Device) RoPEForward(*kernels.RoPE, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("RoPE forward")
}

// SumRows is unavailable.
func (d *Device) SumRows(kernels.Tensor, kernels.Tensor, bool) error {
	return d.unavailable("Sum rows")
}

// SwiGLU is unavailable.
func (d *Device) SwiGLU(kernels.Tensor, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("SwiGLU")
}

// SwiGLUBackward is unavailable.
func (d *Device) SwiGLUBackward(kernels.Tensor, kernels.Tensor, kernels.Tensor, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("SwiGLU backward")
}

// KeyMask is unavailable.
func (d *Device) KeyMask(kernels.Tensor, kernels.Tensor, kernels.Tensor) error {
	return d.unavailable("Key mask")
}
