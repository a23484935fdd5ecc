//go:build !amd64

package simd

import "github.com/stheno-ml/stheno/kernels"

// The only level without assembly is Generic, so nothing here is ever reached; the functions exist because the
// exported ones name them.

const unreachable = "simd: no vector kernels on this architecture"

func gemmVector[T kernels.Float](m, nv, k int, a *T, rs, cs int, b *T, ldb, bp int, c *T, ldc int, accumulate bool) {
	panic(unreachable)
}
func transposeVector[T kernels.Float](blockRows, blockCols int, src *T, lds int, dst *T, ldd int) {
	panic(unreachable)
}
func softmaxVector[T kernels.Float](rows, n int, s *T, lds int, m, l, o *T, ldo, d int, scale T, lo, hi int) {
	panic(unreachable)
}
func softmaxGradVector[T kernels.Float](rows, n int, s, dp *T, ld int, lse2, delta *T, scale T, lo, hi int) {
	panic(unreachable)
}
func softCapVector[T kernels.Float](rows, n int, s, slope *T, ld int, scale, cap T) {
	panic(unreachable)
}
func alibiVector[T kernels.Float](rows, n int, s *T, ld int, scale, slope T, c int) {
	panic(unreachable)
}
func addBiasVector[T kernels.Float](rows, n int, s *T, ld int, scale T, bias *T, ldb int) {
	panic(unreachable)
}
func mulTileVector[T kernels.Float](rows, n int, dst, src *T, ld int) { panic(unreachable) }
func addTileVector[T kernels.Float](rows, n int, dst *T, ldd int, src *T, lds int) {
	panic(unreachable)
}
func scaleRowsVector[T kernels.Float](rows, n int, dst *T, ldd int, src *T, lds int, f *T) {
	panic(unreachable)
}
func dotsVector[T kernels.Float](rows, n int, a *T, lda int, b *T, ldb int, out *T) {
	panic(unreachable)
}
func dotsWithOneVector[T kernels.Float](rows, n int, a *T, lda int, b, out *T) { panic(unreachable) }
func finiteVector[T kernels.Float](rows, n int, a *T, lda int) bool            { panic(unreachable) }
func philoxVector(n int, words *[wordsChunk]uint32, key *[2]uint32, counter *[4]uint32) {
	panic(unreachable)
}
func keepVector[T kernels.Float](n int, s *T, words *uint32, threshold uint32, scale T) {
	panic(unreachable)
}
func peakVector[T kernels.Float](n int) { panic(unreachable) }
