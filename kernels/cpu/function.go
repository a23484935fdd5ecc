package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
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
		switch f {
		case kernels.Exp:
			eachVector(n, score.OpExp, at[1], at[0])
		case kernels.Log:
			simd.Log(n, at[1], at[0])
		case kernels.Sqrt:
			simd.Sqrt(n, at[1], at[0])
		case kernels.Abs:
			eachVector(n, score.OpAbs, at[1], at[0])
		}
	}, x, y)
}

// eachVector applies an operation on one operand to n elements. Those behind the last whole vector
// are computed in a vector of their own, so that bits do not depend on the place.
func eachVector[T kernels.Float](n int, op score.Op, y, x *T) {
	const most = 16 // lanes
	whole := n &^ (most - 1)
	none := simd.Points[T]{}
	simd.Pointwise(op, 1, whole, y, 0, simd.Points[T]{At: x}, none, none)
	if rest := n - whole; rest > 0 {
		var last [most]T
		copy(last[:], unsafe.Slice(offset(x, whole), rest))
		simd.Pointwise(op, 1, most, &last[0], 0, simd.Points[T]{At: &last[0]}, none, none)
		copy(unsafe.Slice(offset(y, whole), rest), last[:])
	}
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
		switch f {
		case kernels.Exp:
			eachBuffered(n, func(n, from int, slopes *T) {
				eachVector(n, score.OpExp, slopes, offset(at[0], from))
				simd.Mul(n, offset(at[2], from), offset(at[1], from), slopes)
			})
		case kernels.Log:
			simd.Div(n, at[2], at[1], at[0])
		case kernels.Sqrt:
			eachBuffered(n, func(n, from int, twice *T) {
				simd.Sqrt(n, twice, offset(at[0], from))
				simd.Add(n, twice, twice, twice)
				simd.Div(n, offset(at[2], from), offset(at[1], from), twice)
			})
		case kernels.Abs:
			simd.AbsGrad(n, at[2], at[0], at[1])
		}
	}, x, dy, dx)
}

// eachBuffered calls do for n elements in pieces. The buffer has room for a piece.
func eachBuffered[T kernels.Float](n int, do func(n, from int, buffer *T)) {
	var buffer [512]T
	for from := 0; from < n; from += len(buffer) {
		do(min(len(buffer), n-from), from, &buffer[0])
	}
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
		var numbers [512]T
		for i := range min(n, len(numbers)) {
			numbers[i] = T(number)
		}
		for from := 0; from < n; from += len(numbers) {
			simd.Add(min(len(numbers), n-from), offset(at[1], from), offset(at[0], from), &numbers[0])
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
	eachPiece(b, func(n int, at [5]*T) { simd.Div(n, at[2], at[0], at[1]) }, left, right, quotient)
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
