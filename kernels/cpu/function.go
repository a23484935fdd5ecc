package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Apply computes y = f(x).
func (b *Backend) Apply(f kernels.Function, x, y kernels.Tensor) (err error) {
	defer catch("function", &err)
	if err := checked("function", f.CheckForward(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, applyFunction[float32], applyFunction[float64])(b, f, x, y)
	return nil
}

func applyFunction[T kernels.Float](b *Backend, f kernels.Function, x, y kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) {
		x, y := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n)
		switch f {
		case kernels.Exp:
			for i, x := range x {
				y[i] = T(math.Exp(float64(x)))
			}
		case kernels.Log:
			for i, x := range x {
				y[i] = T(math.Log(float64(x)))
			}
		case kernels.Sqrt:
			for i, x := range x {
				y[i] = T(math.Sqrt(float64(x)))
			}
		case kernels.Abs:
			for i, x := range x {
				y[i] = T(math.Abs(float64(x)))
			}
		}
	}, x, y)
}

// ApplyBackward computes dx = dy·f'(x).
func (b *Backend) ApplyBackward(f kernels.Function, x, dy, dx kernels.Tensor) (err error) {
	defer catch("function backward", &err)
	if err := checked("function backward", f.CheckBackward(x, dy, dx)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, dy, dx = h.read(x), h.read(dy), h.write(dx)
	inTypeOf(x, applyFunctionBackward[float32], applyFunctionBackward[float64])(b, f, x, dy, dx)
	return nil
}

func applyFunctionBackward[T kernels.Float](b *Backend, f kernels.Function, x, dy, dx kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) {
		x, dy, dx := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n), unsafe.Slice(at[2], n)
		switch f {
		case kernels.Exp:
			for i, x := range x {
				dx[i] = dy[i] * T(math.Exp(float64(x)))
			}
		case kernels.Log:
			for i, x := range x {
				dx[i] = dy[i] / x
			}
		case kernels.Sqrt:
			for i, x := range x {
				dx[i] = dy[i] / (2 * T(math.Sqrt(float64(x))))
			}
		case kernels.Abs:
			for i, x := range x {
				dx[i] = dy[i] * sign(x)
			}
		}
	}, x, dy, dx)
}

// sign is 1, −1, or 0 for 0 and NaN.
func sign[T kernels.Float](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// AddScalar computes y = x + number.
func (b *Backend) AddScalar(number float64, x, y kernels.Tensor) (err error) {
	defer catch("add scalar", &err)
	if err := checked("add scalar", kernels.CheckAddScalar(number, x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, addScalar[float32], addScalar[float64])(b, number, x, y)
	return nil
}

func addScalar[T kernels.Float](b *Backend, number float64, x, y kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) {
		x, y := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n)
		for i, x := range x {
			y[i] = x + T(number)
		}
	}, x, y)
}

// Div computes c = a/b, element by element.
func (b *Backend) Div(left, right, quotient kernels.Tensor) (err error) {
	defer catch("div", &err)
	if err := checked("div", kernels.CheckDiv(left, right, quotient)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	left, right, quotient = h.read(left), h.read(right), h.write(quotient)
	inTypeOf(left, div[float32], div[float64])(b, left, right, quotient)
	return nil
}

func div[T kernels.Float](b *Backend, left, right, quotient kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) {
		left, right, quotient := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n), unsafe.Slice(at[2], n)
		for i := range quotient {
			quotient[i] = left[i] / right[i]
		}
	}, left, right, quotient)
}

// DivBackward computes da = dc/b and db = −dc·a/b².
func (b *Backend) DivBackward(left, right, dc, da, db kernels.Tensor) (err error) {
	defer catch("div backward", &err)
	if err := checked("div backward", kernels.CheckDivBackward(left, right, dc, da, db)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	left, right, dc, da, db = h.read(left), h.read(right), h.read(dc), h.write(da), h.write(db)
	inTypeOf(left, divBackward[float32], divBackward[float64])(b, left, right, dc, da, db)
	return nil
}

func divBackward[T kernels.Float](b *Backend, left, right, dc, da, db kernels.Tensor) {
	eachPiece(b, func(n int, at [5]*T) {
		left, right, dc := unsafe.Slice(at[0], n), unsafe.Slice(at[1], n), unsafe.Slice(at[2], n)
		da, db := unsafe.Slice(at[3], n), unsafe.Slice(at[4], n)
		for i := range dc {
			// All is read before anything is written: an output may be an input.
			a, b, share := left[i], right[i], dc[i]/right[i]
			da[i], db[i] = share, -share*(a/b)
		}
	}, left, right, dc, da, db)
}
