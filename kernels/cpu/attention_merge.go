package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// AttentionMerge joins attention to some keys with attention to others.
func (b *Backend) AttentionMerge(sum, part kernels.AttentionOutputs) (err error) {
	defer catch("attention merge", &err)
	if err := checked("attention merge", kernels.CheckMerge(sum, part)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	part.O = h.read(part.O)
	inTypeOf(sum.O, attentionMerge[float32], attentionMerge[float64])(b, sum, part)
	return nil
}

func attentionMerge[T kernels.Float](b *Backend, sum, part kernels.AttentionOutputs) {
	o, partO := rowViewOf[T](sum.O), rowViewOf[T](part.O)
	lse, partLSE := kernels.Host[T](sum.LSE), kernels.Host[T](part.LSE)
	at := func(t kernels.Tensor, row int) int {
		heads, length := t.Shape[1], t.Shape[2]
		return t.Offset(row/length/heads, row/length%heads, row%length)
	}
	b.eachRow(o.n, o.length, func(row int) {
		sumAt := at(sum.LSE, row)
		x, y := float64(lse[sumAt]), float64(partLSE[at(part.LSE, row)])
		none := math.Inf(-1)
		if y == none {
			return
		}
		to, from := o.at(row), partO.at(row)
		if x == none {
			lse[sumAt] = T(y)
			for d := range o.length {
				*offset(to, d) = *offset(from, d)
			}
			return
		}
		most := max(x, y)
		joined := most + math.Log(math.Exp(x-most)+math.Exp(y-most))
		own, other := T(math.Exp(x-joined)), T(math.Exp(y-joined))
		lse[sumAt] = T(joined)
		for d := range o.length {
			*offset(to, d) = *offset(to, d)*own + *offset(from, d)*other
		}
	})
}
