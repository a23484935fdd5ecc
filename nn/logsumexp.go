package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/ops"
)

// LogSumExp is log Σ exp x along an axis, which goes away, without overflow; in float32 where x has
// 16 bits. Where all of x is −∞ it is −∞, with gradients of 0. It is computed
// by [ops.FlashAttentionLSE].
func (x Tensor) LogSumExp(axis int) Tensor {
	at, ok := x.axis("LogSumExp", axis)
	if !ok {
		return Tensor{in: x.in}
	}
	x = x.wide("LogSumExp", "x")
	shape, last := x.Shape().Clone(), len(x.Shape())-1
	if x.failed() {
		return x
	}
	if at < last {
		order := make([]int, 0, last+1)
		for i := range shape {
			if i != at {
				order = append(order, i)
			}
		}
		x = x.Permute(append(order, at)...)
	}
	// x is the bias of scores that are 0: those of a query for each row, and of a key for each
	// column. The output of that attention is 0 too; it is added so that no result of the graph is
	// left over, of which a lispMachine takes but one.
	n := shape[at]
	rows := product(shape) / n
	query, keys := x.in.full(0, x.DType(), 1, 1, rows, 1), x.in.full(0, x.DType(), 1, 1, n, 1)
	bias := x.Reshape(1, 1, rows, n)
	if bias.failed() || query.failed() || keys.failed() {
		return Tensor{in: x.in}
	}
	out, lse, err := ops.FlashAttentionLSE(query.n, keys.n, keys.n, ops.AttentionOptions{Bias: bias.n})
	if err != nil {
		return x.fail(fmt.Errorf("LogSumExp: %w", err))
	}
	y := x.in.of(out, nil).Reshape(rows).Add(x.in.of(lse, nil).Reshape(rows))
	if last == 0 {
		return y.Sum()
	}
	return y.Reshape(append(shape[:at:at], shape[at+1:]...)...)
}
