package cpu

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// AttentionScores computes the scores of some query rows with all keys, as they enter the softmax.
// One thread goes through what follows the products.
func (b *Backend) AttentionScores(a *kernels.Attention, rows []int, s kernels.Tensor) (err error) {
	const kernel = "attention scores"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckScores(rows, s)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := *a
	wide.Q, wide.K = h.read(a.Q), h.read(a.K)
	return inTypeOf(wide.Q, attentionScores[float32], attentionScores[float64])(b, &wide, rows, s)
}

func attentionScores[T kernels.Float](b *Backend, a *kernels.Attention, rows []int, s kernels.Tensor) error {
	tables, err := kernels.TableValues[T](a)
	if err != nil {
		return callError("attention scores", err)
	}
	batch, heads, d := a.Q.Shape[0], a.Q.Shape[1], a.Q.Shape[3]
	chosen := kernels.Of(make([]T, batch*heads*len(rows)*d), batch, heads, len(rows), d)
	for n, i := range rows {
		kernels.CopyHost(chosen.Slice(2, n, n+1), a.Q.Slice(2, i, i+1))
	}
	scores, keys, group := kernels.Host[T](s), a.K.Shape[2], heads/max(1, a.K.Shape[1])
	for _, sequence := range a.Sequences() {
		for head := range heads {
			q := chosen.Slice(0, sequence.Batch, sequence.Batch+1).Slice(1, head, head+1)
			k := a.K.Slice(0, sequence.KeyBatch, sequence.KeyBatch+1).Slice(1, head/group, head/group+1)
			out := s.Slice(0, sequence.Batch, sequence.Batch+1).Slice(1, head, head+1)
			if err := b.MatMul(&kernels.MatMul{A: q, B: k.Permute(0, 1, 3, 2)}, kernels.MatMulOutputs{C: out}); err != nil {
				return err
			}
			for n, i := range rows {
				at := ((sequence.Batch*heads+head)*len(rows) + n) * keys
				finishScores(a, sequence, head, i, scores[at:][:keys], tables)
			}
		}
	}
	return nil
}

// finishScores makes the scores of a row of its products q·k.
func finishScores[T kernels.Float](a *kernels.Attention, s kernels.Sequence, head, i int, scores []T, tables []score.Values[T]) {
	scale, off := T(a.EffectiveScale()), s.Distance
	for j := range scores[:s.Sk] {
		x := float64(scores[j] * scale)
		if a.SoftCap > 0 {
			x = a.SoftCap * math.Tanh(x/a.SoftCap)
		}
		if a.ALiBi != nil {
			x -= a.ALiBi[head] * math.Abs(float64(i+off-j))
		}
		if a.Bias.IsSet() {
			at := [4]int{s.Index, head, i, j}
			for axis, n := range a.Bias.Shape {
				at[axis] = min(at[axis], n-1) // an axis of 1 stands for every index
			}
			x += kernels.HostElement(a.Bias, a.Bias.Offset(at[:]...))
		}
		scores[j] = T(x)
	}
	line := score.Line[T]{Where: a.Where(s, head), N: s.Sk, Query: i, KeyStep: 1, Scores: slices.Clone(scores[:s.Sk]), Tables: tables}
	if a.Score != nil {
		e := score.NewEvaluator[T](a.Score.Forward)
		e.Run(line)
		copy(scores, e.Floats(0))
	}
	shown := func(int) bool { return true }
	if a.Mask != nil {
		e := score.NewEvaluator[T](a.Mask.Whole)
		e.Run(line)
		shown = func(j int) bool { return e.Bools(0)[j] }
	}
	lo, hi := a.Band(s)
	for j := range scores {
		if j >= s.Sk || j < i+lo || j >= i+hi || !shown(j) {
			scores[j] = T(math.Inf(-1))
		}
	}
}
