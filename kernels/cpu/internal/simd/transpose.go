package simd

import "github.com/stheno-ml/stheno/kernels"

// PackTransposed stores a matrix of rows rows, d columns, transposed in panels:
//
//	dst[(j/Panel)·d·Panel + e·Panel + j%Panel] = src[j·stride + e]
//
// so that the rows are the columns of a B for [Gemm] with ldb = Panel and bp = d·Panel. The rows that the last panel
// lacks are zero. dst needs ⌈rows/Panel⌉·d·Panel elements.
func PackTransposed[T kernels.Float](dst []T, src []T, rows, d, stride int) {
	if rows <= 0 || d <= 0 {
		return
	}
	width := Panel[T]()
	for first := 0; first < rows; first += width {
		panel, from := dst[first*d:][:d*width], src[first*stride:]
		count := min(width, rows-first)
		// Whole blocks are the vector kernel's, the rest is done one by one.
		blockRows, blockCols := 0, 0
		if active != Generic {
			side := 32 / size[T]()
			blockRows, blockCols = count/side*side, d/side*side
			if blockRows > 0 && blockCols > 0 {
				_ = from[(blockRows-1)*stride+blockCols-1]
				transposeVector(blockRows/side, blockCols/side, &from[0], stride, &panel[0], width)
			}
		}
		for j := range count {
			e := 0
			if j < blockRows {
				e = blockCols
			}
			for ; e < d; e++ {
				panel[e*width+j] = from[j*stride+e]
			}
		}
		if count < width {
			for e := range d {
				clear(panel[e*width+count : (e+1)*width])
			}
		}
	}
}
