package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestMatMul(t *testing.T) {
	var cases []opCase
	for _, c := range []struct {
		batch   []int
		m, k, n int
		shared  bool
	}{
		{nil, 1, 1, 1, false}, {nil, 3, 5, 7, false}, {nil, 1, 9, 2, false}, {nil, 33, 17, 13, false},
		{[]int{1}, 2, 3, 4, false}, {[]int{2, 3}, 5, 1, 4, false}, {[]int{3}, 4, 5, 6, true}, {[]int{2, 3}, 2, 5, 3, true},
	} {
		for flags := range 4 {
			o := ops.MatMulOptions{TransposeA: flags&1 != 0, TransposeB: flags&2 != 0}
			matrix := func(batch []int, rows, columns int, transposed bool) []int {
				if transposed {
					rows, columns = columns, rows
				}
				return append(append([]int{}, batch...), rows, columns)
			}
			batchB := c.batch
			if c.shared {
				batchB = nil
			}
			cases = append(cases, opCase{
				options: fmt.Sprintf("MatMul with %+v", o),
				in:      []opInput{floats("a", matrix(c.batch, c.m, c.k, o.TransposeA)...), floats("b", matrix(batchB, c.k, c.n, o.TransposeB)...)},
				apply:   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(in[0], in[1], o) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return matMulByDefinition(o, in[0], in[1], c.m, c.k, c.n, dOut)
				},
			})
		}
	}
	testOp(t, cases)
}

// matMulByDefinition computes C = A·B by the reference, and the gradients element by element.
func matMulByDefinition(o ops.MatMulOptions, a, b kernels.Tensor, m, k, n int, dOut []float64) ([]float64, [][]float64) {
	swapped := func(t kernels.Tensor, is bool) kernels.Tensor {
		if !is {
			return t
		}
		order := []int{0, 1, 2, 3}[:len(t.Shape)]
		last := len(order) - 1
		order[last-1], order[last] = last, last-1
		return t.Permute(order...)
	}
	out, _ := reference.MatMul[float64](&kernels.MatMul{A: swapped(a, o.TransposeA), B: swapped(b, o.TransposeB)}, nil)
	da, db := make([]float64, a.Elements()), make([]float64, b.Elements())
	x, y := float64sOf(a), float64sOf(b)
	for item := range len(out) / (m * n) {
		itemB := item
		if len(b.Shape) == 2 {
			itemB = 0
		}
		for i := range m {
			for j := range n {
				g := dOut[(item*m+i)*n+j]
				for p := range k {
					atA, atB := (item*m+i)*k+p, (itemB*k+p)*n+j
					if o.TransposeA {
						atA = (item*k+p)*m + i
					}
					if o.TransposeB {
						atB = (itemB*n+j)*k + p
					}
					da[atA] += g * y[atB]
					db[atB] += g * x[atA]
				}
			}
		}
	}
	return out, [][]float64{da, db}
}
