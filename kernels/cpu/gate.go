package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// ClampedGate computes the gate of pairs.
func (b *Backend) ClampedGate(g kernels.ClampedGate, x, y kernels.Tensor) (err error) {
	defer catch("clamped gate", &err)
	if err := checked("clamped gate", g.CheckForward(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, clampedGate[float32], clampedGate[float64])(b, g, x, y, kernels.Tensor{})
	return nil
}

// ClampedGateBackward computes the gradient of pairs.
func (b *Backend) ClampedGateBackward(g kernels.ClampedGate, x, dy, dx kernels.Tensor) (err error) {
	const kernel = "clamped gate backward"
	defer catch(kernel, &err)
	if err := checked(kernel, g.CheckBackward(x, dy, dx)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, dy, dx = h.read(x), h.read(dy), h.write(dx)
	inTypeOf(x, clampedGate[float32], clampedGate[float64])(b, g, x, dy, dx)
	return nil
}

// clampedGate computes y or, where there is room for them, gradients, for which y holds its own.
func clampedGate[T kernels.Float](b *Backend, gate kernels.ClampedGate, x, y, dx kernels.Tensor) {
	pairs, values, gradients, n := rowViewOf[T](x), rowViewOf[T](y), rowViewOf[T](dx), lastAxis(x)/2
	slope, limit := T(gate.Slope), T(gate.Limit)
	b.eachRow(values.n, 2*n, func(row int) {
		var sigmoids [256]T
		for from := 0; from < n; from += len(sigmoids) {
			piece := min(len(sigmoids), n-from)
			in, out := unsafe.Slice(offset(pairs.at(row), 2*from), 2*piece), unsafe.Slice(offset(values.at(row), from), piece)
			for i := range piece {
				sigmoids[i] = slope * min(in[2*i], limit)
			}
			simd.Activate(kernels.Sigmoid, piece, &sigmoids[0], &sigmoids[0])
			if !dx.IsSet() {
				for i, s := range sigmoids[:piece] {
					out[i] = (max(min(in[2*i+1], limit), -limit) + 1) * min(in[2*i], limit) * s
				}
				continue
			}
			d := unsafe.Slice(offset(gradients.at(row), 2*from), 2*piece)
			for i, s := range sigmoids[:piece] {
				gate, up := in[2*i], in[2*i+1]
				g, u := min(gate, limit), max(min(up, limit), -limit)
				d[2*i], d[2*i+1] = out[i]*(u+1)*(s+slope*g*s*(1-s)), out[i]*g*s
				if gate > limit {
					d[2*i] = 0
				}
				if up > limit || up < -limit {
					d[2*i+1] = 0
				}
			}
		}
	})
}
