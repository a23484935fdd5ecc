package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Each function here runs the assembly for the active level and the element type. The calls are direct, chosen by a
// switch: through a variable, the compiler would have to move every buffer to the heap.

// pointer32 and pointer64 are p as what T is.
func pointer32[T kernels.Float](p *T) *float32 { return (*float32)(unsafe.Pointer(p)) }
func pointer64[T kernels.Float](p *T) *float64 { return (*float64)(unsafe.Pointer(p)) }

// single tells that T is float32.
func single[T kernels.Float]() bool { return size[T]() == 4 }

func transposeVector[T kernels.Float](blockRows, blockCols int, src *T, lds int, dst *T, ldd int) {
	if single[T]() {
		transposeAVX2F32(blockRows, blockCols, pointer32(src), lds, pointer32(dst), ldd)
	} else {
		transposeAVX2F64(blockRows, blockCols, pointer64(src), lds, pointer64(dst), ldd)
	}
}

func philoxVector(n int, words *[wordsChunk]uint32, key *[2]uint32, counter *[4]uint32) {
	if active == AVX512 {
		philoxAVX512(n, &words[0], &key[0], &counter[0])
	} else {
		philoxAVX2(n, &words[0], &key[0], &counter[0])
	}
}

func gemmVector[T kernels.Float](m, nv, k int, a *T, rs, cs int, b *T, ldb, bp int, c *T, ldc int, accumulate bool) {
	switch {
	case active == AVX512 && single[T]():
		gemmAVX512F32(m, nv, k, pointer32(a), rs, cs, pointer32(b), ldb, bp, pointer32(c), ldc, accumulate)
	case active == AVX512:
		gemmAVX512F64(m, nv, k, pointer64(a), rs, cs, pointer64(b), ldb, bp, pointer64(c), ldc, accumulate)
	case single[T]():
		gemmAVX2F32(m, nv, k, pointer32(a), rs, cs, pointer32(b), ldb, bp, pointer32(c), ldc, accumulate)
	default:
		gemmAVX2F64(m, nv, k, pointer64(a), rs, cs, pointer64(b), ldb, bp, pointer64(c), ldc, accumulate)
	}
}

func softmaxVector[T kernels.Float](rows, n int, s *T, lds int, m, l, o *T, ldo, d int, scale T, lo, hi int) {
	switch {
	case active == AVX512 && single[T]():
		softmaxAVX512F32(rows, n, pointer32(s), lds, pointer32(m), pointer32(l), pointer32(o), ldo, d, float32(scale), lo, hi)
	case active == AVX512:
		softmaxAVX512F64(rows, n, pointer64(s), lds, pointer64(m), pointer64(l), pointer64(o), ldo, d, float64(scale), lo, hi)
	case single[T]():
		softmaxAVX2F32(rows, n, pointer32(s), lds, pointer32(m), pointer32(l), pointer32(o), ldo, d, float32(scale), lo, hi)
	default:
		softmaxAVX2F64(rows, n, pointer64(s), lds, pointer64(m), pointer64(l), pointer64(o), ldo, d, float64(scale), lo, hi)
	}
}

func softmaxGradVector[T kernels.Float](rows, n int, s, dp *T, ld int, lse2, delta *T, scale T, lo, hi int) {
	switch {
	case active == AVX512 && single[T]():
		softmaxGradAVX512F32(rows, n, pointer32(s), pointer32(dp), ld, pointer32(lse2), pointer32(delta), float32(scale), lo, hi)
	case active == AVX512:
		softmaxGradAVX512F64(rows, n, pointer64(s), pointer64(dp), ld, pointer64(lse2), pointer64(delta), float64(scale), lo, hi)
	case single[T]():
		softmaxGradAVX2F32(rows, n, pointer32(s), pointer32(dp), ld, pointer32(lse2), pointer32(delta), float32(scale), lo, hi)
	default:
		softmaxGradAVX2F64(rows, n, pointer64(s), pointer64(dp), ld, pointer64(lse2), pointer64(delta), float64(scale), lo, hi)
	}
}

func softCapVector[T kernels.Float](rows, n int, s, slope *T, ld int, scale, cap T) {
	switch {
	case active == AVX512 && single[T]():
		softCapAVX512F32(rows, n, pointer32(s), pointer32(slope), ld, float32(scale), float32(cap))
	case active == AVX512:
		softCapAVX512F64(rows, n, pointer64(s), pointer64(slope), ld, float64(scale), float64(cap))
	case single[T]():
		softCapAVX2F32(rows, n, pointer32(s), pointer32(slope), ld, float32(scale), float32(cap))
	default:
		softCapAVX2F64(rows, n, pointer64(s), pointer64(slope), ld, float64(scale), float64(cap))
	}
}

func alibiVector[T kernels.Float](rows, n int, s *T, ld int, scale, slope T, c int) {
	switch {
	case active == AVX512 && single[T]():
		alibiAVX512F32(rows, n, pointer32(s), ld, float32(scale), float32(slope), c)
	case active == AVX512:
		alibiAVX512F64(rows, n, pointer64(s), ld, float64(scale), float64(slope), c)
	case single[T]():
		alibiAVX2F32(rows, n, pointer32(s), ld, float32(scale), float32(slope), c)
	default:
		alibiAVX2F64(rows, n, pointer64(s), ld, float64(scale), float64(slope), c)
	}
}

func addBiasVector[T kernels.Float](rows, n int, s *T, ld int, scale T, bias *T, ldb int) {
	switch {
	case active == AVX512 && single[T]():
		addBiasAVX512F32(rows, n, pointer32(s), ld, float32(scale), pointer32(bias), ldb)
	case active == AVX512:
		addBiasAVX512F64(rows, n, pointer64(s), ld, float64(scale), pointer64(bias), ldb)
	case single[T]():
		addBiasAVX2F32(rows, n, pointer32(s), ld, float32(scale), pointer32(bias), ldb)
	default:
		addBiasAVX2F64(rows, n, pointer64(s), ld, float64(scale), pointer64(bias), ldb)
	}
}

func mulTileVector[T kernels.Float](rows, n int, dst, src *T, ld int) {
	switch {
	case active == AVX512 && single[T]():
		mulTileAVX512F32(rows, n, pointer32(dst), pointer32(src), ld)
	case active == AVX512:
		mulTileAVX512F64(rows, n, pointer64(dst), pointer64(src), ld)
	case single[T]():
		mulTileAVX2F32(rows, n, pointer32(dst), pointer32(src), ld)
	default:
		mulTileAVX2F64(rows, n, pointer64(dst), pointer64(src), ld)
	}
}

func addTileVector[T kernels.Float](rows, n int, dst *T, ldd int, src *T, lds int) {
	switch {
	case active == AVX512 && single[T]():
		addTileAVX512F32(rows, n, pointer32(dst), ldd, pointer32(src), lds)
	case active == AVX512:
		addTileAVX512F64(rows, n, pointer64(dst), ldd, pointer64(src), lds)
	case single[T]():
		addTileAVX2F32(rows, n, pointer32(dst), ldd, pointer32(src), lds)
	default:
		addTileAVX2F64(rows, n, pointer64(dst), ldd, pointer64(src), lds)
	}
}

func scaleRowsVector[T kernels.Float](rows, n int, dst *T, ldd int, src *T, lds int, f *T) {
	switch {
	case active == AVX512 && single[T]():
		scaleRowsAVX512F32(rows, n, pointer32(dst), ldd, pointer32(src), lds, pointer32(f))
	case active == AVX512:
		scaleRowsAVX512F64(rows, n, pointer64(dst), ldd, pointer64(src), lds, pointer64(f))
	case single[T]():
		scaleRowsAVX2F32(rows, n, pointer32(dst), ldd, pointer32(src), lds, pointer32(f))
	default:
		scaleRowsAVX2F64(rows, n, pointer64(dst), ldd, pointer64(src), lds, pointer64(f))
	}
}

func dotsVector[T kernels.Float](rows, n int, a *T, lda int, b *T, ldb int, out *T) {
	switch {
	case active == AVX512 && single[T]():
		dotsAVX512F32(rows, n, pointer32(a), lda, pointer32(b), ldb, pointer32(out))
	case active == AVX512:
		dotsAVX512F64(rows, n, pointer64(a), lda, pointer64(b), ldb, pointer64(out))
	case single[T]():
		dotsAVX2F32(rows, n, pointer32(a), lda, pointer32(b), ldb, pointer32(out))
	default:
		dotsAVX2F64(rows, n, pointer64(a), lda, pointer64(b), ldb, pointer64(out))
	}
}

func dotsWithOneVector[T kernels.Float](rows, n int, a *T, lda int, b, out *T) {
	switch {
	case active == AVX512 && single[T]():
		dotsWithOneAVX512F32(rows, n, pointer32(a), lda, pointer32(b), pointer32(out))
	case active == AVX512:
		dotsWithOneAVX512F64(rows, n, pointer64(a), lda, pointer64(b), pointer64(out))
	case single[T]():
		dotsWithOneAVX2F32(rows, n, pointer32(a), lda, pointer32(b), pointer32(out))
	default:
		dotsWithOneAVX2F64(rows, n, pointer64(a), lda, pointer64(b), pointer64(out))
	}
}

func finiteVector[T kernels.Float](rows, n int, a *T, lda int) bool {
	switch {
	case active == AVX512 && single[T]():
		return finiteAVX512F32(rows, n, pointer32(a), lda)
	case active == AVX512:
		return finiteAVX512F64(rows, n, pointer64(a), lda)
	case single[T]():
		return finiteAVX2F32(rows, n, pointer32(a), lda)
	default:
		return finiteAVX2F64(rows, n, pointer64(a), lda)
	}
}

func keepVector[T kernels.Float](n int, s *T, words *uint32, threshold uint32, scale T) {
	switch {
	case active == AVX512 && single[T]():
		keepAVX512F32(n, pointer32(s), words, threshold, float32(scale))
	case active == AVX512:
		keepAVX512F64(n, pointer64(s), words, threshold, float64(scale))
	case single[T]():
		keepAVX2F32(n, pointer32(s), words, threshold, float32(scale))
	default:
		keepAVX2F64(n, pointer64(s), words, threshold, float64(scale))
	}
}

func peakVector[T kernels.Float](n int) {
	switch {
	case active == AVX512 && single[T]():
		peakAVX512F32(n)
	case active == AVX512:
		peakAVX512F64(n)
	case single[T]():
		peakAVX2F32(n)
	default:
		peakAVX2F64(n)
	}
}
