package ops

import "github.com/stheno-ml/stheno/kernels"

// This file is for products in 8 bits. A matrix is rounded once for all products of a step that
// read it: its rows from its elements, and its columns from its rows. In any other precision,
// factors are what they are made of.

// factor is a matrix that products read, and in 8 bits what they read of it.
type factor struct {
	kernels.Tensor
	rows    kernels.Float8Sides // for products that sum over its columns
	columns kernels.Float8Sides // for products that sum over its rows
}

// What a matrix that is rounded saves for the backward run: so many places in a list, which are for
// what the rows were rounded to, and for the largest magnitudes of rows and of columns.
const savesOfFactor = 3

// inFloat8 reports whether layers multiply in 8 bits.
func (r *run) inFloat8() bool {
	return r.c.state.mode.orPrecision(kernels.PrecisionAuto) == kernels.PrecisionFloat8
}

// roundsAhead reports whether layers round a matrix to 8 bits, and it can be rounded ahead of them.
func (r *run) roundsAhead(t kernels.Tensor) bool {
	return r.inFloat8() && t.DType != kernels.F64 && !t.DType.IsPacked() && t.Elements() > 0 && (t.Strides[1] == 1 || t.Shape[1] == 1)
}

// rounding is how a matrix is rounded: its rows, and as much of its columns as turn needs.
func (r *run) rounding(t kernels.Tensor, columns bool) (f factor, rounding kernels.Float8Rounding, err error) {
	if f.Tensor = t; !r.roundsAhead(t) {
		return f, rounding, nil
	}
	if f.rows, err = kernels.NewFloat8Sides(t.Shape[0], t.Shape[1], r.scratch); err == nil && columns {
		f.columns.Most, err = r.scratch(kernels.F32, t.Shape[1])
	}
	return f, kernels.Float8Rounding{Rows: f.rows, ColumnMost: f.columns.Most}, err
}

// savedRounding is rounding of a matrix whose rows are saved, from the place i on, with what turn
// needs.
func (r *run) savedRounding(i int, t kernels.Tensor) (f factor, rounding kernels.Float8Rounding, err error) {
	if i+savesOfFactor > len(r.c.last.saved) || !r.roundsAhead(t) {
		return r.rounding(t, true)
	}
	f.Tensor = t
	f.rows, err = kernels.NewFloat8Sides(t.Shape[0], t.Shape[1], func(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
		place := i
		if dtype == kernels.F32 {
			place = i + 1
		}
		return r.keep(place, dtype, shape...)
	})
	if err == nil {
		f.columns.Most, err = r.keep(i+2, kernels.F32, t.Shape[1])
	}
	return f, kernels.Float8Rounding{Rows: f.rows, ColumnMost: f.columns.Most}, err
}

// roundFactor rounds a matrix, if it is to be.
func (r *run) roundFactor(f factor, rounding kernels.Float8Rounding, err error) (factor, error) {
	if err != nil || !rounding.IsSet() {
		return f, err
	}
	return f, r.RoundFloat8(f.Tensor, rounding)
}

// turn computes the columns of a factor from its rows.
func (r *run) turn(f *factor) (err error) {
	if !f.rows.IsSet() || !f.columns.Most.IsSet() {
		return nil
	}
	sides, depth := f.Shape[1], f.Shape[0]
	numbers, err := r.scratch(kernels.F8, sides, kernels.Float8Stride(depth))
	if err != nil {
		return err
	}
	f.columns.Numbers = numbers.Slice(1, 0, depth)
	return r.TurnFloat8(f.rows, f.columns)
}

// forwardFactor is a matrix whose rows products of a forward run read. If products of the backward
// run sum over its rows, it is saved as they read it.
func (r *run) forwardFactor(i int, t kernels.Tensor, backward bool) (factor, error) {
	if !backward {
		return r.roundFactor(r.rounding(t, false))
	}
	return r.roundFactor(r.savedRounding(i, t))
}

// savedFactor is what a forward run saved of a matrix.
func (r *run) savedFactor(i int, t kernels.Tensor) factor {
	numbers := r.saved(i)
	if !numbers.IsSet() {
		return factor{Tensor: t}
	}
	rows := kernels.Float8Sides{Numbers: numbers.Slice(1, 0, t.Shape[1]), Most: r.saved(i + 1)}
	return factor{t, rows, kernels.Float8Sides{Most: r.saved(i + 2)}}
}

// backwardFactor is the matrix of forwardFactor in a backward run, of which products read columns.
func (r *run) backwardFactor(i int, t kernels.Tensor, columns bool) (f factor, err error) {
	if !columns {
		return factor{Tensor: t}, nil
	}
	if f = r.savedFactor(i, t); !f.rows.IsSet() {
		return r.gradientFactor(t, false, true)
	}
	return f, r.turn(&f)
}

// gradientFactor is a matrix of which products read the rows, the columns, or both.
func (r *run) gradientFactor(t kernels.Tensor, rows, columns bool) (f factor, err error) {
	if !rows && !columns {
		return factor{Tensor: t}, nil
	}
	if f, err = r.roundFactor(r.rounding(t, columns)); err == nil {
		err = r.turn(&f)
	}
	return f, err
}

// weightFactor is a weight whose columns products of a forward run read. If those of the backward
// run read its rows, they are saved.
func (r *run) weightFactor(i int, t kernels.Tensor, backward bool) (f factor, err error) {
	if backward {
		f, err = r.roundFactor(r.savedRounding(i, t))
	} else {
		f, err = r.roundFactor(r.rounding(t, true))
	}
	if err == nil {
		err = r.turn(&f)
	}
	return f, err
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
