package simd

import "golang.org/x/sys/cpu"

// haveByteProducts reports whether the processor multiplies codes with digits, at the level AVX512.
func haveByteProducts() bool { return cpu.X86.HasAVX512VNNI && cpu.X86.HasBMI2 }

func digitsOfVector(nibbles bool, blocks int, x *float32, least, most int, factors *float32, digits *byte) (held bool) {
	switch {
	case nibbles && active == AVX2:
		return digitsOfNibblesAVX2(blocks, x, least, most, factors, digits) != 0
	case nibbles:
		return digitsOfNibblesVNNI(blocks, x, least, most, factors, digits) != 0
	}
	return digitsOfBytesVNNI(blocks, x, least, most, factors, digits) != 0
}

func digitDotsVector(nibbles bool, rows, blocks int, codes *byte, ldc, scales int, factors *float32, digits *byte, out *float32) {
	switch {
	case nibbles && active == AVX2:
		digitDotsNibblesAVX2(rows, blocks, codes, ldc, scales, factors, digits, out)
	case nibbles:
		digitDotsNibblesVNNI(rows, blocks, codes, ldc, scales, factors, digits, out)
	default:
		digitDotsBytesVNNI(rows, blocks, codes, ldc, scales, factors, digits, out)
	}
}
