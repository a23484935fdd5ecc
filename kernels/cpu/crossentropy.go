package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// CrossEntropyForward computes the loss, and the logsumexp of each row if asked.
func (b *Backend) CrossEntropyForward(c *kernels.CrossEntropy, out kernels.CrossEntropyOutputs) (err error) {
	const kernel = "cross-entropy forward"
	defer catch(kernel, &err)
	if err := checked(kernel, c.CheckForward(out)); err != nil {
		return err
	}
	rows, err := newLossRows(kernel, &c.CrossEntropyOptions, c.Targets, lastAxis(c.Logits))
	if err != nil {
		return err
	}
	defer rows.memory.release()
	h := halves{b: b}
	defer h.round()
	logits := h.read(c.Logits)
	inTypeOf(logits, crossEntropyForward[float32], crossEntropyForward[float64])(b, rows, logits, out)
	return nil
}

func crossEntropyForward[T kernels.Float](b *Backend, rows *lossRows, logits kernels.Tensor, out kernels.CrossEntropyOutputs) {
	z, lse := rowViewOf[T](logits), kernels.Host[T](out.LSE)
	b.eachRow(len(rows.targets), rows.vocabulary, func(i int) {
		if lse == nil && rows.ignored(i) {
			return
		}
		if l := lossOfRow(rows, i, z.at(i)); lse != nil {
			lse[i] = l
		}
	})
	loss := kernels.Host[T](out.Loss)
	if rows.Reduction == kernels.NoReduction {
		for i, l := range rows.losses {
			loss[i] = T(l)
		}
		return
	}
	loss[0] = T(rows.total())
}

// CrossEntropyBackward computes the gradient of the logits from the saved logsumexp.
func (b *Backend) CrossEntropyBackward(c *kernels.CrossEntropy, g kernels.CrossEntropyGradients) (err error) {
	const kernel = "cross-entropy backward"
	defer catch(kernel, &err)
	if err := checked(kernel, c.CheckBackward(g)); err != nil {
		return err
	}
	rows, err := newLossRows(kernel, &c.CrossEntropyOptions, c.Targets, lastAxis(c.Logits))
	if err != nil {
		return err
	}
	defer rows.memory.release()
	h := halves{b: b}
	defer h.round()
	logits := h.read(c.Logits)
	g.DLogits = h.write(g.DLogits)
	inTypeOf(logits, crossEntropyBackward[float32], crossEntropyBackward[float64])(b, rows, logits, g)
	return nil
}

func crossEntropyBackward[T kernels.Float](b *Backend, rows *lossRows, logits kernels.Tensor, g kernels.CrossEntropyGradients) {
	z, dz, lse, dLoss := rowViewOf[T](logits), rowViewOf[T](g.DLogits), kernels.Host[T](g.LSE), kernels.Host[T](g.DLoss)
	b.eachRow(len(rows.targets), rows.vocabulary, func(i int) {
		scale := rows.scale
		switch {
		case dLoss == nil:
		case rows.Reduction == kernels.NoReduction:
			scale *= float64(dLoss[i])
		default:
			scale *= float64(dLoss[0])
		}
		gradOfRow(rows, i, dz.at(i), z.at(i), lse[i], scale)
	})
}

// lossRows are the rows of a cross-entropy: what they are to predict, and what their losses are.
type lossRows struct {
	*kernels.CrossEntropyOptions
	vocabulary int
	targets    []int64
	weights    []float64 // of the classes; nil: 1
	mean       float64   // of the weights
	losses     []float64 // of the rows that are not ignored
	scale      float64   // of a row's loss within the whole: 1, or one over the weights of the rows that are not ignored
	memory     *workspace
}

// newLossRows checks the targets. Its memory is the caller's to release.
func newLossRows(kernel string, o *kernels.CrossEntropyOptions, targets kernels.Tensor, vocabulary int) (*lossRows, error) {
	n, weighted := targets.Elements(), 0
	if o.Weights.IsSet() {
		weighted = vocabulary
	}
	r := &lossRows{CrossEntropyOptions: o, vocabulary: vocabulary, mean: 1,
		memory: newWorkspace(bytesFor[int64](n) + bytesFor[float64](n) + bytesFor[float64](weighted))}
	r.targets, r.losses = take[int64](r.memory, n), take[float64](r.memory, n)
	if err := readIndices(r.targets, kernel, "targets", targets, indexRange{vocabulary, o.IgnoreIndex, "IgnoreIndex"}); err != nil {
		r.memory.release()
		return nil, err
	}
	if weighted > 0 {
		r.weights = take[float64](r.memory, vocabulary)
		sum := 0.0
		for class := range r.weights {
			r.weights[class] = kernels.HostElement(o.Weights, class)
			sum += r.weights[class]
		}
		r.mean = sum / float64(vocabulary)
	}
	counted := 0.0
	for i := range r.targets {
		if r.losses[i] = 0; !r.ignored(i) {
			counted += r.weight(i)
		}
	}
	switch {
	case o.Reduction != kernels.MeanReduction:
		r.scale = 1
	case counted > 0:
		r.scale = 1 / counted
	}
	return r, nil
}

// weight is that of a row's target.
func (r *lossRows) weight(i int) float64 {
	if r.weights == nil {
		return 1
	}
	return r.weights[r.targets[i]]
}

func (r *lossRows) ignored(i int) bool { return r.Ignores(int(r.targets[i])) }

// total is the loss of all rows.
func (r *lossRows) total() float64 { return compensatedSum(r.losses) * r.scale }

// lossOfRow reads a row of logits, notes its loss and returns its logsumexp.
func lossOfRow[T kernels.Float](r *lossRows, i int, z *T) (lse T) {
	most, sumExp := exponentialsOf(r.vocabulary, z)
	l := float64(most) + math.Log(sumExp)
	if !r.ignored(i) {
		// loss = (1 − ε)·w_t·(LSE − z_t) + ε·Σ w_v·(LSE − z_v)/V
		r.losses[i] = (1 - r.LabelSmoothing) * r.weight(i) * (l - float64(*offset(z, int(r.targets[i]))))
		if r.LabelSmoothing > 0 {
			r.losses[i] += r.LabelSmoothing * (r.mean*l - weightedSum(r.weights, r.vocabulary, z)/float64(r.vocabulary))
		}
	}
	return T(l)
}

// exponentialsOf is the greatest of a row and the sum of exp(z − most). It goes through memory
// once: every piece is read for its maximum, and from the cache for its exponentials.
func exponentialsOf[T kernels.Float](length int, z *T) (most T, sum float64) {
	for from := 0; from < length; from += pieceElements {
		n, piece := min(pieceElements, length-from), offset(z, from)
		pieceMost := simd.Greatest(n, piece)
		if from == 0 {
			most = pieceMost
		}
		if pieceMost > most {
			sum *= math.Exp(float64(most) - float64(pieceMost))
			most = pieceMost
		}
		sum += float64(simd.SumExp(n, piece, most))
	}
	return most, sum
}

// weightedSum is the sum of a row, with weights if there are any.
func weightedSum[T kernels.Float](weights []float64, length int, z *T) (sum float64) {
	for v, w := range weights {
		sum += w * float64(*offset(z, v))
	}
	for from := 0; from < length && weights == nil; from += pieceElements {
		sum += simd.Sum(min(pieceElements, length-from), offset(z, from))
	}
	return sum
}

// farLSE is the magnitude of a logsumexp from which on it is too coarse in the logits' own type.
const farLSE = 64

// gradOfRow writes dz_v = (exp(z_v − LSE)·((1 − ε)·w_t + ε·Σ w/V) − (1 − ε)·w_t·[v = t] −
// ε·w_v/V)·scale. dz may be z.
//
// What the logsumexp lost to rounding, up to half of its unit in the last place, all exponentials
// of a row lack as a common factor. Where the logits lie far from 0 that is more than a rounding
// error, and their sum tells what it is.
func gradOfRow[T kernels.Float](r *lossRows, i int, dz, z *T, lse T, scale float64) {
	if r.ignored(i) {
		clear(unsafe.Slice(dz, r.vocabulary))
		return
	}
	whole := 1.0
	if math.Abs(float64(lse)) > farLSE {
		whole = 0
		for from := 0; from < r.vocabulary; from += pieceElements {
			whole += float64(simd.SumExp(min(pieceElements, r.vocabulary-from), offset(z, from), lse))
		}
	}
	hit, less := (1-r.LabelSmoothing)*r.weight(i)*scale, r.LabelSmoothing/float64(r.vocabulary)*scale
	all, lessOfAll := hit+r.LabelSmoothing*r.mean*scale, T(less)
	if r.weights != nil {
		lessOfAll = 0
	}
	for from := 0; from < r.vocabulary; from += pieceElements {
		simd.ScaledExp(min(pieceElements, r.vocabulary-from), offset(dz, from), offset(z, from), lse, T(all/whole), lessOfAll)
	}
	if r.weights != nil && less != 0 {
		for v, w := range r.weights {
			*offset(dz, v) -= T(less * w)
		}
	}
	*offset(dz, int(r.targets[i])) -= T(hit)
}

// scalarOr is the value of an optional scalar.
func scalarOr[T kernels.Float](t kernels.Tensor, otherwise float64) float64 {
	if !t.IsSet() {
		return otherwise
	}
	return float64(kernels.Host[T](t)[0])
}

// lastAxis is the length of a tensor's rows.
func lastAxis(t kernels.Tensor) int { return t.Shape[len(t.Shape)-1] }
