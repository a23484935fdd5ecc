package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// RoPE returns x with the pairs of each row rotated, row-major.
func RoPE[T kernels.Float](r *kernels.RoPE, x kernels.Tensor) []T { return rotate[T](r, x, 1) }

// RoPEGrad returns the gradient of x for the gradient dy of y: dy rotated back.
func RoPEGrad[T kernels.Float](r *kernels.RoPE, dy kernels.Tensor) []T { return rotate[T](r, dy, -1) }

func rotate[T kernels.Float](r *kernels.RoPE, x kernels.Tensor, direction float64) []T {
	y, length, d := elements[T](x), x.Shape[2], x.Shape[3]
	if d == 0 {
		return y
	}
	dim, heads := r.Dim(d), x.Shape[1]
	var positions []int
	if r.Positions.IsSet() {
		positions = indices(r.Positions)
	}
	for row := range len(y) / d {
		position := row % length
		if positions != nil {
			position = positions[row/length/heads*length+position]
		}
		for pair := range dim / 2 {
			first, second := pair, pair+dim/2
			if r.Pairing == kernels.Interleaved {
				first, second = 2*pair, 2*pair+1
			}
			sin, cos := math.Sincos(direction * float64(r.Offset+position) * r.Frequency(pair, dim))
			sin, cos = r.EffectiveAmplitude()*sin, r.EffectiveAmplitude()*cos
			x1, x2 := y[row*d+first], y[row*d+second]
			y[row*d+first] = x1*T(cos) - x2*T(sin)
			y[row*d+second] = x2*T(cos) + x1*T(sin)
		}
	}
	return y
}
