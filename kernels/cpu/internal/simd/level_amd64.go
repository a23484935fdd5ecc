package simd

import "golang.org/x/sys/cpu"

// Levels lists the levels that this machine and its operating system have, the lowest first. A
// higher one includes what the lower ones need.
func Levels() []Level {
	x := cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasF16C
	switch {
	case avx2 && x.HasAVX512F && x.HasAVX512VL && x.HasAVX512BW && x.HasAVX512DQ:
		return []Level{Generic, AVX2, AVX512}
	case avx2:
		return []Level{Generic, AVX2}
	}
	return []Level{Generic}
}
