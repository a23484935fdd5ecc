// Package transpose exchanges the axes of matrices that are too large for a cache.
package transpose

// Side is how many rows and columns are turned at a time.
const Side = 32

// Square is where they are turned: element (i, j) of the source is number j·Side + i.
type Square [Side * Side]float32

// Into writes a rows×columns matrix with its axes exchanged: to[j·stride + i] is its element (i, j). Load fills a square with the
// high×wide elements from (top, left) on. Squares are turned in a place of their own, for rows whose distance is a power of two
// would push one another out of the cache.
func Into(to []float32, stride, rows, columns int, load func(s *Square, top, left, high, wide int)) {
	var s Square
	for left := 0; left < columns; left += Side { // outside, so that each page of to is written once
		wide := min(Side, columns-left)
		for top := 0; top < rows; top += Side {
			high := min(Side, rows-top)
			load(&s, top, left, high, wide)
			for j := range wide {
				copy(to[(left+j)*stride+top:][:high], s[j*Side:])
			}
		}
	}
}

// Matrix writes the transpose of a rows×columns matrix whose rows are fromStride apart.
func Matrix(to []float32, toStride int, from []float32, fromStride, rows, columns int) {
	Into(to, toStride, rows, columns, func(s *Square, top, left, high, wide int) {
		for i := range high {
			for j, x := range from[(top+i)*fromStride+left:][:wide] {
				s[(j*Side+i)&(Side*Side-1)] = x // the mask tells the compiler that it is inside
			}
		}
	})
}
