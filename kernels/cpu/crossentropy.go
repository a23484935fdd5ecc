package cpu

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// CrossEntropyForward computes the loss, and the logsumexp of each row if asked.
func (b *Backend) CrossEntropyForward(c *kernels.CrossEntropy, out kernels.CrossEntropyOutputs) error {
	const kernel = "cross-entropy forward"
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
	kernels.Host[T](out.Loss)[0] = T(rows.total())
}

// CrossEntropyBackward computes the gradient of the logits from the saved logsumexp.
func (b *Backend) CrossEntropyBackward(c *kernels.CrossEntropy, g kernels.CrossEntropyGradients) error {
	const kernel = "cross-entropy backward"
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
	z, dz, lse, scale := rowViewOf[T](logits), rowViewOf[T](g.DLogits), kernels.Host[T](g.LSE), rows.scale*scalarOr[T](g.DLoss, 1)
	b.eachRow(len(rows.targets), rows.vocabulary, func(i int) { gradOfRow(rows, i, dz.at(i), z.at(i), lse[i], scale) })
}

// lossRows are the rows of a cross-entropy: what they are to predict, and what their losses are.
type lossRows struct {
	*kernels.CrossEntropyOptions
	vocabulary int
	targets    []int64
	losses     []float64 // of the rows that are not ignored
	scale      float64   // of a row's loss within the whole: 1, or one over the number of rows that are not ignored
	memory     *workspace
}

// newLossRows checks the targets. Its memory is the caller's to release.
func newLossRows(kernel string, o *kernels.CrossEntropyOptions, targets kernels.Tensor, vocabulary int) (*lossRows, error) {
	n := targets.Elements()
	r := &lossRows{CrossEntropyOptions: o, vocabulary: vocabulary, memory: newWorkspace(bytesFor[int64](n) + bytesFor[float64](n))}
	r.targets, r.losses = take[int64](r.memory, n), take[float64](r.memory, n)
	if err := readIndices(r.targets, kernel, "targets", targets, vocabulary, o.Ignores); err != nil {
		r.memory.release()
		return nil, err
	}
	counted := 0
	for i := range r.targets {
		r.losses[i] = 0
		if !r.ignored(i) {
			counted++
		}
	}
	r.scale = 1
	if o.Reduction == kernels.MeanReduction {
		r.scale = 1 / float64(max(1, counted))
	}
	return r, nil
}

func (r *lossRows) ignored(i int) bool { return r.Ignores(int(r.targets[i])) }

// total is the loss of all rows.
func (r *lossRows) total() float64 { return compensatedSum(r.losses) * r.scale }

// lossOfRow reads a row of logits, notes its loss and returns its logsumexp. It goes through memory once: every piece is
// read for its maximum, and from the cache for its exponentials.
func lossOfRow[T kernels.Float](r *lossRows, i int, z *T) (lse T) {
	smoothed := r.LabelSmoothing > 0
	most, sumExp, sum := T(0), 0.0, 0.0
	for from := 0; from < r.vocabulary; from += pieceElements {
		n, piece := min(pieceElements, r.vocabulary-from), offset(z, from)
		pieceMost := simd.Greatest(n, piece)
		if from == 0 {
			most = pieceMost
		}
		if pieceMost > most {
			sumExp *= math.Exp(float64(most) - float64(pieceMost))
			most = pieceMost
		}
		sumExp += float64(simd.SumExp(n, piece, most))
		if smoothed {
			sum += simd.Sum(n, piece)
		}
	}
	l := float64(most) + math.Log(sumExp)
	if !r.ignored(i) {
		// loss = LSE − (1 − ε)·z_t − ε·Σ z/V
		r.losses[i] = l - (1-r.LabelSmoothing)*float64(*offset(z, int(r.targets[i])))
		if smoothed {
			r.losses[i] -= r.LabelSmoothing * sum / float64(r.vocabulary)
		}
	}
	return T(l)
}

// farLSE is the magnitude of a logsumexp from which on it is too coarse in the logits' own type.
const farLSE = 64

// gradOfRow writes dz_v = (exp(z_v − LSE) − (1 − ε)·[v = t] − ε/V)·scale. dz may be z.
//
// What the logsumexp lost to rounding, up to half of its unit in the last place, all exponentials of a row lack as a common
// factor. Where the logits lie far from 0 that is more than a rounding error, and their sum tells what it is.
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
	less := T(r.LabelSmoothing / float64(r.vocabulary) * scale)
	for from := 0; from < r.vocabulary; from += pieceElements {
		simd.ScaledExp(min(pieceElements, r.vocabulary-from), offset(dz, from), offset(z, from), lse, T(scale/whole), less)
	}
	*offset(dz, int(r.targets[i])) -= T((1 - r.LabelSmoothing) * scale)
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
