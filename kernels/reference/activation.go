package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Activation is y = act(x) and dx = dy·act'(x).
func Activation[T kernels.Float](act kernels.Activation, x, dy []T) (y, dx []T) {
	y, dx = make([]T, len(x)), make([]T, len(x))
	for i := range x {
		var slope T
		y[i], slope = activate(act, x[i])
		dx[i] = dy[i] * slope
	}
	return y, dx
}

// SwiGLU is y = silu(gate)·up and its gradients.
func SwiGLU[T kernels.Float](gate, up, dy []T) (y, dGate, dUp []T) {
	y, dGate, dUp = make([]T, len(gate)), make([]T, len(gate)), make([]T, len(gate))
	for i := range gate {
		a, slope := activate(kernels.SiLU, gate[i])
		y[i] = a * up[i]
		dGate[i] = dy[i] * up[i] * slope
		dUp[i] = dy[i] * a
	}
	return y, dGate, dUp
}

// activate is act(x) and act'(x).
func activate[T kernels.Float](act kernels.Activation, x T) (y, slope T) {
	switch act {
	case kernels.GELUTanh:
		// x·σ(2z), with z = √(2/π)·(x + 0.044715·x³)
		twiceZ := 2 * T(math.Sqrt(2/math.Pi)) * (x + 0.044715*x*x*x)
		s := sigmoid(twiceZ)
		return x * s, s + x*s*sigmoid(-twiceZ)*2*T(math.Sqrt(2/math.Pi))*(1+3*0.044715*x*x)
	case kernels.GELUErf:
		// x·Φ(x), whose derivative is Φ(x) + x·φ(x). Below zero, 1 + erf cancels and erfc does not.
		phi := T(0.5 * math.Erfc(-float64(x)/math.Sqrt2))
		density := exp(-x*x/2) / T(math.Sqrt(2*math.Pi))
		return x * phi, phi + x*density
	case kernels.SiLU:
		s := sigmoid(x)
		return x * s, s + x*s*sigmoid(-x)
	case kernels.ReLUSquared:
		if x < 0 {
			return 0, 0
		}
		return x * x, 2 * x
	case kernels.ReLU:
		if x > 0 {
			return x, 1
		}
		return x * 0, 0 // NaN stays
	case kernels.QuickGELU:
		s := sigmoid(1.702 * x)
		return x * s, s + x*s*sigmoid(-1.702*x)*1.702
	case kernels.Sigmoid:
		s := sigmoid(x)
		return s, s * sigmoid(-x)
	case kernels.Tanh:
		y := T(math.Tanh(float64(x)))
		return y, 1 - y*y
	}
	return x, 1
}

func sigmoid[T kernels.Float](x T) T { return 1 / (1 + exp(-x)) }
