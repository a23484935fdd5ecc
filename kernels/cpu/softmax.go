package cpu

import (
	"math"

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

// softmaxForward goes through a row piece by piece and writes exponentials, of the differences from
// the greatest element so far, and then goes through what it wrote. Exponentials of a row that is
// to go past the caches wait beside it.
func softmaxForward[T kernels.Float](b *Backend, x, y kernels.Tensor) {
	from, to, length := rowViewOf[T](x), rowViewOf[T](y), lastAxis(x)
	pieces := ceilDiv(length, pieceElements)
	eachRowOf(b, &to, func(i int, beside *T, past bool) {
		x, y := from.at(i), to.at(i)
		if past = past && pieces == 1; !past {
			beside = y
		}
		var few [4]T
		mosts := few[:]
		if pieces > len(few) {
			mosts = make([]T, pieces)
		}
		most, sum := T(0), 0.0
		for p := range pieces {
			at := p * pieceElements
			n := min(pieceElements, length-at)
			pieceMost := simd.Greatest(n, offset(x, at))
			if p == 0 {
				most = pieceMost
			}
			if pieceMost > most {
				sum *= math.Exp(float64(most) - float64(pieceMost))
				most = pieceMost
			}
			mosts[p] = most
			sum += float64(simd.Exponentials(n, offset(beside, at), offset(x, at), most))
		}
		for p := range pieces {
			at, factor := p*pieceElements, T(math.Exp(float64(mosts[p])-float64(most))/sum)
			simd.Probabilities(min(pieceElements, length-at), offset(y, at), offset(beside, at), factor, past)
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
	eachRowOf(b, &d, func(i int, _ *T, past bool) {
		y, dy, dx := out.at(i), dOut.at(i), d.at(i)
		mean := 0.0
		for from := 0; from < length; from += summed {
			var part [1]T
			simd.Dots(1, min(summed, length-from), offset(y, from), 0, offset(dy, from), 0, part[:])
			mean += float64(part[0])
		}
		for from := 0; from < length; from += pieceElements {
			simd.SoftmaxRowGrad(min(pieceElements, length-from), offset(dx, from), offset(y, from), offset(dy, from), T(mean), past)
		}
	})
}
