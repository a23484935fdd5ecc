package reference

import "github.com/stheno-ml/stheno/kernels"

// GroupedMatMul computes C, (rows, n) row-major. Where the problem accumulates, initial is what C
// held; otherwise it is not read.
func GroupedMatMul[T kernels.Float](m *kernels.GroupedMatMul, initial []T) []T {
	rows, groups, columns, depth := m.Dims()
	a, b, offsets := elements[T](m.A), elements[T](m.B), indices(m.Offsets)
	bias := vector[T](m.Bias, groups*columns, 0)
	c := make([]T, rows*columns)
	for g := range groups {
		for i := offsets[g]; i < offsets[g+1]; i++ {
			for j := range columns {
				var sum T
				for p := range depth {
					sum += a[i*depth+p] * b[(g*depth+p)*columns+j]
				}
				c[i*columns+j] = sum + bias[g*columns+j]
				if m.Accumulate {
					c[i*columns+j] += initial[i*columns+j]
				}
			}
		}
	}
	return c
}

// GroupedMatMulGradient computes the gradient of B, (groups, k, n) row-major.
func GroupedMatMulGradient[T kernels.Float](m *kernels.GroupedMatMul, dC []T) []T {
	_, groups, columns, depth := m.Dims()
	a, offsets := elements[T](m.A), indices(m.Offsets)
	dB := make([]T, groups*depth*columns)
	for g := range groups {
		for i := offsets[g]; i < offsets[g+1]; i++ {
			for p := range depth {
				add(dB[(g*depth+p)*columns:][:columns], a[i*depth+p], dC[i*columns:][:columns])
			}
		}
	}
	return dB
}

// GroupedSumRows computes the sum of each group's rows of x, (rows, n).
func GroupedSumRows[T kernels.Float](x, offsets kernels.Tensor) []T {
	values, n, from := elements[T](x), lastAxis(x), indices(offsets)
	out := make([]T, (len(from)-1)*n)
	for g := range len(from) - 1 {
		for i := from[g]; i < from[g+1]; i++ {
			add(out[g*n:][:n], 1, values[i*n:][:n])
		}
	}
	return out
}
