package simd

import "github.com/stheno-ml/stheno/kernels"

// PackTransposed stores a matrix of rows rows, d columns, transposed in panels:
//
//	dst[(j/Panel)·d·Panel + e·Panel + j%Panel] = src[j·stride + e]
//
// so that the rows are the columns of a B for [Gemm] with ldb = Panel and bp = d·Panel. The rows
// that the last panel lacks are zero. dst needs ⌈rows/Panel⌉·d·Panel elements.
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

// Transpose stores a matrix of rows rows, columns columns, with its axes exchanged:
//
//	dst[j·ldd + i] = src[i·lds + j]
//
// Eight columns (four of float64) are written from their beginnings to their ends before the next:
// so few that lines whose distance is a power of two stay in a cache until they are full.
func Transpose[T kernels.Float](rows, columns int, dst *T, ldd int, src *T, lds int) {
	if rows <= 0 || columns <= 0 {
		return
	}
	side, wholeRows, wholeColumns := 32/size[T](), 0, 0
	if active != Generic {
		wholeRows, wholeColumns = rows/side*side, columns/side*side
	}
	for j := 0; j < columns; j += side {
		first := 0
		if j < wholeColumns && wholeRows > 0 {
			transposeVector(wholeRows/side, 1, at(src, j), lds, at(dst, j*ldd), ldd)
			first = wholeRows
		}
		for column := j; column < min(j+side, columns); column++ {
			out := row(dst, column, ldd, rows)
			for i := first; i < rows; i++ {
				out[i] = *at(src, i*lds+column)
			}
		}
	}
}
