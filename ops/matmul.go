package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// MatMulOptions are the options of [MatMul].
type MatMulOptions struct {
	TransposeA, TransposeB bool // multiply by the transpose of the last two axes; nothing is copied for it
}

// MatMul is the product of matrices, or of each pair of a batch of them: a is (batch..., m, k), b is (batch..., k, n) or
// (k, n) for all of the batch, and the result is (batch..., m, n). With a transpose, the last two axes of a or b are the
// other way round.
func MatMul(a, b *gorgonia.Node, o MatMulOptions) (*gorgonia.Node, error) {
	return apply("MatMul", &matMul{MatMulOptions: o},
		input{name: "a", node: a, form: stridedForm},
		input{name: "b", node: b, form: stridedForm})
}

type matMul struct {
	stateless
	MatMulOptions
}

func (k *matMul) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	for i, name := range []string{"a", "b"} {
		if len(in[i].Shape) < 2 {
			return nil, fmt.Errorf("%s has shape %v, it needs at least two axes", name, in[i].Shape)
		}
	}
	m := k.product(in)
	rows, columns, depth := m.Dims()
	if has := m.B.Shape[len(m.B.Shape)-2]; has != depth {
		return nil, fmt.Errorf("a has shape %v%s and b has shape %v%s, which multiplies %d×%d by %d×%d matrices: the inner sizes need to be equal",
			in[0].Shape, transposed(k.TransposeA), in[1].Shape, transposed(k.TransposeB), rows, depth, has, columns)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return described(in[0].DType, m.OutputShape()...), nil
}

func transposed(is bool) string {
	if is {
		return ", transposed,"
	}
	return ""
}

// product has the transposes done.
func (k *matMul) product(in []kernels.Tensor) kernels.MatMul {
	m := kernels.MatMul{A: in[0], B: in[1]}
	if k.TransposeA {
		m.A = transpose(m.A)
	}
	if k.TransposeB {
		m.B = transpose(m.B)
	}
	return m
}

// transpose is the view with the last two axes swapped.
func transpose(t kernels.Tensor) kernels.Tensor {
	order := make([]int, len(t.Shape))
	for axis := range order {
		order[axis] = axis
	}
	last := len(order) - 1
	order[last-1], order[last] = last, last-1
	return t.Permute(order...)
}

func (k *matMul) forward(r *run, in, out []kernels.Tensor) error {
	m := k.product(in)
	return r.MatMul(&m, kernels.MatMulOutputs{C: out[0]})
}

// backward computes, for C = A·B,
//
//	dA = dC·Bᵀ      dB = Aᵀ·dC, summed over the batch if all of it shares B
//
// and where an input was transposed, the transpose of that, which swaps the factors.
func (k *matMul) backward(r *run, in, dOut, d []kernels.Tensor) error {
	m, dC := k.product(in), dOut[0]
	if d[0].IsSet() {
		p := kernels.MatMul{A: dC, B: transpose(m.B)}
		if k.TransposeA {
			p = kernels.MatMul{A: overBatch(m.B, m.A.Shape), B: transpose(dC)}
		}
		if err := r.MatMul(&p, kernels.MatMulOutputs{C: d[0]}); err != nil {
			return err
		}
	}
	if !d[1].IsSet() {
		return nil
	}
	if len(m.B.Shape) == 2 && !k.TransposeA && rowsGoOn(m.A) {
		m.A, dC = joinRows(m.A), asMatrix(dC)
	}
	p := kernels.MatMul{A: transpose(m.A), B: dC}
	if k.TransposeB {
		p = kernels.MatMul{A: transpose(dC), B: m.A}
	}
	if len(p.A.Shape) == len(d[1].Shape) {
		return r.MatMul(&p, kernels.MatMulOutputs{C: d[1]})
	}
	return sumOverBatch(r, p, d[1])
}

// overBatch is a matrix for each item of a batch: the same one for all, if there is only one.
func overBatch(t kernels.Tensor, batched []int) kernels.Tensor {
	axes := len(batched) - len(t.Shape)
	return kernels.Tensor{
		Data: t.Data, DType: t.DType, Owner: t.Owner,
		Shape:   slices.Concat(batched[:axes], t.Shape),
		Strides: slices.Concat(make([]int, axes), t.Strides),
	}
}

// rowsGoOn tells whether the rows of all matrices follow each other at one stride.
func rowsGoOn(t kernels.Tensor) bool {
	for axis := len(t.Shape) - 3; axis >= 0; axis-- {
		if t.Strides[axis] != t.Shape[axis+1]*t.Strides[axis+1] {
			return false
		}
	}
	return true
}

// joinRows is one matrix of the rows of all.
func joinRows(t kernels.Tensor) kernels.Tensor {
	last := len(t.Shape) - 1
	return kernels.Tensor{
		Data: t.Data, DType: t.DType, Owner: t.Owner,
		Shape:   []int{t.Elements() / t.Shape[last], t.Shape[last]},
		Strides: []int{t.Strides[last-1], t.Strides[last]},
	}
}

// sumOverBatch adds up the products of a batch.
func sumOverBatch(b kernels.Backend, p kernels.MatMul, sum kernels.Tensor) error {
	axes := len(p.A.Shape) - 2
	items := 1
	for _, d := range p.A.Shape[:axes] {
		items *= d
	}
	for item := range items {
		one := kernels.MatMul{A: batchItem(p.A, item), B: batchItem(p.B, item), Accumulate: item > 0}
		if err := b.MatMul(&one, kernels.MatMulOutputs{C: sum}); err != nil {
			return err
		}
	}
	return nil
}

// batchItem is one matrix of a batch.
func batchItem(t kernels.Tensor, item int) kernels.Tensor {
	last := len(t.Shape) - 1
	for axis := last - 2; axis >= 0; axis-- {
		i := item % t.Shape[axis]
		item /= t.Shape[axis]
		t = t.Slice(axis, i, i+1)
	}
	t.Shape, t.Strides = t.Shape[last-1:], t.Strides[last-1:]
	return t
}
