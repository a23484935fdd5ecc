package simd

import "golang.org/x/sys/cpu"

// Levels lists the levels that this machine and its operating system have, the lowest first. A higher one includes what the
// lower ones need.
func Levels() []Level {
	x := cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512VL && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX2 && x.HasFMA:
		return []Level{Generic, AVX2, AVX512}
	case x.HasAVX2 && x.HasFMA:
		return []Level{Generic, AVX2}
	}
	return []Level{Generic}
}
