// Package blas offers Stheno's matrix product as an implementation of gonum's BLAS interfaces, so
// that programs built on gonum, and Gorgonia's own products, run on it:
//
//	implementation, err := blas.New()
//	if err != nil {
//		return err
//	}
//	gorgonia.Use(implementation)
//
// Only Sgemm and Dgemm are Stheno's, threaded over GOMAXPROCS; everything else is gonum's. Two
// things differ from gonum's Sgemm and Dgemm. A zero in A does not hide a NaN or an infinity in B:
// 0·NaN is NaN. And sums are added in another order, which depends on the sizes alone, so results
// differ in their last bits.
package blas
