package neon

import "math"

// Polynomials for 2^f with f in [−½, ½], lowest power first, whose greatest relative error is the
// least possible with the first coefficient fixed at 1, so that 2^0 is exactly 1. They are those of
// the other instruction sets.
var (
	centred32 = []float64{1, 0.6931469776, 0.2402224209, 0.05550733706, 0.00967151258, 0.001326474231}
	// One power more, for 2^f − 1 near 0, where the error counts relative to f.
	small32   = []float64{1, 0.6931472029, 0.2402264791, 0.05550332475, 0.009618437381, 0.001339887316, 0.0001535336328}
	centred64 = []float64{1, 0.693147180559945326, 0.240226506959101313, 0.0555041086648200849, 0.00961812910759412792,
		0.00133335581467743115, 0.000154035304570975638, 0.0000152527334932538375, 1.32154352909368348e-6,
		1.01781995893267417e-7, 7.07378161018301962e-9, 4.43475958267159913e-10}
)

// coefficients are the list for the element type.
func (k *kernel) coefficients(single, double []float64) []float64 {
	if k.double {
		return double
	}
	return single
}

// polynomial evaluates by Horner's rule, summing into coefficients that are loaded afresh: loads
// cost the units that add and multiply nothing.
func (k *kernel) polynomial(coefficients []float64, f vec) vec {
	last := len(coefficients) - 1
	power := k.constant(coefficients[last])
	for i := last - 1; i >= 0; i-- {
		power = k.fma(k.constant(coefficients[i]), power, f)
	}
	return power
}

// splitter emits x = n + f with n whole and |f| ≤ ½, and 2^n. Adding a number so large that its
// last bit counts ones rounds x, and leaves n in the low bits of the sum; the exponent's bias is
// part of that number. Where x is too low for a normal 2^n, n is such that the bits of 2^n are
// those of 0. Make it outside of loops.
type splitter struct {
	*kernel
	lowest, shifter vec
}

func (k *kernel) splitter() splitter { return k.splitterBy(k.either(127, 1023)) }

// splitterBy takes another bias, which gives another power of 2.
func (k *kernel) splitterBy(bias float64) splitter {
	mantissa := k.either(23, 52)
	return splitter{k, k.constant(-bias), k.constant(1.5*math.Exp2(mantissa) + bias)}
}

// of gives f and 2^n. A NaN is in f.
func (s splitter) of(x vec) (f, power vec) {
	x = s.max(x, s.lowest)
	shifted := s.add(x, s.shifter)
	f = s.sub(x, s.sub(shifted, s.shifter))
	return f, s.shiftLanes(s.shape(), shifted, int(s.either(23, 52)))
}

// exp2 emits 2^x for x ≤ 0 and NaN.
func (s splitter) exp2(x vec) vec {
	f, power := s.of(x)
	return s.mul(s.polynomial(s.coefficients(centred32, centred64), f), power)
}

// hyperbolic emits tanh without cancellation: with e = 2^(−2·log2(e)·|y|) − 1, computed as such, it
// is −e/(2 + e).
type hyperbolic struct {
	splitter
	sign, rate, one, two vec
}

func (k *kernel) hyperbolic() hyperbolic {
	return hyperbolic{k.splitter(), k.signBit(), k.constant(-2 * math.Log2E), k.constant(1), k.constant(2)}
}

func (k *kernel) signBit() vec { return k.constantBits(1 << (8*k.size() - 1)) }

// of is tanh(y).
func (h hyperbolic) of(y vec) vec {
	f, power := h.splitter.of(h.mul(h.abs(y), h.rate))
	e := h.mul(h.polynomial(h.coefficients(small32, centred64)[1:], f), f) // 2^f − 1
	e = h.fma(h.sub(power, h.one), e, power)                               // 2^n·(2^f − 1) + (2^n − 1)
	size := h.div(e, h.add(e, h.two))
	return h.xor(h.negate(size), h.and(y, h.sign)) // −e/(2 + e) is never negative
}
