package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Activate computes y = act(x).
func (b *Backend) Activate(act kernels.Activation, x, y kernels.Tensor) (err error) {
	defer catch("activation", &err)
	if err := checked("activation", act.CheckForward(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, activate[float32], activate[float64])(b, act, x, y)
	return nil
}

func activate[T kernels.Float](b *Backend, act kernels.Activation, x, y kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.Activate(act, n, at[1], at[0]) }, x, y)
}

// ActivateBackward computes dx = dy·act'(x).
func (b *Backend) ActivateBackward(act kernels.Activation, x, dy, dx kernels.Tensor) (err error) {
	defer catch("activation backward", &err)
	if err := checked("activation backward", act.CheckBackward(x, dy, dx)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, dy, dx = h.read(x), h.read(dy), h.write(dx)
	inTypeOf(x, activateBackward[float32], activateBackward[float64])(b, act, x, dy, dx)
	return nil
}

func activateBackward[T kernels.Float](b *Backend, act kernels.Activation, x, dy, dx kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.ActivateGrad(act, n, at[2], at[0], at[1]) }, x, dy, dx)
}

// SwiGLU computes y = silu(gate)·up.
func (b *Backend) SwiGLU(gate, up, y kernels.Tensor) (err error) {
	defer catch("swiglu", &err)
	if err := checked("swiglu", kernels.CheckSwiGLU(gate, up, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	gate, up, y = h.read(gate), h.read(up), h.write(y)
	inTypeOf(gate, swiglu[float32], swiglu[float64])(b, gate, up, y)
	return nil
}

func swiglu[T kernels.Float](b *Backend, gate, up, y kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.SwiGLU(n, at[2], at[0], at[1]) }, gate, up, y)
}

// SwiGLUBackward computes dGate = dy·up·silu'(gate) and dUp = dy·silu(gate).
func (b *Backend) SwiGLUBackward(gate, up, dy, dGate, dUp kernels.Tensor) (err error) {
	defer catch("swiglu backward", &err)
	if err := checked("swiglu backward", kernels.CheckSwiGLUBackward(gate, up, dy, dGate, dUp)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	gate, up, dy, dGate, dUp = h.read(gate), h.read(up), h.read(dy), h.write(dGate), h.write(dUp)
	inTypeOf(gate, swigluBackward[float32], swigluBackward[float64])(b, gate, up, dy, dGate, dUp)
	return nil
}

func swigluBackward[T kernels.Float](b *Backend, gate, up, dy, dGate, dUp kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) { simd.SwiGLUGrad(n, at[3], at[4], at[0], at[1], at[2]) }, gate, up, dy, dGate, dUp)
}
