package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// LogSoftmaxForward subtracts from each row its logsumexp.
func (b *Backend) LogSoftmaxForward(x, y kernels.Tensor) (err error) {
	defer catch("log-softmax forward", &err)
	if err := checked("log-softmax forward", kernels.CheckLogSoftmaxForward(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, logSoftmaxForward[float32], logSoftmaxForward[float64])(b, x, y)
	return nil
}

func logSoftmaxForward[T kernels.Float](b *Backend, x, y kernels.Tensor) {
	from, to, length := rowViewOf[T](x), rowViewOf[T](y), lastAxis(x)
	eachRowOf(b, &to, func(i int, _ *T, past bool) {
		x, y := from.at(i), to.at(i)
		most, sum := exponentialsOf(length, x)
		for from := 0; from < length; from += pieceElements {
			simd.LogProbabilities(min(pieceElements, length-from), offset(y, from), offset(x, from), most, T(math.Log(sum)), past)
		}
	})
}

// LogSoftmaxBackward takes from each row of dy its sum, shared out by the probabilities.
func (b *Backend) LogSoftmaxBackward(y, dy, dx kernels.Tensor) (err error) {
	defer catch("log-softmax backward", &err)
	if err := checked("log-softmax backward", kernels.CheckLogSoftmaxBackward(y, dy, dx)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	y, dy, dx = h.read(y), h.read(dy), h.write(dx)
	inTypeOf(y, logSoftmaxBackward[float32], logSoftmaxBackward[float64])(b, y, dy, dx)
	return nil
}

func logSoftmaxBackward[T kernels.Float](b *Backend, y, dy, dx kernels.Tensor) {
	out, dOut, d, length := rowViewOf[T](y), rowViewOf[T](dy), rowViewOf[T](dx), lastAxis(y)
	eachRowOf(b, &d, func(i int, _ *T, past bool) {
		y, dy, dx := out.at(i), dOut.at(i), d.at(i)
		sum := 0.0
		for from := 0; from < length; from += pieceElements {
			sum += simd.Sum(min(pieceElements, length-from), offset(dy, from))
		}
		for from := 0; from < length; from += pieceElements {
			simd.LogSoftmaxRowGrad(min(pieceElements, length-from), offset(dx, from), offset(y, from), offset(dy, from), T(sum), past)
		}
	})
}
