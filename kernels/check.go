package kernels

import (
	"errors"
	"fmt"
	"slices"
)

// Operand is a tensor of a call beside what it needs to be. A kernel's problem lists the operands of its calls, and every
// device checks that list before it touches memory.
type Operand struct {
	Name   string
	Tensor Tensor
	Shape  []int
	DTypes [2]DType // it needs one of them; the second may be left out
	Layout Layout

	Optional bool // it may be left out
}

// Layout is how the elements of an operand may lie. No stride is ever negative.
type Layout int

const (
	Strided     Layout = iota // any strides on any axis
	Rows                      // rows may lie anywhere, each is contiguous
	WrittenRows               // as Rows, and no two elements lie in the same place
	Dense                     // row-major
)

// CheckOperands returns what is wrong with the first operand that is not what it needs to be.
func CheckOperands(operands ...Operand) error {
	for i := range operands {
		o := &operands[i]
		if !o.Tensor.IsSet() && o.Optional {
			if o.Tensor.Data != nil || len(o.Tensor.Shape) > 0 {
				return fmt.Errorf("%s has shape %v and no dtype, what is left out is the zero Tensor", o.Name, o.Tensor.Shape)
			}
			continue
		}
		if err := o.check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Operand) check() error {
	t := &o.Tensor
	switch {
	case !t.IsSet():
		return fmt.Errorf("%s is missing, it needs shape %v", o.Name, o.Shape)
	case t.DType != o.DTypes[0] && (t.DType != o.DTypes[1] || o.DTypes[1] == NoDType):
		return fmt.Errorf("%s is %v, it needs to be %s", o.Name, t.DType, either(o.DTypes))
	}
	return o.CheckLayout()
}

func either(d [2]DType) string {
	if d[1] == NoDType || d[1] == d[0] {
		return d[0].String()
	}
	return fmt.Sprintf("%v or %v", d[0], d[1])
}

// CheckLayout returns what is wrong with the operand apart from its dtype.
func (o *Operand) CheckLayout() error {
	t := &o.Tensor
	if !slices.Equal(t.Shape, o.Shape) || len(t.Strides) != len(t.Shape) {
		return fmt.Errorf("%s has shape %v and strides %v, it needs shape %v",
			o.Name, t.Shape, t.Strides, o.Shape)
	}
	for axis, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("%s has shape %v, no axis can be negative", o.Name, t.Shape)
		}
		if t.Strides[axis] < 0 {
			return fmt.Errorf("%s has strides %v, none can be negative", o.Name, t.Strides)
		}
	}
	stride := 1
	for axis := len(t.Shape) - 1; axis >= 0; axis-- {
		fixed := o.Layout == Dense || o.Layout != Strided && axis == len(t.Shape)-1
		if fixed && t.Shape[axis] > 1 && t.Strides[axis] != stride {
			return fmt.Errorf("%s has strides %v for shape %v, it needs a stride of %d on axis %d",
				o.Name, t.Strides, t.Shape, stride, axis)
		}
		stride *= t.Shape[axis]
	}
	if o.Layout == WrittenRows && t.Overlaps() {
		return fmt.Errorf("%s has strides %v for shape %v, so that elements of it would lie in the same place",
			o.Name, t.Strides, t.Shape)
	}
	if t.Data == nil && t.Elements() > 0 {
		return fmt.Errorf("%s has shape %v but no data", o.Name, t.Shape)
	}
	return nil
}

// errNoProblem is what is wrong with the nil pointer in place of a problem.
var errNoProblem = errors.New("the problem is nil")

// operandList is tensors and their names.
type operandList []struct {
	name   string
	tensor Tensor
}

// checkAlike checks a call all of whose tensors have the shape and the dtype of one of them, and contiguous rows.
func checkAlike(lead Tensor, name string, read, written operandList) error {
	if err := lead.validateFloat(name); err != nil {
		return err
	}
	for _, o := range read {
		if err := CheckOperands(like(o.name, o.tensor, lead.Shape, lead.DType)); err != nil {
			return err
		}
	}
	for _, o := range written {
		if err := CheckOperands(writtenLike(o.name, o.tensor, lead.Shape, lead.DType)); err != nil {
			return err
		}
	}
	return nil
}

// like is an operand of a shape and a dtype whose rows are read.
func like(name string, t Tensor, shape []int, dtype DType) Operand {
	return Operand{Name: name, Tensor: t, Shape: shape, DTypes: [2]DType{dtype}, Layout: Rows}
}

// writtenLike is the same of an output.
func writtenLike(name string, t Tensor, shape []int, dtype DType) Operand {
	return Operand{Name: name, Tensor: t, Shape: shape, DTypes: [2]DType{dtype}, Layout: WrittenRows}
}

// indices is an operand of indices.
func indices(name string, t Tensor) Operand {
	return Operand{Name: name, Tensor: t, Shape: t.Shape, DTypes: [2]DType{I32, I64}, Layout: Rows}
}

// wide is a row-major operand of the type of statistics that goes with a dtype.
func wide(name string, t Tensor, shape []int, dtype DType) Operand {
	return Operand{Name: name, Tensor: t, Shape: shape, DTypes: [2]DType{dtype.Wide()}, Layout: Dense}
}

// ownOrWide is a row-major operand of a dtype, or of the type of its statistics: a parameter, or the gradient of one.
func ownOrWide(name string, t Tensor, shape []int, dtype DType) Operand {
	return Operand{Name: name, Tensor: t, Shape: shape, DTypes: [2]DType{dtype, dtype.Wide()}, Layout: Dense}
}

func (o Operand) optional() Operand {
	o.Optional = true
	return o
}

// IsRowMajor reports whether the elements lie end to end in the order of the axes.
func (t Tensor) IsRowMajor() bool {
	stride := 1
	for axis := len(t.Shape) - 1; axis >= 0; axis-- {
		if t.Shape[axis] > 1 && t.Strides[axis] != stride {
			return t.Elements() == 0
		}
		stride *= t.Shape[axis]
	}
	return true
}

// Overlaps reports whether elements may share a place: whether some axis steps less far than the axes inside it reach.
func (t Tensor) Overlaps() bool {
	if t.Elements() == 0 || t.IsRowMajor() {
		return false
	}
	axes := make([]int, 0, len(t.Shape))
	for axis, d := range t.Shape {
		if d > 1 {
			axes = append(axes, axis)
		}
	}
	slices.SortFunc(axes, func(a, b int) int { return t.Strides[a] - t.Strides[b] })
	reach := 0
	for _, axis := range axes {
		if t.Strides[axis] <= reach {
			return true
		}
		reach += (t.Shape[axis] - 1) * t.Strides[axis]
	}
	return false
}

// IsTransposed reports whether the columns of a matrix are contiguous and its rows are not.
func (t Tensor) IsTransposed() bool {
	return len(t.Shape) == 2 && len(t.Strides) == 2 && t.Strides[1] != 1 && t.Strides[0] == 1
}

// rowShape is the shape of the values that a tensor has one of for each row.
func (t Tensor) rowShape() []int { return t.Shape[:len(t.Shape)-1] }

// features is the shape of the values that a tensor has one of for each element of a row.
func (t Tensor) features() []int { return t.Shape[len(t.Shape)-1:] }

// scalar is the shape of a tensor without axes.
var scalar = []int{}
