package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// AttentionDelta computes δ_i = Σ_d O_id·dO_id − dLSE_i for every query row.
func (b *Backend) AttentionDelta(a *kernels.Attention, o, dO, dLSE, delta kernels.Tensor) (err error) {
	defer catch("attention delta", &err)
	if err := checked("attention delta", a.CheckDelta(o, dO, dLSE, delta)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	o, dO = h.read(o), h.read(dO)
	inTypeOf(o, attentionDelta[float32], attentionDelta[float64])(b, o, dO, dLSE, delta)
	return nil
}

func attentionDelta[T kernels.Float](b *Backend, o, dO, dLSE, delta kernels.Tensor) {
	batch, heads, length, dv := o.Shape[0], o.Shape[1], o.Shape[2], o.Shape[3]
	out, lse := kernels.Host[T](delta), kernels.Host[T](dLSE)
	if length == 0 {
		return
	}
	perTask := b.rowsPerTask(batch*heads*length, dv)
	parts := ceilDiv(length, perTask) // of a head
	b.each(batch*heads*parts, elementFLOPs*float64(o.Elements()), func(task int) {
		head, from := task/parts, task%parts*perTask
		left, right := matrix[T](o, head/heads, head%heads, from), matrix[T](dO, head/heads, head%heads, from)
		first, end := head*length+from, head*length+min(length, from+perTask)
		part := out[first:end]
		simd.Dots(len(part), dv, left.at(0), left.stride, right.at(0), right.stride, part)
		if lse != nil {
			for i, d := range lse[first:end] {
				part[i] -= d
			}
		}
	})
}
