package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Polynomials for 2^f, lowest power first, whose greatest relative error is the least possible with
// the first coefficient fixed at 1, so that 2^0 is exactly 1. Evaluated in their own type the error
// stays below 1.5·2⁻²³ and 1.5·2⁻⁵².
var (
	unit32    = []float64{1, 0.6931513117, 0.2401644504, 0.0557999131, 0.009017030118, 0.001867130136} // f in [0, 1]
	centred32 = []float64{1, 0.6931469776, 0.2402224209, 0.05550733706, 0.00967151258, 0.001326474231} // f in [−½, ½]
	// One power more, for 2^f − 1 near 0, where the error counts relative to f.
	small32 = []float64{1, 0.6931472029, 0.2402264791, 0.05550332475, 0.009618437381, 0.001339887316, 0.0001535336328}
	unit64  = []float64{1, 0.693147180559945929, 0.240226506959063279, 0.0555041086656025851, 0.00961812909954841612,
		0.00133335586296674716, 0.00015403512306937529, 0.0000152531751021960299, 1.32083667662308106e-6,
		1.02532160899657536e-7, 6.5595148568474185e-9, 6.2634908672912663e-10}
	centred64 = []float64{1, 0.693147180559945326, 0.240226506959101313, 0.0555041086648200849, 0.00961812910759412792,
		0.00133335581467743115, 0.000154035304570975638, 0.0000152527334932538375, 1.32154352909368348e-6,
		1.01781995893267417e-7, 7.07378161018301962e-9, 4.43475958267159913e-10}
)

// exponential emits 2^x for x ≤ 0 and NaN. Make it outside of loops.
type exponential struct {
	target
	coefficients []Op
	split        splitter // AVX2 only
}

func (t target) exponential() exponential {
	if t.avx512 {
		return exponential{target: t, coefficients: t.constants(unit32, unit64)}
	}
	return exponential{target: t, coefficients: t.constants(centred32, centred64), split: t.splitter()}
}

// constants are the coefficients for the element type.
func (t target) constants(single, double []float64) []Op {
	values := single
	if t.double {
		values = double
	}
	list := make([]Op, len(values))
	for i, x := range values {
		list[i] = t.constant(x)
	}
	return list
}

// of is 2^x. x is lost.
func (e exponential) of(x reg.VecVirtual) reg.VecVirtual {
	power := e.vector()
	if !e.avx512 {
		f, scale := e.split.of(x)
		e.polynomial(e.coefficients, f, power)
		e.mul(scale, power, power)
		return power
	}
	// VREDUCE gives x − ⌊x⌋, VSCALEF multiplies by 2^⌊x⌋.
	f := e.vector()
	if e.double {
		VREDUCEPD(Imm(1), x, f)
		e.polynomial(e.coefficients, f, power)
		VSCALEFPD(x, power, power)
	} else {
		VREDUCEPS(Imm(1), x, f)
		e.polynomial(e.coefficients, f, power)
		VSCALEFPS(x, power, power)
	}
	return power
}

// polynomial evaluates by Horner's rule. A tree of shorter chains is no faster: the exponentials of
// other vectors fill the waits.
func (t target) polynomial(coefficients []Op, f, to reg.VecVirtual) {
	last := len(coefficients) - 1
	t.copy(coefficients[last], to)
	for i := last - 1; i >= 0; i-- {
		t.mulAdd(coefficients[i], f, to)
	}
}

// splitter emits x = n + f with n whole and |f| ≤ ½, and 2^n. Adding a number so large that its
// last bit counts ones rounds x, and leaves n in the low bits of the sum; the exponent's bias is
// part of that number. Where x is too low for a normal 2^n, n is such that the bits of 2^n are
// those of 0.
type splitter struct {
	target
	lowest, shifter Op
}

func (t target) splitter() splitter {
	bias, mantissa := 127.0, 23
	if t.double {
		bias, mantissa = 1023, 52
	}
	return splitter{t, t.constant(-bias), t.constant(1.5*math.Exp2(float64(mantissa)) + bias)}
}

// of gives f and 2^n. x is lost. A NaN is in f.
func (s splitter) of(x reg.VecVirtual) (f, power reg.VecVirtual) {
	shifted, n := s.vector(), s.vector()
	s.max(x, s.inRegister(s.lowest), x)
	s.add(s.shifter, x, shifted)
	s.sub(s.shifter, shifted, n)
	s.sub(n, x, x)
	if s.double {
		VPSLLQ(Imm(52), shifted, shifted)
	} else {
		VPSLLD(Imm(23), shifted, shifted)
	}
	return x, shifted
}

// hyperbolic emits tanh without cancellation: with e = 2^(−2·log2(e)·|y|) − 1, computed as such, it
// is −e/(2 + e).
type hyperbolic struct {
	target
	split                splitter
	coefficients         []Op
	sign, rate, one, two Op
}

func (t target) hyperbolic() hyperbolic {
	sign := uint64(1) << (8*t.size() - 1)
	return hyperbolic{
		target: t, split: t.splitter(), coefficients: t.constants(small32, centred64)[1:],
		sign: t.constantBits(sign), rate: t.constant(-2 * math.Log2E), one: t.constant(1), two: t.constant(2),
	}
}

// of is tanh(y). y is lost.
func (h hyperbolic) of(y reg.VecVirtual) reg.VecVirtual {
	sign, e := h.vector(), h.vector()
	h.and(h.sign, y, sign)
	h.xor(sign, y, y) // |y|
	h.mul(h.rate, y, y)
	f, power := h.split.of(y)
	h.polynomial(h.coefficients, f, e)
	h.mul(f, e, e) // 2^f − 1
	less := h.vector()
	h.sub(h.one, power, less)
	h.mulAdd(less, power, e) // 2^n·(2^f − 1) + (2^n − 1)
	denominator := h.vector()
	h.add(h.two, e, denominator)
	h.div(denominator, e, e)
	// e is −tanh|y|, never positive: flipping its sign bit where y is positive gives tanh.
	h.xor(h.sign, e, e)
	h.xor(sign, e, e)
	return e
}
