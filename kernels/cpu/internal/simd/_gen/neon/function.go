package neon

import "math"

func quotient(k *kernel) {
	c, a, b := k.line("c"), k.line("a"), k.line("b")
	k.eachVector(func(v access) { v.store(k.div(v.load(a), v.load(b)), c) })
}

func squareRoot(k *kernel) {
	y, x := k.line("y"), k.line("x")
	k.eachVector(func(v access) { v.store(k.sqrt(v.load(x)), y) })
}

func absGrad(k *kernel) {
	dx, x, dy := k.line("dx"), k.line("x"), k.line("dy")
	sign, zero := k.constantBits(1<<(8*k.size()-1)), k.zeros()
	k.eachVector(func(v access) {
		x := v.load(x)
		some := k.greater(k.abs(x), zero)
		v.store(k.and(some, k.xor(k.and(x, sign), v.load(dy))), dx)
	})
}

func logarithm(k *kernel) {
	y, x := k.line("y"), k.line("x")
	k.eachVector(func(v access) { v.store(k.natural(v.load(x)), y) })
}

const (
	ln2Of15 = 0x58b9p-15
	ln2Of40 = 0xb17217f7d1p-40
)

// natural emits ln x of any x. With x = m·2^k and m from √½ to √2, f = m − 1 and s = f/(2 + f),
// ln m is f − f²/2 + s·(f²/2 + R), where R = 2·(s²/3 + s⁴/5 + …) has as many terms as count. ln 2
// is the sum of a number with so few bits that k times it is exact, and a rest.
func (k *kernel) natural(x vec) vec {
	terms, mantissa, bias, ln2, rest := 5, 23, 127.0, ln2Of15, math.Ln2-ln2Of15
	bitsOf := func(x float64) uint64 { return uint64(math.Float32bits(float32(x))) }
	if k.double {
		terms, mantissa, bias, ln2, rest = 11, 52, 1023, ln2Of40, math.Ln2-ln2Of40
		bitsOf = math.Float64bits
	}
	shape, number := k.shape(), k.constant

	tiny := k.greater(number(math.Exp2(1-bias)), x) // scaled, and the exponent is less
	bits := k.mul(x, k.pick(k.copy(tiny), number(math.Exp2(float64(mantissa)+1)), number(1)))
	bits = k.addWhole(shape, bits, k.constantBits(bitsOf(1)-bitsOf(math.Sqrt2/2)))
	exponent := k.or(k.shiftRightLanes(shape, bits, mantissa), number(math.Exp2(float64(mantissa))))
	exponent = k.sub(exponent, number(math.Exp2(float64(mantissa))+bias))
	exponent = k.add(exponent, k.and(tiny, number(-float64(mantissa)-1)))
	m := k.addWhole(shape, k.and(bits, k.constantBits(1<<mantissa-1)), k.constantBits(bitsOf(math.Sqrt2/2)))

	f := k.sub(m, number(1))
	s := k.div(f, k.add(f, number(2)))
	square, half := k.mul(s, s), k.mul(f, k.mul(f, number(0.5)))
	series := make([]float64, terms)
	for i := range series {
		series[i] = 2 / float64(2*i+3)
	}
	r := k.fma(k.copy(half), square, k.polynomial(series, square)) // f²/2 + R
	r = k.fma(k.mul(s, r), exponent, number(rest))
	r = k.add(k.sub(r, half), f)
	r = k.fma(r, exponent, number(ln2))

	// Infinity and NaN stay what they are. Of 0 it is −Inf, below 0 it is NaN.
	r = k.pick(k.greater(number(math.Inf(1)), x), r, x)
	below := k.pick(k.same(x, k.zeros()), number(math.Inf(-1)), number(math.NaN()))
	return k.pick(k.greater(x, k.zeros()), r, below)
}
