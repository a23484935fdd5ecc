package cpu

import (
	"math"
	"sort"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// AdamW updates weights and both of their moments.
func (b *Backend) AdamW(o kernels.AdamW, w, g, m, v []kernels.Tensor) (err error) {
	defer catch("adamw", &err)
	if err := checked("adamw", o.Check(w, g, m, v)); err != nil {
		return err
	}
	if steps, made := decide(&o.Update); !made {
		return b.skip(o.Update, g)
	} else if steps > 0 {
		o.Step = steps
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
func (b *Backend) SGD(o kernels.SGD, w, g, m []kernels.Tensor) (err error) {
	defer catch("sgd", &err)
	if err := checked("sgd", o.Check(w, g, m)); err != nil {
		return err
	}
	if len(g) > 0 && g[0].DType == kernels.F16 {
		return kernels.Unsupported{Device: b.Name(), What: "sgd by gradients of float16"}
	}
	if _, made := decide(&o.Update); !made {
		return b.skip(o.Update, g)
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

// Momentum moves momenta, and gives what SGD would add to weights.
func (b *Backend) Momentum(o kernels.SGD, g, m, y []kernels.Tensor, sums kernels.Tensor) (err error) {
	defer catch("momentum", &err)
	if err := checked("momentum", o.CheckMomentum(g, m, y, sums)); err != nil {
		return err
	}
	if err := b.Zero(y); err != nil {
		return err
	}
	_, made := decide(&o.Update)
	o.LearningRate, o.WeightDecay, o.Control = 1, 0, kernels.Tensor{}
	if !made {
		err = b.skip(o.Update, g)
	} else {
		err = b.SGD(o, y, g, m)
	}
	if err != nil || !sums.IsSet() {
		return err
	}
	return b.SumSquares(y, sums)
}

// Normalize brings tensors to one norm.
func (b *Backend) Normalize(x []kernels.Tensor, sums kernels.Tensor, factor float64, y []kernels.Tensor) (err error) {
	defer catch("normalize", &err)
	if err := checked("normalize", kernels.CheckNormalize(x, sums, factor, y)); err != nil {
		return err
	}
	if len(y) > 0 && y[0].DType == kernels.F16 {
		return kernels.Unsupported{Device: b.Name(), What: "normalize to float16"}
	}
	if isFloat32(x) {
		normalize[float32](b, x, kernels.Host[float64](sums), factor, y)
	} else {
		normalize[float64](b, x, kernels.Host[float64](sums), factor, y)
	}
	return nil
}

func normalize[T kernels.Float](b *Backend, x []kernels.Tensor, sums []float64, factor float64, y []kernels.Tensor) {
	p := newPieces(x)
	defer p.release()
	p.each(b, func(_, i, from, n int) {
		by := 0.0
		if sums[i] > 0 {
			by = factor / math.Sqrt(sums[i])
		}
		to := unsafe.Slice(place[T](y[i], from), n)
		for k, v := range unsafe.Slice(place[T](x[i], from), n) {
			to[k] = T(float64(v) * by)
		}
	})
}

// Lion updates weights and their momentum.
func (b *Backend) Lion(o kernels.Lion, w, g, m []kernels.Tensor) (err error) {
	defer catch("lion", &err)
	if err := checked("lion", o.Check(w, g, m)); err != nil {
		return err
	}
	if _, made := decide(&o.Update); !made {
		return b.skip(o.Update, g)
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
func (b *Backend) SumSquares(x []kernels.Tensor, sums kernels.Tensor) (err error) {
	defer catch("sum of squares", &err)
	if err := checked("sum of squares", kernels.CheckSumSquares(x, sums)); err != nil {
		return err
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

// PlanStep decides about a step.
func (b *Backend) PlanStep(p kernels.StepPlan, sums, control kernels.Tensor) (err error) {
	defer catch("plan step", &err)
	if err := p.Check(sums, control); err != nil {
		return callError("plan step", err)
	}
	c := kernels.Host[float64](control)
	rate := math.NaN()
	if at := c[kernels.ControlSteps] - c[kernels.ControlFirstRate]; at >= 0 && at < kernels.RateWindow {
		rate = c[kernels.ControlRates+int(at)]
	}
	if !isFinite(rate) {
		c[kernels.ControlVerdict] = kernels.NoRate
		return nil
	}
	runs := float64(p.EffectiveAccumulation()) * c[kernels.ControlLossScale]
	most := kernels.LargestNorm * runs
	total, verdict := 0.0, kernels.StepMade
	for i, sum := range kernels.Host[float64](sums) {
		total += sum
		if verdict == kernels.StepMade && !(total < most*most) {
			verdict = i
		}
	}
	norm, clip := math.Sqrt(total)/runs, 1.0
	if p.ClipNorm > 0 {
		clip = min(1, p.ClipNorm/(norm+1e-6))
	}
	c[kernels.ControlNorm], c[kernels.ControlVerdict] = norm, float64(verdict)
	c[kernels.ControlRate], c[kernels.ControlScale] = rate, clip/runs
	count(p.LossScaling, c)
	return nil
}

// count counts a step about which c says the verdict.
func count(l kernels.LossScaling, c []float64) {
	if c[kernels.ControlVerdict] != kernels.StepMade {
		c[kernels.ControlSkipped]++
		c[kernels.ControlSkippedInARow]++
		c[kernels.ControlGoodSteps] = 0
		if l.Interval > 0 {
			c[kernels.ControlLossScale] *= l.EffectiveBackoff()
		}
		return
	}
	c[kernels.ControlSteps]++
	c[kernels.ControlSkippedInARow] = 0
	c[kernels.ControlGoodSteps]++
	if l.Interval > 0 && c[kernels.ControlGoodSteps] == float64(l.Interval) {
		c[kernels.ControlLossScale] *= l.EffectiveGrowth()
		c[kernels.ControlGoodSteps] = 0
	}
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// decide puts a control vector's numbers, if there is one, into an update, and returns its number
// of steps and whether the step is made.
func decide(u *kernels.Update) (steps int, made bool) {
	if !u.Control.IsSet() {
		return 0, true
	}
	c := kernels.Host[float64](u.Control)
	u.LearningRate *= c[kernels.ControlRate]
	u.GradientScale = u.EffectiveScale() * c[kernels.ControlScale]
	return int(c[kernels.ControlSteps]), c[kernels.ControlVerdict] == kernels.StepMade
}

// skip is an update that is not made.
func (b *Backend) skip(u kernels.Update, g []kernels.Tensor) error {
	if !u.ClearGradients {
		return nil
	}
	return b.Zero(g)
}

// Zero writes zeros.
func (b *Backend) Zero(x []kernels.Tensor) (err error) {
	defer catch("zero", &err)
	if err := checked("zero", kernels.CheckZero(x)); err != nil {
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

// eachUpdate calls update for every piece of the parameters: the n elements of tensor i from one
// on. It clears the piece's gradients afterwards, while they are in the caches, if that is asked
// for.
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

// pieces cuts a list of row-major tensors into pieces, numbered through all of them, so that
// threads share the work evenly whatever the tensors' sizes are.
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

// isFloat32 tells which of the two dtypes a checked list has.
func isFloat32(list []kernels.Tensor) bool { return len(list) == 0 || list[0].DType == kernels.F32 }
