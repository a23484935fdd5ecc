package simd

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// Columns is how many columns [Maxima] sees a row as.
const Columns = 32

// Maxima writes the greatest of every Columns-th element of a row, out_j = max x_(i·Columns + j),
// and reports whether all elements are finite. Where they are not, out may be anything. n is a
// multiple of Columns and not 0.
func Maxima[T kernels.Float](n int, x *T, out *[Columns]T) (finite bool) {
	if active != Generic {
		return maximaVector(n, x, &out[0]) == 0
	}
	var sum T // stays 0 until a 0·Inf or 0·NaN makes it NaN
	for j, v := range row(x, 0, 0, n) {
		if sum += v * 0; j < Columns || v > out[j%Columns] {
			out[j%Columns] = v
		}
	}
	return sum == 0
}

// Kth is the k-th greatest of numbers, none of which is NaN. k is from 1 to Columns.
func Kth[T kernels.Float](x *[Columns]T, k int) T {
	if active != Generic {
		return kthVector(&x[0], T(k))
	}
	least := T(math.Inf(1))
	for _, v := range x {
		above := 0
		for _, other := range x {
			if other > v {
				above++
			}
		}
		if above < k && v < least {
			least = v
		}
	}
	return least
}

// NotBelow lists the indices of the elements of a row that are at least a number, in ascending
// order, until the list is full, and gives how many these are. The list is not empty.
func NotBelow[T kernels.Float](n int, x *T, least T, list []int64) int {
	if n <= 0 {
		return 0
	}
	if active != Generic {
		return notBelowVector(n, x, least, &list[0], len(list))
	}
	count := 0
	for j, v := range row(x, 0, 0, n) {
		if v >= least {
			list[count] = int64(j)
			if count++; count == len(list) {
				break
			}
		}
	}
	return count
}
