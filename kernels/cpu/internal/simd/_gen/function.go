package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func quotient(t target) {
	t.function("quotient", "(n int, c, a, b *T)", "is Div.")
	c, a, b := t.line("c"), t.line("a"), t.line("b")
	t.eachVector(func(v access) {
		x := v.load(a)
		t.div(v.load(b), x, x)
		v.store(x, c)
	})
	ret()
}

func squareRoot(t target) {
	t.function("squareRoot", "(n int, y, x *T)", "is Sqrt.")
	y, x := t.line("y"), t.line("x")
	t.eachVector(func(v access) {
		r := v.load(x)
		t.pick(VSQRTPS, VSQRTPD)(r, r)
		v.store(r, y)
	})
	ret()
}

func absGrad(t target) {
	t.function("absGrad", "(n int, dx, x, dy *T)", "is AbsGrad.")
	dx, x, dy := t.line("dx"), t.line("x"), t.line("dy")
	sign, zero := t.constantBits(1<<(8*t.size()-1)), t.zeros()
	t.eachVector(func(v access) {
		x, d, minus := v.load(x), v.load(dy), t.vector()
		t.and(sign, x, minus)
		t.xor(minus, x, x) // |x|
		t.xor(minus, d, d)
		v.store(t.where(isLess, zero, x, d, zero), dx)
	})
	ret()
}

func logarithm(t target) {
	t.function("logarithm", "(n int, y, x *T)", "is Log.")
	y, x := t.line("y"), t.line("x")
	l := t.natural()
	t.eachVector(func(v access) { v.store(l.of(v.load(x)), y) })
	ret()
}

// natural emits ln x of any x. With x = m·2^k and m from √½ to √2, f = m − 1 and s = f/(2 + f),
// ln m is f − f²/2 + s·(f²/2 + R), where R = 2·(s²/3 + s⁴/5 + …) has as many terms as count. ln 2
// is the sum of a number with so few bits that k times it is exact, and a rest.
type natural struct {
	target
	series              []Op
	least, scale, lower Op // below the smallest normal number x is scaled, and k is less
	up, root            Op // integers that are added to bits
	fraction            Op
	shifted, bias       Op // which bits of k are read as a number, and what it is too large by
	one, two, half      Op
	ln2, rest           Op
	infinity, no        Op
	zero                reg.VecVirtual
}

const (
	ln2Of15 = 0x58b9p-15
	ln2Of40 = 0xb17217f7d1p-40
)

func (t target) natural() natural {
	terms, mantissa, bias, ln2, rest := 5, 23, 127.0, ln2Of15, math.Ln2-ln2Of15
	bitsOf := func(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }
	if t.double {
		terms, mantissa, bias, ln2, rest = 11, 52, 1023, ln2Of40, math.Ln2-ln2Of40
		bitsOf = math.Float64bits
	}
	number, integer := t.constantInMemory, t.constantBitsInMemory
	l := natural{
		target: t,
		least:  number(math.Exp2(1 - bias)), scale: number(math.Exp2(float64(mantissa) + 1)), lower: number(-float64(mantissa) - 1),
		up: integer(bitsOf(1) - bitsOf(math.Sqrt2/2)), root: integer(bitsOf(math.Sqrt2 / 2)), fraction: integer(1<<mantissa - 1),
		shifted: number(math.Exp2(float64(mantissa))), bias: number(math.Exp2(float64(mantissa)) + bias),
		one: number(1), two: number(2), half: number(0.5), ln2: number(ln2), rest: number(rest),
		infinity: number(math.Inf(1)), no: number(math.NaN()), zero: t.zeros(),
	}
	for i := range terms {
		l.series = append(l.series, number(2/float64(2*i+3)))
	}
	return l
}

// of is ln x.
func (l natural) of(x reg.VecVirtual) reg.VecVirtual {
	addBits, shiftRight, places := VPADDD, VPSRLD, 23
	if l.double {
		addBits, shiftRight, places = VPADDQ, VPSRLQ, 52
	}
	least, one := l.moved(l.least), l.moved(l.one)
	bits, k, m := l.vector(), l.vector(), l.vector()
	l.mul(x, l.where(isLess, x, least, l.moved(l.scale), one), bits)
	addBits(l.up, bits, bits)
	shiftRight(Imm(uint64(places)), bits, k)
	l.or(l.shifted, k, k)
	l.sub(l.bias, k, k)
	l.add(l.where(isLess, x, least, l.moved(l.lower), l.zero), k, k)
	l.and(l.fraction, bits, m)
	addBits(l.root, m, m)

	f, s, square, half := l.vector(), l.vector(), l.vector(), l.vector()
	l.sub(one, m, f)
	l.add(l.two, f, s)
	l.div(s, f, s)
	l.mul(s, s, square)
	l.mul(l.half, f, half)
	l.mul(f, half, half)
	r := l.vector()
	l.polynomial(l.series, square, r)
	l.mulAdd(half, square, r) // f²/2 + R
	l.mul(s, r, r)
	l.fma(l.moved(l.rest), k, r)
	l.sub(half, r, r)
	l.add(f, r, r)
	l.fma(l.moved(l.ln2), k, r)

	// Infinity and NaN stay what they are. Of 0 it is −Inf, below 0 it is NaN.
	infinity := l.moved(l.infinity)
	r = l.where(isLess, x, infinity, r, x)
	below := l.vector()
	l.sub(infinity, l.zero, below)
	below = l.where(isEqual, x, l.zero, below, l.moved(l.no))
	return l.where(isLess, l.zero, x, r, below)
}
