package reference

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// TopK returns the k largest elements of each row and their indices.
func TopK[T kernels.Float](x kernels.Tensor, k int) (values []T, ids []int) {
	all, length := elements[T](x), lastAxis(x)
	for from := 0; from < len(all); from += length {
		row := all[from:][:length]
		order := make([]int, length)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { // the largest first, NaN before all
			a, b := row[i], row[j]
			switch {
			case a > b || a != a && b == b:
				return -1
			case a < b || a == a && b != b:
				return 1
			}
			return 0
		})
		for _, i := range order[:k] {
			values, ids = append(values, row[i]), append(ids, i)
		}
	}
	return values, ids
}

// Gather returns the elements of each row of x that ids name.
func Gather[T kernels.Float](x, ids kernels.Tensor) []T {
	all, length, k := elements[T](x), lastAxis(x), lastAxis(ids)
	var y []T
	for i, id := range indices(ids) {
		y = append(y, all[i/k*length+id])
	}
	return y
}

// Scatter returns rows of a length with the sums of the elements of x that ids put there.
func Scatter[T kernels.Float](x []T, ids kernels.Tensor, length int) []T {
	k := lastAxis(ids)
	y := make([]T, ids.Elements()/max(1, k)*length)
	for i, id := range indices(ids) {
		y[i/k*length+id] += x[i]
	}
	return y
}
