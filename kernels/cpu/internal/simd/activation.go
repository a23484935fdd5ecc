package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Activate applies an activation: y_j = act(x_j). y may be x.
func Activate[T kernels.Float](act kernels.Activation, n int, y, x *T) {
	if n <= 0 {
		return
	}
	out, in := row(y, 0, 0, n), row(x, 0, 0, n)
	switch {
	case act == kernels.NoActivation:
		copy(out, in)
	case active != Generic:
		activateVector(act, n, y, x)
	default:
		for j, v := range in {
			out[j] = T(activation(act, float64(v)))
		}
	}
}

func activateVector[T kernels.Float](act kernels.Activation, n int, y, x *T) {
	switch act {
	case kernels.GELUTanh:
		geluTanhVector(n, y, x)
	case kernels.GELUErf:
		geluErfVector(n, y, x)
	case kernels.SiLU:
		siluVector(n, y, x)
	case kernels.ReLUSquared:
		reluSquaredVector(n, y, x)
	case kernels.ReLU:
		reluVector(n, y, x)
	case kernels.QuickGELU:
		quickGELUVector(n, y, x)
	case kernels.Sigmoid:
		sigmoidVector(n, y, x)
	case kernels.Tanh:
		tanhVector(n, y, x)
	}
}

// ActivateGrad multiplies by the derivative: dx_j = dy_j·act'(x_j). dx may be x or dy.
func ActivateGrad[T kernels.Float](act kernels.Activation, n int, dx, x, dy *T) {
	if n <= 0 {
		return
	}
	out, in, grad := row(dx, 0, 0, n), row(x, 0, 0, n), row(dy, 0, 0, n)
	switch {
	case act == kernels.NoActivation:
		copy(out, grad)
	case active != Generic:
		activateGradVector(act, n, dx, x, dy)
	default:
		for j, v := range in {
			out[j] = grad[j] * T(slope(act, float64(v)))
		}
	}
}

func activateGradVector[T kernels.Float](act kernels.Activation, n int, dx, x, dy *T) {
	switch act {
	case kernels.GELUTanh:
		geluTanhGradVector(n, dx, x, dy)
	case kernels.GELUErf:
		geluErfGradVector(n, dx, x, dy)
	case kernels.SiLU:
		siluGradVector(n, dx, x, dy)
	case kernels.ReLUSquared:
		reluSquaredGradVector(n, dx, x, dy)
	case kernels.ReLU:
		reluGradVector(n, dx, x, dy)
	case kernels.QuickGELU:
		quickGELUGradVector(n, dx, x, dy)
	case kernels.Sigmoid:
		sigmoidGradVector(n, dx, x, dy)
	case kernels.Tanh:
		tanhGradVector(n, dx, x, dy)
	}
}

// SwiGLU gates: y_j = silu(gate_j)·up_j. y may be gate or up.
func SwiGLU[T kernels.Float](n int, y, gate, up *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		swigluVector(n, y, gate, up)
		return
	}
	out, u := row(y, 0, 0, n), row(up, 0, 0, n)
	for j, g := range row(gate, 0, 0, n) {
		out[j] = T(activation(kernels.SiLU, float64(g))) * u[j]
	}
}

// SwiGLUGrad is the gradient of [SwiGLU]: dGate_j = dy_j·up_j·silu'(gate_j) and dUp_j =
// dy_j·silu(gate_j). The outputs may be inputs, each in its own place or in that of dy.
func SwiGLUGrad[T kernels.Float](n int, dGate, dUp, gate, up, dy *T) {
	if n <= 0 {
		return
	}
	if active != Generic {
		swigluGradVector(n, dGate, dUp, gate, up, dy)
		return
	}
	outG, outU := row(dGate, 0, 0, n), row(dUp, 0, 0, n)
	g, u, d := row(gate, 0, 0, n), row(up, 0, 0, n), row(dy, 0, 0, n)
	for j := range g {
		sigma, rest := logistic(float64(g[j]))
		a := float64(g[j]) * sigma
		outG[j], outU[j] = d[j]*u[j]*T(sigma+a*rest), d[j]*T(a)
	}
}

// activation is act(x).
func activation(act kernels.Activation, x float64) float64 {
	switch act {
	case kernels.GELUTanh:
		sigma, _ := logistic(x * (geluRate + geluCubic*x*x))
		return x * sigma
	case kernels.GELUErf:
		return x * 0.5 * math.Erfc(-x/math.Sqrt2)
	case kernels.SiLU:
		sigma, _ := logistic(x)
		return x * sigma
	case kernels.ReLUSquared:
		positive := max(x, 0)
		return positive * positive
	case kernels.ReLU:
		return max(x, 0)
	case kernels.QuickGELU:
		sigma, _ := logistic(quickGELURate * x)
		return x * sigma
	case kernels.Sigmoid:
		sigma, _ := logistic(x)
		return sigma
	case kernels.Tanh:
		return math.Tanh(x)
	}
	return x
}

// slope is act'(x).
func slope(act kernels.Activation, x float64) float64 {
	switch act {
	case kernels.GELUTanh:
		x = max(-geluSaturated, min(x, geluSaturated)) // a square that overflows would be multiplied by zero
		sigma, rest := logistic(x * (geluRate + geluCubic*x*x))
		return sigma + x*sigma*rest*(geluRate+3*geluCubic*x*x)
	case kernels.GELUErf:
		return 0.5*math.Erfc(-x/math.Sqrt2) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
	case kernels.SiLU:
		sigma, rest := logistic(x)
		return sigma + x*sigma*rest
	case kernels.ReLUSquared:
		return 2 * max(x, 0)
	case kernels.ReLU:
		if x > 0 {
			return 1
		}
		return 0
	case kernels.QuickGELU:
		sigma, rest := logistic(quickGELURate * x)
		return sigma + x*sigma*(quickGELURate*rest)
	case kernels.Sigmoid:
		sigma, rest := logistic(x)
		return sigma * rest
	case kernels.Tanh:
		y := math.Tanh(x)
		return 1 - y*y
	}
	return 1
}

// logistic is σ(x) and 1 − σ(x), both without cancellation.
func logistic(x float64) (sigma, rest float64) {
	e := math.Exp(-math.Abs(x))
	great := 1 / (1 + e)
	if x < 0 {
		return e * great, great
	}
	return great, e * great
}

// GELU's tanh form is x·σ(geluRate·x + geluCubic·x³).
const (
	geluRate  = 2 * 0.797884560802865355879892119868763737 // 2·√(2/π)
	geluCubic = geluRate * 0.044715

	quickGELURate = 1.702

	geluSaturated = 1e4 // from which on its slope is exactly 0 or 1
)
