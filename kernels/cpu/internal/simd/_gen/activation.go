package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// decay emits e^x for x ≤ 0 without the error of x·log2(e), which grows with x: what that product
// loses to rounding is added to the power by its derivative.
type decay struct {
	exponential
	log2e, log2eRest, ln2 Op
}

func (t target) decay() decay {
	log2e, rest := float64(float32(math.Log2E)), 1.92596299113e-8
	if t.double {
		log2e, rest = math.Log2E, 2.0355273740931033e-17
	}
	return decay{t.exponential(), t.constantInMemory(log2e), t.constantInMemory(rest), t.constantInMemory(math.Ln2)}
}

// of is e^(x + rest), rest being less than a rounding error of x, or nil. rest is lost.
func (d decay) of(x, rest reg.VecVirtual) reg.VecVirtual {
	y, lost := d.vector(), d.vector()
	d.mul(d.log2e, x, y)
	d.copy(x, lost)
	d.pick(VFMSUB132PS, VFMSUB132PD)(d.log2e, y, lost) // lost = x·log2e − y
	d.fma(d.log2eRest, x, lost)
	if rest != nil {
		d.fma(d.log2e, rest, lost)
	}
	d.mul(d.ln2, lost, lost)
	power := d.exponential.of(y)
	d.fma(power, lost, power)
	return power
}

// logistic emits σ(x) = 1/(1 + e⁻ˣ) and 1 − σ(x) = σ(−x), both without cancellation: with e =
// e^−|x|, they are 1/(1 + e) and e/(1 + e), the greater one being σ(x) if x is positive.
type logistic struct {
	target
	decay             decay
	sign, lowest, one Op
}

func (t target) logistic() logistic {
	return logistic{t, t.decay(), t.signBit(), t.constantInMemory(t.either(-110, -750)), t.constant(1)}
}

// of is σ(x) and 1 − σ(x).
func (l logistic) of(x reg.VecVirtual) (sigma, rest reg.VecVirtual) {
	less, e, small := l.vector(), l.vector(), l.vector()
	l.or(l.sign, x, less)
	l.max(less, l.inRegister(l.lowest), less)
	e = l.decay.of(less, nil)
	great := l.vector()
	l.add(l.one, e, great)
	l.div(great, l.inRegister(l.one), great)
	l.mul(great, e, small)
	return l.ifNegative(x, small, great), l.ifNegative(x, great, small)
}

// normal emits the distribution function of the normal distribution, Φ(x), and e^(−x²/2). The upper
// tail 1 − Φ(a) of a = |x| is e^(−a²/2)·r((a − k)/(a + k))/(a + k) with a polynomial r; no
// subtraction is left but from 1, in the half where that is harmless.
type normal struct {
	target
	decay                             decay
	sign, farthest, k, one, minusHalf Op
	coefficients                      []Op
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

func (t target) normal() normal {
	n := normal{
		target: t, decay: t.decay(), sign: t.signBit(), farthest: t.constantInMemory(t.either(14.5, 39)), k: t.constantInMemory(t.either(4, 5)),
		one: t.constant(1), minusHalf: t.constantInMemory(-0.5),
	}
	coefficients := tail32
	if t.double {
		coefficients = tail64
	}
	for _, c := range coefficients {
		n.coefficients = append(n.coefficients, t.constantInMemory(c))
	}
	return n
}

// of is Φ(x) and e^(−x²/2).
func (n normal) of(x reg.VecVirtual) (phi, density reg.VecVirtual) {
	a, half, square, rest := n.vector(), n.vector(), n.vector(), n.vector()
	n.andNot(x, n.inRegister(n.sign), a)
	n.min(a, n.inRegister(n.farthest), a)
	// −a²/2 in two parts
	n.mul(n.minusHalf, a, half)
	n.mul(half, a, square)
	n.copy(half, rest)
	n.mulSub(square, a, rest)
	density = n.decay.of(square, rest)
	// r((a − k)/(a + k))/(a + k)
	over, t, r := n.vector(), n.vector(), n.vector()
	n.add(n.k, a, over)
	n.div(over, n.inRegister(n.one), over)
	n.sub(n.k, a, t)
	n.mul(over, t, t)
	n.polynomial(n.coefficients, t, r)
	n.mul(over, r, r)
	n.mul(density, r, r)
	above := n.vector()
	n.sub(r, n.inRegister(n.one), above)
	return n.ifNegative(x, r, above), density
}

// activation is what a kernel needs to know of one: act(x), or act(x) and act'(x). It is made
// outside of loops.
type activation func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual)

func (t target) silu() activation {
	logistic := t.logistic()
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		sigma, rest := logistic.of(x)
		y = t.vector()
		t.mul(sigma, x, y)
		if slope {
			t.fma(rest, y, sigma) // σ + x·σ·(1 − σ)
		}
		return y, sigma
	}
}

func (t target) geluTanh() activation {
	const rate, cubic = 2 * 0.797884560802865355879892119868763737, 0.044715
	logistic := t.logistic()
	linear, cube, threeCube := t.constantInMemory(rate), t.constantInMemory(rate*cubic), t.constantInMemory(3*rate*cubic)
	most := t.constantInMemory(saturated * saturated)
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		square, z := t.vector(), t.vector()
		y = t.vector()
		t.mul(x, x, square)
		if slope {
			t.min(most, square, square) // one that overflows would be multiplied by zero
		}
		t.load(linear, z)
		t.fma(cube, square, z)
		t.mul(x, z, z)
		sigma, rest := logistic.of(z)
		t.mul(sigma, x, y)
		if slope {
			// σ + x·σ·(1 − σ)·(rate + 3·cubic·x²)
			inner := t.vector()
			t.load(linear, inner)
			t.fma(threeCube, square, inner)
			t.mul(rest, inner, inner)
			t.fma(inner, y, sigma)
		}
		return y, sigma
	}
}

// saturated is an x from which on GELU's slope is exactly 0 or 1, however great the square is taken
// to be.
const saturated = 1e4

func (t target) geluErf() activation {
	normal := t.normal()
	height := t.constantInMemory(1 / math.Sqrt(2*math.Pi))
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		phi, density := normal.of(x)
		y = t.vector()
		t.mul(phi, x, y)
		if slope {
			t.mul(height, density, density)
			t.fma(density, x, phi) // Φ + x·φ
		}
		return y, phi
	}
}

func (t target) reluSquared() activation {
	zero := t.zeros()
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		positive := t.vector()
		y, dydx = t.vector(), t.vector()
		t.max(x, zero, positive)
		t.mul(positive, positive, y)
		if slope {
			t.add(positive, positive, dydx)
		}
		return y, dydx
	}
}

func (t target) relu() activation {
	zero, one := t.zeros(), t.inRegister(t.constant(1))
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		if slope {
			return nil, t.where(isLess, zero, x, one.(reg.VecVirtual), zero)
		}
		y = t.vector()
		t.max(x, zero, y)
		return y, nil
	}
}

func (t target) quickGELU() activation {
	logistic, rate := t.logistic(), t.constantInMemory(1.702)
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		z := t.vector()
		t.mul(rate, x, z)
		sigma, rest := logistic.of(z)
		y = t.vector()
		t.mul(sigma, x, y)
		if slope {
			t.mul(rate, rest, rest)
			t.fma(rest, y, sigma) // σ + x·σ·1.702·(1 − σ)
		}
		return y, sigma
	}
}

func (t target) sigmoid() activation {
	logistic := t.logistic()
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		sigma, rest := logistic.of(x)
		if slope {
			t.mul(sigma, rest, rest)
			return nil, rest
		}
		return sigma, nil
	}
}

func (t target) tanh() activation {
	tanh := t.hyperbolic()
	return func(x reg.VecVirtual, slope bool) (y, dydx reg.VecVirtual) {
		y = tanh.of(x)
		if slope {
			dydx = t.vector()
			t.copy(t.inRegister(tanh.one), dydx)
			t.fnma(y, y, dydx) // 1 − y²
		}
		return y, dydx
	}
}

// activations emits both kernels of every activation.
func activations(t target) {
	for _, a := range []struct {
		name string
		make func() activation
	}{
		{"geluTanh", t.geluTanh}, {"geluErf", t.geluErf}, {"silu", t.silu}, {"reluSquared", t.reluSquared},
		{"relu", t.relu}, {"quickGELU", t.quickGELU}, {"sigmoid", t.sigmoid}, {"tanh", t.tanh},
	} {
		t.function(a.name, "(n int, y, x *T)", "is Activate.")
		restore := flushing()
		y, x := t.line("y"), t.line("x")
		act := a.make()
		t.eachVector(func(v access) {
			out, _ := act(v.load(x), false)
			v.store(out, y)
		})
		restore()
		ret()

		t.function(a.name+"Grad", "(n int, dx, x, dy *T)", "is ActivateGrad.")
		restore = flushing()
		dx, x, dy := t.line("dx"), t.line("x"), t.line("dy")
		act = a.make()
		t.eachVector(func(v access) {
			_, slope := act(v.load(x), true)
			t.mul(v.load(dy), slope, slope)
			v.store(slope, dx)
		})
		restore()
		ret()
	}
}

func swiglu(t target) {
	t.function("swiglu", "(n int, y, gate, up *T)", "is SwiGLU.")
	restore := flushing()
	y, gate, up := t.line("y"), t.line("gate"), t.line("up")
	silu := t.silu()
	t.eachVector(func(v access) {
		out, _ := silu(v.load(gate), false)
		t.mul(v.load(up), out, out)
		v.store(out, y)
	})
	restore()
	ret()
}

func swigluGrad(t target) {
	t.function("swigluGrad", "(n int, dGate, dUp, gate, up, dy *T)", "is SwiGLUGrad.")
	restore := flushing()
	dGate, dUp, gate, up, dy := t.line("dGate"), t.line("dUp"), t.line("gate"), t.line("up"), t.line("dy")
	silu := t.silu()
	t.eachVector(func(v access) {
		out, slope := silu(v.load(gate), true)
		d := v.load(dy)
		t.mul(d, out, out)
		t.mul(d, slope, slope)
		t.mul(v.load(up), slope, slope)
		v.store(out, dUp)
		v.store(slope, dGate)
	})
	restore()
	ret()
}

// either is the number for the element type.
func (t target) either(single, double float64) float64 {
	if t.double {
		return double
	}
	return single
}

// signBit is a constant with nothing but the sign's bit.
func (t target) signBit() Op { return t.constantBits(1 << (8*t.size() - 1)) }

// constantInMemory is a constant that takes no register, of which these kernels have fewer than
// constants.
func (t target) constantInMemory(x float64) Op {
	bits := uint64(math.Float32bits(float32(x)))
	if t.double {
		bits = math.Float64bits(x)
	}
	return t.constantBitsInMemory(bits)
}

func (t target) constantBitsInMemory(bits uint64) Op {
	copies := make([]uint64, t.lanes())
	for i := range copies {
		copies[i] = bits
	}
	return t.table(copies...)
}

// ifNegative picks the lanes of yes where the sign of x is set, of no elsewhere.
func (t target) ifNegative(x, yes, no reg.VecVirtual) reg.VecVirtual {
	to := t.vector()
	switch {
	case !t.avx512 && t.double:
		VBLENDVPD(x, yes, no, to)
	case !t.avx512:
		VBLENDVPS(x, yes, no, to)
	case t.double:
		k := K()
		VPMOVQ2M(x, k)
		VBLENDMPD(yes, no, k, to)
	default:
		k := K()
		VPMOVD2M(x, k)
		VBLENDMPS(yes, no, k, to)
	}
	return to
}
