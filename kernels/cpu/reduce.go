package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Sum computes the sum of all elements.
func (b *Backend) Sum(x, out kernels.Tensor) error {
	return b.reduce("sum", x, out, func(sum float64) float64 { return sum })
}

// Mean computes the mean of all elements.
func (b *Backend) Mean(x, out kernels.Tensor) error {
	return b.reduce("mean", x, out, func(sum float64) float64 { return sum / float64(x.Elements()) })
}

func (b *Backend) reduce(kernel string, x, out kernels.Tensor, finish func(sum float64) float64) (err error) {
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckReduction(x, out)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x = h.read(x)
	kernels.FillHost(out, finish(inTypeOf(x, sum[float32], sum[float64])(b, x)))
	return nil
}

// sum adds piece by piece, and then the sums of the pieces.
func sum[T kernels.Float](b *Backend, x kernels.Tensor) float64 {
	in := rowViewOf[T](asOneRow([]kernels.Tensor{x})[0])
	perRow := ceilDiv(in.length, pieceElements)
	memory := newWorkspace(bytesFor[float64](in.n * perRow))
	defer memory.release()
	sums := take[float64](memory, in.n*perRow)
	perTask := max(1, taskElements/min(pieceElements, in.length))
	b.each(ceilDiv(len(sums), perTask), elementFLOPs*float64(in.n)*float64(in.length), func(task int) {
		for i := task * perTask; i < min(len(sums), (task+1)*perTask); i++ {
			from := i % perRow * pieceElements
			sums[i] = simd.Sum(min(pieceElements, in.length-from), offset(in.at(i/perRow), from))
		}
	})
	return compensatedSum(sums)
}

// compensatedSum adds with Neumaier's correction: the rounding errors are added up beside the sum.
func compensatedSum(list []float64) float64 {
	var sum, lost float64
	for _, x := range list {
		next := sum + x
		if math.Abs(sum) >= math.Abs(x) {
			lost += (sum - next) + x
		} else {
			lost += (x - next) + sum
		}
		sum = next
	}
	if math.IsInf(sum, 0) {
		return sum // the correction is ∞ − ∞
	}
	return sum + lost
}

// Broadcast writes value·factor to every element of x.
func (b *Backend) Broadcast(value kernels.Tensor, factor float64, x kernels.Tensor) (err error) {
	defer catch("broadcast", &err)
	if err := checked("broadcast", kernels.CheckBroadcast(value, factor, x)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x = h.write(x)
	inTypeOf(x, broadcast[float32], broadcast[float64])(b, kernels.HostElement(value, 0)*factor, x)
	return nil
}

func broadcast[T kernels.Float](b *Backend, element float64, x kernels.Tensor) {
	value := T(element)
	eachPiece(b, func(n int, at [5]*T) {
		to := unsafe.Slice(at[0], n)
		for i := range to {
			to[i] = value
		}
	}, x)
}
