package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// SoftmaxForward divides the exponentials of each row by their sum.
func (b *Backend) SoftmaxForward(x, y kernels.Tensor) (err error) {
	defer catch("softmax forward", &err)
	if err := checked("softmax forward", kernels.CheckSoftmaxForward(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, softmaxForward[float32], softmaxForward[float64])(b, x, y)
	return nil
}

func softmaxForward[T kernels.Float](b *Backend, x, y kernels.Tensor) {
	from, to, length := rowViewOf[T](x), rowViewOf[T](y), lastAxis(x)
	b.eachRow(from.n, length, func(i int) {
		x, y := from.at(i), to.at(i)
		most, sum := exponentialsOf(length, x)
		for at := 0; at < length; at += pieceElements {
			simd.ScaledExp(min(pieceElements, length-at), offset(y, at), offset(x, at), most, T(1/sum), 0)
		}
	})
}

// SoftmaxBackward shares out what each probability's gradient is above the mean of all.
func (b *Backend) SoftmaxBackward(y, dy, dx kernels.Tensor) (err error) {
	defer catch("softmax backward", &err)
	if err := checked("softmax backward", kernels.CheckSoftmaxBackward(y, dy, dx)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	y, dy, dx = h.read(y), h.read(dy), h.write(dx)
	inTypeOf(y, softmaxBackward[float32], softmaxBackward[float64])(b, y, dy, dx)
	return nil
}

// summed is how many products are added in their own type before the sum goes on in float64.
const summed = 256

func softmaxBackward[T kernels.Float](b *Backend, y, dy, dx kernels.Tensor) {
	out, dOut, d, length := rowViewOf[T](y), rowViewOf[T](dy), rowViewOf[T](dx), lastAxis(y)
	b.eachRow(out.n, length, func(i int) {
		y, dy, dx := unsafe.Slice(out.at(i), length), unsafe.Slice(dOut.at(i), length), unsafe.Slice(d.at(i), length)
		mean := 0.0
		for from := 0; from < length; from += summed {
			var part [1]T
			simd.Dots(1, min(summed, length-from), offset(&y[0], from), 0, offset(&dy[0], from), 0, part[:])
			mean += float64(part[0])
		}
		for v, p := range y {
			dx[v] = p * (dy[v] - T(mean))
		}
	})
}
