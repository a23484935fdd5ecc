package cpu

import (
	"fmt"
	"math"
	"sort"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// AdamW updates weights and both of their moments.
func (b *Backend) AdamW(o kernels.AdamW, w, g, m, v []kernels.Tensor) error {
	if err := checkUpdate("adamw", o.Validate(), tensorList{"w", w}, tensorList{"g", g}, tensorList{"m", m}, tensorList{"v", v}); err != nil {
		return err
	}
	if isFloat32(w) {
		adamw[float32](b, o, w, g, m, v)
	} else {
		adamw[float64](b, o, w, g, m, v)
	}
	return nil
}

func adamw[T kernels.Float](b *Backend, o kernels.AdamW, w, g, m, v []kernels.Tensor) {
	rate := T(o.LearningRate / (1 - math.Pow(o.Beta1, float64(o.Step))))
	root := T(1 / math.Sqrt(1-math.Pow(o.Beta2, float64(o.Step))))
	scale, decay, rest1, rest2 := T(o.EffectiveScale()), T(1-o.LearningRate*o.WeightDecay), T(1-o.Beta1), T(1-o.Beta2)
	eachUpdate(b, o.Update, w, g, func(i, from, n int, weights, gradients *T) {
		simd.AdamW(n, weights, gradients, place[T](m[i], from), place[T](v[i], from),
			scale, rest1, T(o.Beta2), rest2, root, T(o.Epsilon), decay, rate)
	})
}

// SGD updates weights and, if there is any, their momentum.
func (b *Backend) SGD(o kernels.SGD, w, g, m []kernels.Tensor) error {
	lists := [3]tensorList{{"w", w}, {"g", g}, {"m", m}}
	used := lists[:]
	if o.Momentum == 0 {
		used = lists[:2]
	}
	if err := checkUpdate("sgd", o.Validate(), used...); err != nil {
		return err
	}
	if isFloat32(w) {
		sgd[float32](b, o, w, g, m)
	} else {
		sgd[float64](b, o, w, g, m)
	}
	return nil
}

func sgd[T kernels.Float](b *Backend, o kernels.SGD, w, g, m []kernels.Tensor) {
	rate, scale, momentum := T(o.LearningRate), T(o.EffectiveScale()), T(o.Momentum)
	pull, decay := T(o.WeightDecay), T(1)
	if o.Decoupled {
		pull, decay = 0, T(1-o.LearningRate*o.WeightDecay)
	}
	if o.Momentum == 0 {
		eachUpdate(b, o.Update, w, g, func(_, _, n int, weights, gradients *T) {
			simd.SGD(n, weights, gradients, scale, pull, decay, rate)
		})
		return
	}
	// Of the step, one part is along the gradient, the other along the momentum.
	along, ahead := T(0), rate
	if o.Nesterov {
		along, ahead = rate, T(o.LearningRate*o.Momentum)
	}
	eachUpdate(b, o.Update, w, g, func(i, from, n int, weights, gradients *T) {
		simd.SGDMomentum(n, weights, gradients, place[T](m[i], from), scale, pull, momentum, decay, along, ahead)
	})
}

// Lion updates weights and their momentum.
func (b *Backend) Lion(o kernels.Lion, w, g, m []kernels.Tensor) error {
	if err := checkUpdate("lion", o.Validate(), tensorList{"w", w}, tensorList{"g", g}, tensorList{"m", m}); err != nil {
		return err
	}
	if isFloat32(w) {
		lion[float32](b, o, w, g, m)
	} else {
		lion[float64](b, o, w, g, m)
	}
	return nil
}

func lion[T kernels.Float](b *Backend, o kernels.Lion, w, g, m []kernels.Tensor) {
	rate, scale, decay := T(o.LearningRate), T(o.EffectiveScale()), T(1-o.LearningRate*o.WeightDecay)
	eachUpdate(b, o.Update, w, g, func(i, from, n int, weights, gradients *T) {
		simd.Lion(n, weights, gradients, place[T](m[i], from),
			scale, T(o.Beta1), T(1-o.Beta1), T(o.Beta2), T(1-o.Beta2), decay, rate)
	})
}

// SumSquares adds the squares of each tensor piece by piece, and then the sums of the pieces.
func (b *Backend) SumSquares(x []kernels.Tensor, sums kernels.Tensor) error {
	if err := checkLists("sum of squares", tensorList{"x", x}); err != nil {
		return err
	}
	if sums.DType != kernels.F64 {
		return fmt.Errorf("cpu: sum of squares: sums is %v, it needs to be float64", sums.DType)
	}
	if err := (operand{"sums", sums, []int{len(x)}, denseNeeded}).checkLayout(); err != nil {
		return fmt.Errorf("cpu: sum of squares: %w", err)
	}
	if isFloat32(x) {
		sumSquares[float32](b, x, kernels.Host[float64](sums))
	} else {
		sumSquares[float64](b, x, kernels.Host[float64](sums))
	}
	return nil
}

func sumSquares[T kernels.Float](b *Backend, x []kernels.Tensor, sums []float64) {
	p := newPieces(x)
	defer p.release()
	memory := newWorkspace(bytesFor[float64](p.count()))
	defer memory.release()
	parts := take[float64](memory, p.count())
	p.each(b, func(piece, i, from, n int) { parts[piece] = simd.SumSquares(n, place[T](x[i], from)) })
	for i := range sums {
		sums[i] = compensatedSum(parts[p.starts[i]:p.starts[i+1]])
	}
}

// Zero writes zeros.
func (b *Backend) Zero(x []kernels.Tensor) error {
	if err := checkLists("zero", tensorList{"x", x}); err != nil {
		return err
	}
	p := newPieces(x)
	defer p.release()
	if isFloat32(x) {
		p.each(b, func(_, i, from, n int) { clear(unsafe.Slice(place[float32](x[i], from), n)) })
	} else {
		p.each(b, func(_, i, from, n int) { clear(unsafe.Slice(place[float64](x[i], from), n)) })
	}
	return nil
}

// eachUpdate calls update for every piece of the parameters: the n elements of tensor i from one on. It clears the
// piece's gradients afterwards, while they are in the caches, if that is asked for.
func eachUpdate[T kernels.Float](b *Backend, o kernels.Update, w, g []kernels.Tensor, update func(i, from, n int, weights, gradients *T)) {
	p := newPieces(w)
	defer p.release()
	p.each(b, func(_, i, from, n int) {
		gradients := place[T](g[i], from)
		update(i, from, n, place[T](w[i], from), gradients)
		if o.ClearGradients {
			clear(unsafe.Slice(gradients, n))
		}
	})
}

// place is element i of a row-major tensor.
func place[T kernels.Float](t kernels.Tensor, i int) *T { return offset((*T)(t.Data), i) }

// pieces cuts a list of row-major tensors into pieces, numbered through all of them, so that threads share the work
// evenly whatever the tensors' sizes are.
type pieces struct {
	tensors []kernels.Tensor
	memory  *workspace
	starts  []int64 // a tensor each: the number of its first piece; the number of pieces behind the last
}

func newPieces(tensors []kernels.Tensor) pieces {
	memory := newWorkspace(bytesFor[int64](len(tensors) + 1))
	p := pieces{tensors, memory, take[int64](memory, len(tensors)+1)}
	p.starts[0] = 0
	for i, t := range tensors {
		p.starts[i+1] = p.starts[i] + int64(ceilDiv(t.Elements(), pieceElements))
	}
	return p
}

func (p pieces) release() { p.memory.release() }

func (p pieces) count() int { return int(p.starts[len(p.tensors)]) }

// each calls do for every piece, in tasks that threads share.
func (p pieces) each(b *Backend, do func(piece, tensor, from, n int)) {
	const perTask = taskElements / pieceElements
	b.each(ceilDiv(p.count(), perTask), elementFLOPs*pieceElements*float64(p.count()), func(task int) {
		first, last := task*perTask, min(p.count(), (task+1)*perTask)
		tensor := sort.Search(len(p.tensors), func(i int) bool { return int(p.starts[i+1]) > first })
		for piece := first; piece < last; piece++ {
			for int(p.starts[tensor+1]) <= piece {
				tensor++
			}
			from := (piece - int(p.starts[tensor])) * pieceElements
			do(piece, tensor, from, min(pieceElements, p.tensors[tensor].Elements()-from))
		}
	})
}

// tensorList is an argument that is a list of tensors.
type tensorList struct {
	name    string
	tensors []kernels.Tensor
}

func checkUpdate(kernel string, options error, lists ...tensorList) error {
	if options != nil {
		return fmt.Errorf("cpu: %s: %w", kernel, options)
	}
	return checkLists(kernel, lists...)
}

// checkLists validates lists of row-major tensors before a call touches memory: all of one dtype, which this backend
// must compute in, and those in one place of all lists of one shape.
func checkLists(kernel string, lists ...tensorList) error {
	if err := simd.Check(); err != nil {
		return fmt.Errorf("cpu: %s: %w", kernel, err)
	}
	lead := lists[0]
	for _, l := range lists[1:] {
		if len(l.tensors) != len(lead.tensors) {
			return fmt.Errorf("cpu: %s: %s has %d tensors, it needs one for each of the %d of %s",
				kernel, l.name, len(l.tensors), len(lead.tensors), lead.name)
		}
	}
	for i, like := range lead.tensors {
		for _, l := range lists {
			t, dtype := l.tensors[i], lead.tensors[0].DType
			if (dtype == kernels.F32 || dtype == kernels.F64) && t.DType == dtype && (operand{l.name, t, like.Shape, denseNeeded}).checkLayout() == nil {
				continue
			}
			first := lead.tensors[0]
			return checkOperands(kernel, operand{lead.name + "[0]", first, first.Shape, denseNeeded},
				operand{fmt.Sprintf("%s[%d]", l.name, i), t, like.Shape, denseNeeded})
		}
	}
	return nil
}

// isFloat32 tells which of the two dtypes a checked list has.
func isFloat32(list []kernels.Tensor) bool { return len(list) == 0 || list[0].DType == kernels.F32 }
