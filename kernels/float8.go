package kernels

import "math"

// Float8 is an 8-bit float with three bits of mantissa (e4m3): 4 bits of precision, magnitudes from
// 2⁻⁹ to 448, a NaN and no infinities.
type Float8 uint8

const nanFloat8 = 0x7F

// ToFloat8 rounds to nearest, ties to even; what is too large becomes 448. What is not finite
// becomes NaN.
func ToFloat8(x float32) Float8 {
	const (
		exponentShift = 127 - 7
		dropped       = 23 - 3 // bits of the mantissa
		largest       = 0x7E
	)
	bits := math.Float32bits(x)
	sign, bits := Float8(bits>>24&0x80), bits&0x7FFFFFFF
	switch {
	case bits >= 0x7F800000:
		return sign | nanFloat8
	case bits < (exponentShift+1)<<23:
		// Subnormal: the sum's rounding drops what lies below 2⁻⁹, the smallest number.
		const unit = 1 << (23 - 9)
		return sign | Float8(math.Float32bits(math.Float32frombits(bits)+unit)-math.Float32bits(unit))
	}
	bits -= exponentShift << 23
	return sign | Float8(min((bits+1<<(dropped-1)-1+bits>>dropped&1)>>dropped, largest))
}

// Float32 is the number, which every float32 can hold.
func (x Float8) Float32() float32 {
	sign, bits := uint32(x&0x80)<<24, uint32(x&0x7F)
	switch {
	case bits == nanFloat8:
		return float32(math.NaN())
	case bits < 8:
		const smallest = 1.0 / (1 << 9)
		return math.Float32frombits(sign | math.Float32bits(float32(bits)*smallest))
	}
	return math.Float32frombits(sign | bits<<20 + (127-7)<<23)
}

// Float8Scale is the power of two by which [PrecisionFloat8] multiplies a row of A or a column of B
// before it rounds, and its inverse. It brings the largest finite magnitude to 2⁷ or more, and less
// than 2⁸.
func Float8Scale(most float32) (up, down float32) {
	const (
		top   = 7
		bias  = 127
		least = top + 1 // so that both are normal numbers
	)
	exponent := max(math.Float32bits(most)>>23, least)
	return math.Float32frombits((2*bias + top - exponent) << 23), math.Float32frombits((exponent - top) << 23)
}
