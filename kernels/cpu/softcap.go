package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// SoftCap computes y = cap·tanh(x/cap).
func (b *Backend) SoftCap(cap float64, x, y kernels.Tensor) (err error) {
	defer catch("softcap", &err)
	if err := checked("softcap", kernels.CheckSoftCap(cap, x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, softCap[float32], softCap[float64])(b, cap, x, y)
	return nil
}

func softCap[T kernels.Float](b *Backend, cap float64, x, y kernels.Tensor) {
	lanes := simd.Lanes[T]()
	eachPiece(b, func(n int, at [5]*T) {
		from, to := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n)
		copy(to, from)
		// The tile kernel works on whole vectors; what is left behind them is less than one.
		whole := n / lanes * lanes
		simd.SoftCap(1, whole, at[1], nil, n, T(1/cap), T(cap))
		for i := whole; i < n; i++ {
			to[i] = T(cap * math.Tanh(float64(to[i])/cap))
		}
	}, x, y)
}

// SoftCapBackward computes dx = dy·(1 − (y/cap)²).
func (b *Backend) SoftCapBackward(cap float64, y, dy, dx kernels.Tensor) (err error) {
	defer catch("softcap backward", &err)
	if err := checked("softcap backward", kernels.CheckSoftCapBackward(cap, y, dy, dx)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	y, dy, dx = h.read(y), h.read(dy), h.write(dx)
	inTypeOf(y, softCapBackward[float32], softCapBackward[float64])(b, cap, y, dy, dx)
	return nil
}

func softCapBackward[T kernels.Float](b *Backend, cap float64, y, dy, dx kernels.Tensor) {
	inverse := T(1 / cap)
	eachPiece(b, func(n int, at [5]*T) {
		y, dy, dx := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n), unsafe.Slice(at[2], n)
		for i := range n {
			t := y[i] * inverse
			dx[i] = dy[i] * (1 - t*t)
		}
	}, y, dy, dx)
}
