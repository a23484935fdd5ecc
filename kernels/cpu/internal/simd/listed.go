package simd

import "github.com/stheno-ml/stheno/kernels"

// The rows of a list are read where they lie. d is a multiple of the lanes, and numbers of a list
// are not checked.

// ListedDots multiplies listed rows by others: out_hi = Σ_j a_lj·b_hj, l being number i of the
// list.
func ListedDots[T kernels.Float](heads, d int, a *T, lda int, list []int64, b *T, ldb int, out *T, ldo int) {
	n := len(list)
	if n == 0 {
		return
	}
	if d == 0 {
		for h := range heads {
			clear(row(out, h, ldo, n))
		}
		return
	}
	h := 0
	if active != Generic {
		for ; h+4 <= heads; h += 4 {
			listedDots4Vector(n, d, a, lda, &list[0], at(b, h*ldb), ldb, at(out, h*ldo), ldo)
		}
	}
	for ; h < heads; h++ {
		if active != Generic {
			listedDots1Vector(n, d, a, lda, &list[0], at(b, h*ldb), at(out, h*ldo))
			continue
		}
		to, right := row(out, h, ldo, n), row(b, h, ldb, d)
		for i, l := range list {
			var sum T
			for j, x := range row(a, int(l), lda, d) {
				sum += x * right[j]
			}
			to[i] = sum
		}
	}
}

// ListedCombine adds up listed rows, each times a factor: c_hj += Σ_i x_hi·a_lj, l being number i
// of the list.
func ListedCombine[T kernels.Float](heads, d int, a *T, lda int, list []int64, x *T, ldx int, c *T, ldc int) {
	n := len(list)
	if n == 0 || d == 0 {
		return
	}
	h := 0
	if active != Generic {
		for ; h+4 <= heads; h += 4 {
			listedCombine4Vector(n, d, a, lda, &list[0], at(x, h*ldx), ldx, at(c, h*ldc), ldc)
		}
	}
	for ; h < heads; h++ {
		if active != Generic {
			listedCombine1Vector(n, d, a, lda, &list[0], at(x, h*ldx), at(c, h*ldc))
			continue
		}
		to, factors := row(c, h, ldc, d), row(x, h, ldx, n)
		for i, l := range list {
			for j, y := range row(a, int(l), lda, d) {
				to[j] += factors[i] * y
			}
		}
	}
}

// ListedAdd adds to each listed row, one after the other: a_lj += Σ_h x_hi·b_hj, l being number i
// of the list.
func ListedAdd[T kernels.Float](heads, d int, a *T, lda int, list []int64, x *T, ldx int, b *T, ldb int) {
	switch {
	case len(list) == 0 || d == 0 || heads <= 0:
	case active != Generic:
		listedAddVector(heads, len(list), d, a, lda, &list[0], x, ldx, b, ldb)
	default:
		for i, l := range list {
			to := row(a, int(l), lda, d)
			for h := range heads {
				factor := *at(x, h*ldx+i)
				for j, y := range row(b, h, ldb, d) {
					to[j] += factor * y
				}
			}
		}
	}
}
