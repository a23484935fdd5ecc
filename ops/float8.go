package ops

import "github.com/stheno-ml/stheno/kernels"

// This file is for products in 8 bits that read the same matrix: it is rounded once for all of
// them. In any other precision, factors are what they are made of.

// factor is a matrix that products read, and in 8 bits what they read of it.
type factor struct {
	kernels.Tensor
	rows    kernels.Float8Sides // for products that sum over its columns
	columns kernels.Float8Sides // for products that sum over its rows
}

// roundsAhead reports whether layers round a matrix to 8 bits, and it can be rounded ahead of them.
func (r *run) roundsAhead(t kernels.Tensor) bool {
	return r.c.state.mode.orPrecision(kernels.PrecisionAuto) == kernels.PrecisionFloat8 &&
		t.DType != kernels.F64 && t.Elements() > 0 && (t.Strides[1] == 1 || t.Shape[1] == 1)
}

// forwardFactor is a matrix whose rows a product of a forward run reads. If products of the
// backward run sum over its rows, what they round the columns by is found along the way, and saved.
func (r *run) forwardFactor(i int, t kernels.Tensor, backward bool) (factor, error) {
	f, rounding, err := r.forwardRounding(i, t, backward)
	if err != nil || !rounding.IsSet() {
		return f, err
	}
	return f, r.RoundFloat8(t, rounding)
}

// forwardRounding is how forwardFactor rounds a matrix, for who makes the matrix to do it.
func (r *run) forwardRounding(i int, t kernels.Tensor, backward bool) (f factor, rounding kernels.Float8Rounding, err error) {
	f.Tensor = t
	if !r.roundsAhead(t) {
		return f, rounding, nil
	}
	if f.rows, err = kernels.NewFloat8Sides(t.Shape[0], t.Shape[1], r.scratch); err != nil {
		return f, rounding, err
	}
	rounding.Rows = f.rows
	if backward && i < len(r.c.last.saved) {
		rounding.Columns.Most, err = r.keep(i, kernels.F32, t.Shape[1])
	}
	return f, rounding, err
}

// backwardFactor is that matrix in a backward run.
func (r *run) backwardFactor(i int, t kernels.Tensor, columns bool) (f factor, err error) {
	return r.factor(t, r.saved(i), false, columns)
}

// gradientFactor is a matrix of gradients, of which products read the rows, the columns, or both.
func (r *run) gradientFactor(t kernels.Tensor, rows, columns bool) (factor, error) {
	return r.factor(t, kernels.Tensor{}, rows, columns)
}

// factor rounds a matrix. most is what the columns are rounded by, if that is known.
func (r *run) factor(t, most kernels.Tensor, rows, columns bool) (factor, error) {
	f, rounding, err := r.rounding(t, most, rows, columns)
	if err != nil || !rounding.IsSet() {
		return f, err
	}
	return f, r.RoundFloat8(t, rounding)
}

// rounding is how factor rounds a matrix.
func (r *run) rounding(t, most kernels.Tensor, rows, columns bool) (f factor, rounding kernels.Float8Rounding, err error) {
	f.Tensor = t
	if !rows && !columns || !r.roundsAhead(t) {
		return f, rounding, nil
	}
	if rows {
		f.rows, err = kernels.NewFloat8Sides(t.Shape[0], t.Shape[1], r.scratch)
	}
	if columns && err == nil {
		f.columns, err = kernels.NewFloat8Sides(t.Shape[1], t.Shape[0], r.scratch)
	}
	if err != nil {
		return f, rounding, err
	}
	knows := columns && most.IsSet()
	if knows {
		f.columns.Most = most
	}
	return f, kernels.Float8Rounding{Rows: f.rows, Columns: f.columns, Knows: knows}, nil
}

// cutFactor gives the parts of a factor whose columns are those of weights, side by side.
func cutFactor(f factor, weights tensors) (list []factor) {
	at := 0
	for i, t := range cut(1, f.Tensor, weights) {
		next := at + weights[i].Shape[1]
		list = append(list, factor{Tensor: t, columns: f.columns.Slice(at, next)})
		at = next
	}
	return list
}
