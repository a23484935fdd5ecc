package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Gemm computes C (+)= A·B for a tile of m rows and nv vectors of columns, summing over k:
//
//	A  element (i, p) is a[i*rs + p*cs]: any strides, so that a transposed A is the same kernel
//	B  panels two vectors wide; row p of panel t starts at b[t*bp + p*ldb]. If nv is odd, the last panel is one vector
//	   wide. A row-major B is packed already: ldb is its stride and bp is Panel
//	C  row i starts at c[i*ldc], its columns are contiguous
//
// With accumulate the product is added to C, without it C is written only; k = 0 then writes zeros.
// The order in which a row is summed depends on m, nv and k alone.
func Gemm[T kernels.Float](m, nv, k int, a *T, rs, cs int, b *T, ldb, bp int, c *T, ldc int, accumulate bool) {
	if m <= 0 || nv <= 0 {
		return
	}
	if active == Generic {
		gemmGeneric(m, nv, k, a, rs, cs, b, ldb, bp, c, ldc, accumulate)
		return
	}
	lanes := Lanes[T]()
	step := max(4, longestGemm/(m*max(k, 1)*lanes)&^3) // whole fours, as the vector kernel takes them
	for v := 0; v < nv; v += step {
		gemmVector(m, min(step, nv-v), k, a, rs, cs, at(b, v/2*bp), ldb, bp, at(c, v*lanes), ldc, accumulate)
	}
}

// GemmRows is the number of rows of A, or any multiple of it, behind which a product can be cut in
// two without changing how a row is summed.
func GemmRows() int {
	switch active {
	case AVX512, NEON, BFMMLA:
		return 8 // blocks of four, six and eight rows sum alike
	case AVX2:
		return 6
	}
	return 1
}

// longestGemm is how many multiplications are done in one go, at least two panels': 15 to 50 µs, as
// nothing can preempt them.
const longestGemm = 1 << 20

// gemmGeneric computes four elements of C at a time: their sums, the products and an element of A
// are what the compiler keeps in registers. With more of either it spills, and is slower.
func gemmGeneric[T kernels.Float](m, nv, k int, a *T, rs, cs int, b *T, ldb, bp int, c *T, ldc int, accumulate bool) {
	for v := range nv {
		left := at(b, v/2*bp+v%2*genericLanes)
		for i := range m {
			sum := dotFour(k, at(a, i*rs), cs, left, ldb)
			out := (*[genericLanes]T)(unsafe.Pointer(at(c, i*ldc+v*genericLanes)))
			if !accumulate {
				*out = sum
				continue
			}
			for j := range out {
				out[j] += sum[j]
			}
		}
	}
}

// dotFour is a row of A times four columns of B.
func dotFour[T kernels.Float](k int, a *T, cs int, b *T, ldb int) [genericLanes]T {
	var s0, s1, s2, s3 T
	i, j := 0, 0 // offsets in bytes, kept by addition: a multiplication a step would cost a quarter of the speed
	for range k {
		x := *(*T)(unsafe.Add(unsafe.Pointer(a), i))
		row := (*[genericLanes]T)(unsafe.Add(unsafe.Pointer(b), j))
		s0 += row[0] * x
		s1 += row[1] * x
		s2 += row[2] * x
		s3 += row[3] * x
		i, j = i+cs*size[T](), j+ldb*size[T]()
	}
	return [genericLanes]T{s0, s1, s2, s3}
}
