package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"golang.org/x/sys/cpu"
)

// best is the highest level that the machine and its operating system support.
func best() Level {
	x := cpu.X86
	switch {
	case x.HasAVX512F && x.HasAVX512VL && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX2 && x.HasFMA:
		return AVX512
	case x.HasAVX2 && x.HasFMA:
		return AVX2
	}
	return Generic
}

// single reports whether T is float32.
func single[T kernels.Float]() bool { return size[T]() == 4 }

// pointer32 and pointer64 are p as what T is.
func pointer32[T kernels.Float](p *T) *float32 { return (*float32)(unsafe.Pointer(p)) }
func pointer64[T kernels.Float](p *T) *float64 { return (*float64)(unsafe.Pointer(p)) }
