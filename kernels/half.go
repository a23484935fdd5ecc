package kernels

import "math"

// BFloat16 is the upper half of a float32: its range, with 8 bits of precision.
type BFloat16 uint16

// Float16 is IEEE 754's 16-bit float: 11 bits of precision, magnitudes from 6e-8 to 65504.
type Float16 uint16

// ToBFloat16 rounds to nearest, ties to even. A NaN stays one.
func ToBFloat16(x float32) BFloat16 {
	bits := math.Float32bits(x)
	if x != x {
		return BFloat16(bits>>16 | 0x40) // quiet, and not an infinity
	}
	return BFloat16((bits + 0x7FFF + bits>>16&1) >> 16)
}

// Float32 is the number, which every float32 can hold.
func (x BFloat16) Float32() float32 { return math.Float32frombits(uint32(x) << 16) }

// ToFloat16 rounds to nearest, ties to even; what is too large becomes infinite. A NaN stays one.
func ToFloat16(x float32) Float16 {
	const (
		infinity      = 0x7C00
		exponentShift = 127 - 15
		dropped       = 23 - 10 // bits of the mantissa
	)
	bits := math.Float32bits(x)
	sign, bits := Float16(bits>>16&0x8000), bits&0x7FFFFFFF
	switch {
	case bits > 0x7F800000:
		return sign | infinity | 0x200
	case bits >= (exponentShift+31)<<23:
		return sign | infinity
	case bits < (exponentShift+1)<<23:
		// Subnormal: adding ½ lets the sum's rounding drop what lies below 2⁻²⁴, the smallest
		// number.
		return sign | Float16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
	}
	bits -= exponentShift << 23
	return sign | Float16((bits+1<<(dropped-1)-1+bits>>dropped&1)>>dropped)
}

// Float32 is the number, which every float32 can hold.
func (x Float16) Float32() float32 {
	sign, bits := uint32(x&0x8000)<<16, uint32(x&0x7FFF)
	switch {
	case bits >= 0x7C00:
		return math.Float32frombits(sign | 0x7F800000 | bits&0x3FF<<13)
	case bits < 0x400:
		const smallest = 1.0 / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(float32(bits)*smallest))
	}
	return math.Float32frombits(sign | bits<<13 + (127-15)<<23)
}
