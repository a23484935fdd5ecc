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
	// Wide makes the product of 16-bit inputs float32, as it is summed, such as logits: nothing is
	// rounded.
	Wide bool
}

// MatMul is the product of matrices, or of each pair of a batch of them: a is (batch..., m, k), b
// is (batch..., k, n), and the result is (batch..., m, n). The batch axes of a and b broadcast to
// each other: counted from the last, they are equal, or one of them is 1 or missing. With a
// transpose, the last two axes of a or b are the other way round.
//
// A vector a, (k), is one row, and a vector b, (k), one column, whose axis the result does not
// have: (batch..., n), (batch..., m), or a scalar for two vectors. Beside an a of float32, b may be
// a constant of 16 bits, and beside any but float64 one that [Packed] made.
func MatMul(a, b *gorgonia.Node, o MatMulOptions) (*gorgonia.Node, error) {
	k := matMul{o}
	return apply("MatMul", kernel{describe: k.describe, forward: k.forward, backward: k.backward, second: byNodes(k.second)},
		input{name: "a", node: a, form: stridedForm},
		input{name: "b", node: b, form: weightForm(a, b, packedForm)})
}

type matMul struct{ MatMulOptions }

func (k matMul) describe(in tensors) (description, error) {
	for i, transposes := range []bool{k.TransposeA, k.TransposeB} {
		if name := []string{"a", "b"}[i]; transposes && len(in[i].Shape) == 1 {
			return description{}, fmt.Errorf("%s has shape %v, a vector cannot be transposed: it needs at least two axes", name, in[i].Shape)
		}
	}
	if in[1].DType != in[0].DType && !isKept(in[1], in[0].DType) {
		return description{}, fmt.Errorf("b is %v, a is %v: they need one dtype", in[1].DType, in[0].DType)
	}
	if in[1].DType.IsPacked() && k.TransposeA {
		return description{}, fmt.Errorf("b is %v, the transpose of an a cannot be multiplied by it", in[1].DType)
	}
	a, b := k.matrices(in)
	rows, depth := a.Shape[len(a.Shape)-2], a.Shape[len(a.Shape)-1]
	has, columns := b.Shape[len(b.Shape)-2], b.Shape[len(b.Shape)-1]
	if has != depth {
		return description{}, fmt.Errorf("a has shape %v%s and b has shape %v%s, which multiplies %d×%d by %d×%d matrices: the inner sizes need to be equal",
			in[0].Shape, transposed(k.TransposeA), in[1].Shape, transposed(k.TransposeB), rows, depth, has, columns)
	}
	batch, err := commonBatch(a, b)
	if err != nil {
		return description{}, err
	}
	shape := batch
	if len(in[0].Shape) > 1 {
		shape = append(shape, rows)
	}
	if len(in[1].Shape) > 1 {
		shape = append(shape, columns)
	}
	m, dtype := k.product(in), in[0].DType
	if k.Wide {
		dtype = dtype.Wide()
	}
	is := described(dtype, shape...)
	if k.isLayer(in) {
		is.joins = joins{product: true, takes: []int{0}}
	}
	return is, m.Validate()
}

// isLayer reports whether all rows of a are multiplied by one matrix.
func (k matMul) isLayer(in tensors) bool {
	return !k.TransposeA && len(in[0].Shape) > 1 && len(in[1].Shape) == 2
}

func transposed(is bool) string {
	if is {
		return ", transposed,"
	}
	return ""
}

// matrices are the inputs, or their gradients, with the transposes done: a vector is a matrix of
// one row or column.
func (k matMul) matrices(in tensors) (a, b kernels.Tensor) {
	if a = in[0]; len(a.Shape) == 1 {
		a.Shape, a.Strides = []int{1, a.Shape[0]}, []int{a.Shape[0] * a.Strides[0], a.Strides[0]}
	} else if k.TransposeA {
		a = transpose(a)
	}
	if b = in[1]; len(b.Shape) == 1 {
		b.Shape, b.Strides = []int{b.Shape[0], 1}, []int{b.Strides[0], 1}
	} else if k.TransposeB {
		b = transpose(b)
	}
	return a, b
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

// batchOf is the axes of a tensor before those of its matrices.
func batchOf(t kernels.Tensor) []int { return t.Shape[:len(t.Shape)-2] }

// commonBatch is the batch that those of a and b broadcast to.
func commonBatch(a, b kernels.Tensor) ([]int, error) {
	own, other := batchOf(a), batchOf(b)
	batch := make([]int, max(len(own), len(other)))
	at := func(axes []int, fromLast int) int {
		if fromLast > len(axes) {
			return 1
		}
		return axes[len(axes)-fromLast]
	}
	for i := range batch {
		x, y := at(own, len(batch)-i), at(other, len(batch)-i)
		if x != y && x != 1 && y != 1 {
			return nil, fmt.Errorf("a has batch axes %v and b has %v: from the last on, each pair needs to be equal, or one of them 1", own, other)
		}
		if batch[i] = x; x == 1 {
			batch[i] = y
		}
	}
	return batch, nil
}

// product is what the kernel multiplies: both inputs with the common batch, or b as one matrix for
// all of it.
func (k matMul) product(in tensors) kernels.MatMul {
	a, b := k.matrices(in)
	batch, _ := commonBatch(a, b)
	m := kernels.MatMul{A: overBatch(a, batch), B: b}
	if len(b.Shape) > 2 {
		m.B = overBatch(b, batch)
	}
	return m
}

// overBatch is a view with a matrix for each item of a batch, the same one along axes that it
// broadcasts.
func overBatch(t kernels.Tensor, batch []int) kernels.Tensor {
	t = alignedBatch(t, len(batch))
	for axis, d := range batch {
		if t.Shape[axis] != d {
			t.Shape[axis], t.Strides[axis] = d, 0
		}
	}
	return t
}

// alignedBatch is a view with leading axes of 1, for a batch of as many axes.
func alignedBatch(t kernels.Tensor, axes int) kernels.Tensor {
	missing := axes - len(batchOf(t))
	t.Shape = slices.Concat(slices.Repeat([]int{1}, missing), t.Shape)
	t.Strides = slices.Concat(make([]int, missing), t.Strides)
	return t
}

func (k matMul) forward(r *run, in, out tensors) error {
	if k.isLayer(in) {
		done, err := false, error(nil)
		if _, b := k.matrices(in); in[0].IsRowMajor() {
			done, err = r.multiplyRows(kernels.RowsProduct{X: asMatrix(in[0]), Weights: tensors{b}}, out[0])
		} else {
			err = r.catchUp(0)
		}
		if done || err != nil {
			return err
		}
	}
	m := k.product(in)
	return r.matMulBesideLayers(&m, kernels.MatMulOutputs{C: out[0].Reshape(m.OutputShape()...)})
}

// backward computes, for C = A·B,
//
//	dA = dC·Bᵀ      dB = Aᵀ·dC
//
// each summed over the axes of the batch that it is broadcast along, and where an input was
// transposed, the transpose of that, which swaps the factors. The gradient of a wide product is
// rounded to the type of what it is multiplied by.
func (k matMul) backward(r *run, in, dOut, d tensors) error {
	m, dC := k.product(in), dOut[0]
	if dC.DType != in[0].DType {
		rounded, err := r.scratch(in[0].DType, dC.Shape...)
		if err == nil {
			err = r.Copy(rounded, dC)
		}
		if err != nil {
			return err
		}
		dC = rounded
	}
	dC = dC.Reshape(m.OutputShape()...)
	if d[0].IsSet() {
		p := kernels.MatMul{A: dC, B: transpose(m.B)}
		if k.TransposeA {
			p = kernels.MatMul{A: overBatch(m.B, batchOf(dC)), B: transpose(dC)}
		}
		if err := k.sum(r, p, d[0]); err != nil {
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
	if len(in[1].Shape) == 1 { // dBᵀ, whose elements lie side by side
		p = kernels.MatMul{A: transpose(dC), B: m.A}
	}
	return k.sum(r, p, d[1])
}

// sum adds the products of a batch up to a gradient, over the axes along which that has one
// element. The gradient of a vector is a row.
func (k matMul) sum(r *run, p kernels.MatMul, d kernels.Tensor) (err error) {
	if len(d.Shape) == 1 {
		d = d.Reshape(1, d.Shape[0])
	}
	if p.A.Elements() == 0 { // of an empty batch
		return r.Fill(d, 0)
	}
	d = alignedBatch(d, len(batchOf(p.A)))
	if d.DType == d.DType.Wide() || slices.Equal(batchOf(d), batchOf(p.A)) {
		return addUp(r, p, d)
	}
	wide, err := r.scratch(d.DType.Wide(), d.Shape...) // d would round every sum
	if err != nil {
		return err
	}
	if err := addUp(r, p, wide); err != nil {
		return err
	}
	return r.Copy(d, wide)
}

func addUp(r *run, p kernels.MatMul, to kernels.Tensor) error {
	for axis, n := range batchOf(p.A) {
		if to.Shape[axis] == n {
			continue
		}
		for i := range n {
			part := kernels.MatMul{A: p.A.Slice(axis, i, i+1), B: p.B, Accumulate: p.Accumulate || i > 0}
			if len(p.B.Shape) > 2 {
				part.B = p.B.Slice(axis, i, i+1)
			}
			if err := addUp(r, part, to); err != nil {
				return err
			}
		}
		return nil
	}
	return r.matMulBesideLayers(&p, kernels.MatMulOutputs{C: to})
}

// rowsGoOn reports whether the rows of all matrices follow each other at one stride.
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
		Shape:   []int{rowCount(t), t.Shape[last]},
		Strides: []int{t.Strides[last-1], t.Strides[last]},
	}
}
