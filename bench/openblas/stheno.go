//go:build openblas

// Command openblas is a shared library with Stheno's matrix product, for compare.py to call beside
// OpenBLAS's.
package main

/*
#include <immintrin.h>

// Twelve independent chains of fused multiply-adds: more than latency times units.
__attribute__((target("avx512f"))) static float peak(long rounds) {
	__m512 s[12], x = _mm512_set1_ps(0.5f);
	for (int i = 0; i < 12; i++) s[i] = _mm512_set1_ps(i);
	for (long n = 0; n < rounds; n++) {
		#pragma GCC unroll 12
		for (int i = 0; i < 12; i++) s[i] = _mm512_fmadd_ps(s[i], x, x);
	}
	float sum = 0;
	for (int i = 0; i < 12; i++) sum += _mm512_reduce_add_ps(s[i]);
	return sum;
}
#cgo CFLAGS: -O2
*/
import "C"

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// stheno_sgemm computes the row-major C = A·B, with either operand stored transposed.
//
//export stheno_sgemm
func stheno_sgemm(m, n, k int, transposeA, transposeB bool, a, b, c unsafe.Pointer, threads int) bool {
	p := kernels.MatMul{A: matrix(a, m, k, transposeA), B: matrix(b, k, n, transposeB)}
	backend := &cpu.Backend{Threads: threads}
	return backend.MatMul(&p, kernels.MatMulOutputs{C: matrix(c, m, n, false)}) == nil
}

func matrix(data unsafe.Pointer, rows, columns int, transposed bool) kernels.Tensor {
	if transposed {
		return kernels.Contiguous(data, kernels.F32, columns, rows).Permute(1, 0)
	}
	return kernels.Contiguous(data, kernels.F32, rows, columns)
}

// stheno_peak does 384 floating-point operations a round.
//
//export stheno_peak
func stheno_peak(rounds int) float32 { return float32(C.peak(C.long(rounds))) }

func main() {}
