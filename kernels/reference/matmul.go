package reference

import "github.com/stheno-ml/stheno/kernels"

// MatMul computes act(A·B + Σ Aᵢ·Bᵢ + bias), and what the activation is applied to: c and pre are
// (batch..., m, n), row-major. Where the problem accumulates, initial is what C held, row-major;
// otherwise it is not read. Of epilogues it knows [kernels.Activate] alone: the others are
// [Activation] and [SwiGLU] of a product.
func MatMul[T kernels.Float](m *kernels.MatMul, initial []T) (c, pre []T) {
	rows, columns, depth := m.Dims()
	a, b := elements[T](m.A), elements[T](m.B)
	bias := vector[T](m.Bias, columns, 0)
	epilogue, _ := m.Epilogue.(kernels.Activate)
	items := 1
	for _, d := range m.A.Shape[:len(m.A.Shape)-2] {
		items *= d
	}
	shared := len(m.B.Shape) == 2
	type factors struct {
		a, b  []T
		depth int
	}
	var plus []factors
	for _, f := range m.Plus {
		plus = append(plus, factors{elements[T](f.A), elements[T](f.B), f.B.Shape[0]})
	}
	c, pre = make([]T, items*rows*columns), make([]T, items*rows*columns)
	for item := range items {
		left, right := a[item*rows*depth:], b
		if !shared {
			right = b[item*depth*columns:]
		}
		for i := range rows {
			for j := range columns {
				at := (item*rows+i)*columns + j
				var sum T
				for p := range depth {
					sum += left[i*depth+p] * right[p*columns+j]
				}
				for _, f := range plus {
					for p := range f.depth {
						sum += f.a[(item*rows+i)*f.depth+p] * f.b[p*columns+j]
					}
				}
				pre[at] = sum + bias[j]
				if m.Accumulate {
					pre[at] += initial[at]
				}
				c[at], _ = activate(epilogue.Activation, pre[at])
			}
		}
	}
	return c, pre
}

// SumRows computes out_j = Σ_i x_ij over all axes of x but the last.
func SumRows[T kernels.Float](x kernels.Tensor) []T {
	values, n := elements[T](x), lastAxis(x)
	out := make([]T, n)
	for i, v := range values {
		out[i%n] += v
	}
	return out
}
