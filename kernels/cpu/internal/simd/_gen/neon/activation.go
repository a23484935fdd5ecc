package neon

import "math"

// decay emits e^x for x ≤ 0 without the error of x·log2(e), which grows with x: what that product
// loses to rounding is added to the power by its derivative. Make it outside of loops, as all of
// these.
type decay struct {
	splitter
	log2e, log2eRest, ln2 vec
}

func (k *kernel) decay() decay {
	return decay{k.splitter(), k.constant(k.either(float64(float32(math.Log2E)), math.Log2E)),
		k.constant(k.either(1.92596299113e-8, 2.0355273740931033e-17)), k.constant(math.Ln2)}
}

// of is e^(x + rest), rest being less than a rounding error of x, or none.
func (d decay) of(x vec, rest ...vec) vec {
	y := d.mul(x, d.log2e)
	lost := d.fma(d.negate(y), x, d.log2e)
	d.fma(lost, x, d.log2eRest)
	for _, r := range rest {
		d.fma(lost, r, d.log2e)
	}
	power := d.exp2(y)
	return d.fma(power, d.mul(lost, d.ln2), power)
}

// logistic emits σ(x) = 1/(1 + e⁻ˣ) and 1 − σ(x) = σ(−x), both without cancellation: with e =
// e^−|x|, they are 1/(1 + e) and e/(1 + e), the greater one being σ(x) if x is positive.
type logistic struct {
	decay
	lowest, one vec
}

func (k *kernel) logistic() logistic {
	return logistic{k.decay(), k.constant(k.either(-110, -750)), k.constant(1)}
}

// of is σ(x) and 1 − σ(x).
func (l logistic) of(x vec) (sigma, rest vec) {
	e := l.decay.of(l.max(l.negate(l.abs(x)), l.lowest))
	great := l.div(l.one, l.add(e, l.one))
	small := l.mul(e, great)
	negative := l.negative(x)
	return l.pick(l.copy(negative), small, great), l.pick(negative, great, small)
}

// negative is a mask of the lanes less than zero.
func (k *kernel) negative(x vec) vec { return k.greater(k.zeros(), x) }

// normal emits the distribution function of the normal distribution, Φ(x), and e^(−x²/2). The upper
// tail 1 − Φ(a) of a = |x| is e^(−a²/2)·r((a − k)/(a + k))/(a + k) with a polynomial r; no
// subtraction is left but from 1, in the half where that is harmless.
type normal struct {
	decay
	farthest, middle, one, minusHalf vec
}

// Polynomials of least greatest relative error for r, with k = 4 up to a = 14.5, and k = 5 up to a
// = 39, beyond which e^(−a²/2) is zero. They are off by 8.7e-9 and 1.7e-16.
var (
	tail32 = []float64{0.75528513539, -0.60789658827, 0.38713690111, -0.18652344156, 0.060403830936, -0.0075252707137,
		-0.0035125531438, 0.0015699226073, 0.00017935282035, -0.00013197218995}
	tail64 = []float64{0.7691930497500628454, -0.6653825028900553694, 0.4953056159700088828, -0.3135331566714471018,
		0.165020366168836523, -0.06911863870208227327, 0.02079506682890462895, -0.002993376824962915283,
		-0.0007978696796475339784, 0.0005448994279949191638, -0.00005937413233306784505, -0.00004976415519082738636,
		0.00001667559101414818838, 3.983575201627232534e-6, -2.756768415744600237e-6, -3.388347280383876058e-7,
		4.160316019283813347e-7, 4.119345319532392307e-8, -5.267849435974019359e-8, -5.969464009019358375e-9,
		3.067181370883446292e-9}
)

func (k *kernel) normal() normal {
	return normal{k.decay(), k.constant(k.either(14.5, 39)), k.constant(k.either(4, 5)), k.constant(1), k.constant(-0.5)}
}

// of is Φ(x) and e^(−x²/2).
func (n normal) of(x vec) (phi, density vec) {
	a := n.min(n.abs(x), n.farthest)
	// −a²/2 in two parts
	half := n.mul(a, n.minusHalf)
	square := n.mul(a, half)
	density = n.decay.of(square, n.fma(n.negate(square), half, a))
	// r((a − k)/(a + k))/(a + k)
	over := n.div(n.one, n.add(a, n.middle))
	r := n.polynomial(n.coefficients(tail32, tail64), n.mul(n.sub(a, n.middle), over))
	r = n.mul(n.mul(r, over), density)
	return n.pick(n.negative(x), r, n.sub(n.one, r)), density
}

// activation is what a kernel needs to know of one: act(x) or, with slope, act(x) and act'(x). It
// is made outside of loops.
type activation func(x vec, slope bool) (y, dydx vec)

func (k *kernel) silu() activation {
	logistic := k.logistic()
	return func(x vec, slope bool) (y, dydx vec) {
		sigma, rest := logistic.of(x)
		y = k.mul(x, sigma)
		if slope {
			k.fma(sigma, y, rest) // σ + x·σ·(1 − σ)
		}
		return y, sigma
	}
}

func (k *kernel) geluTanh() activation {
	const rate, cubic = 2 * 0.797884560802865355879892119868763737, 0.044715
	logistic := k.logistic()
	cube, threeCube := k.constant(rate*cubic), k.constant(3*rate*cubic)
	most := k.constant(saturated * saturated)
	return func(x vec, slope bool) (y, dydx vec) {
		square := k.mul(x, x)
		if slope {
			square = k.min(square, most) // one that overflows would be multiplied by zero
		}
		sigma, rest := logistic.of(k.mul(k.fma(k.constant(rate), square, cube), x))
		y = k.mul(x, sigma)
		if slope {
			// σ + x·σ·(1 − σ)·(rate + 3·cubic·x²)
			inner := k.fma(k.constant(rate), square, threeCube)
			k.fma(sigma, y, k.mul(inner, rest))
		}
		return y, sigma
	}
}

// saturated is an x from which on GELU's slope is exactly 0 or 1, however great the square is taken
// to be.
const saturated = 1e4

func (k *kernel) geluErf() activation {
	normal := k.normal()
	height := k.constant(1 / math.Sqrt(2*math.Pi))
	return func(x vec, slope bool) (y, dydx vec) {
		phi, density := normal.of(x)
		y = k.mul(x, phi)
		if slope {
			k.fma(phi, x, k.mul(density, height)) // Φ + x·φ
		}
		return y, phi
	}
}

func (k *kernel) reluSquared() activation {
	zero := k.zeros()
	return func(x vec, slope bool) (y, dydx vec) {
		positive := k.max(x, zero)
		if slope {
			return y, k.add(positive, positive)
		}
		return k.mul(positive, positive), dydx
	}
}

func (k *kernel) relu() activation {
	zero, one := k.zeros(), k.constant(1)
	return func(x vec, slope bool) (y, dydx vec) {
		if slope {
			return y, k.and(k.greater(x, zero), one)
		}
		return k.max(x, zero), dydx
	}
}

func (k *kernel) quickGELU() activation {
	logistic, rate := k.logistic(), k.constant(1.702)
	return func(x vec, slope bool) (y, dydx vec) {
		sigma, rest := logistic.of(k.mul(x, rate))
		y = k.mul(x, sigma)
		if slope {
			k.fma(sigma, y, k.mul(rest, rate)) // σ + x·σ·1.702·(1 − σ)
		}
		return y, sigma
	}
}

func (k *kernel) sigmoid() activation {
	logistic := k.logistic()
	return func(x vec, slope bool) (y, dydx vec) {
		sigma, rest := logistic.of(x)
		if slope {
			return y, k.mul(sigma, rest)
		}
		return sigma, dydx
	}
}

func (k *kernel) tanh() activation {
	tanh := k.hyperbolic()
	return func(x vec, slope bool) (y, dydx vec) {
		y = tanh.of(x)
		if slope {
			dydx = k.fms(k.copy(tanh.one), y, y) // 1 − y²
		}
		return y, dydx
	}
}

func activate(make func(*kernel) activation) func(*kernel) {
	return func(k *kernel) {
		y, x := k.line("y"), k.line("x")
		act := make(k)
		k.eachVector(func(a access) {
			out, _ := act(a.load(x), false)
			a.store(out, y)
		})
	}
}

func activateGrad(make func(*kernel) activation) func(*kernel) {
	return func(k *kernel) {
		dx, x, dy := k.line("dx"), k.line("x"), k.line("dy")
		act := make(k)
		k.eachVector(func(a access) {
			_, slope := act(a.load(x), true)
			a.store(k.mul(slope, a.load(dy)), dx)
		})
	}
}

func swiglu(k *kernel) {
	y, gate, up := k.line("y"), k.line("gate"), k.line("up")
	silu := k.silu()
	k.eachVector(func(a access) {
		out, _ := silu(a.load(gate), false)
		a.store(k.mul(out, a.load(up)), y)
	})
}

func swigluGrad(k *kernel) {
	dGate, dUp, gate, up, dy := k.line("dGate"), k.line("dUp"), k.line("gate"), k.line("up"), k.line("dy")
	silu := k.silu()
	k.eachVector(func(a access) {
		out, slope := silu(a.load(gate), true)
		d := a.load(dy)
		slope = k.mul(k.mul(slope, d), a.load(up))
		a.store(k.mul(out, d), dUp)
		a.store(slope, dGate)
	})
}
