package kernels

import (
	"errors"
	"fmt"
	"slices"
)

// operand is a tensor of a call beside what it needs to be. A kernel's problem lists the operands
// of its calls, and every device checks that list before it touches memory.
type operand struct {
	name   string
	tensor Tensor
	shape  []int
	dtypes [2]DType // it needs one of them; the second may be left out
	layout layout

	isOptional bool // it may be left out
}

// layout is how the elements of an operand may lie. No stride is ever negative.
type layout int

const (
	strided        layout = iota // any strides on any axis
	contiguousRows               // rows may lie anywhere, each is contiguous
	writtenRows                  // as contiguousRows, and no two elements lie in the same place
	dense                        // row-major
)

// CheckTensor returns what is wrong with a tensor that may have any strides but negative ones.
func CheckTensor(name string, t Tensor) error {
	return (&operand{name: name, tensor: t, shape: t.Shape}).checkLayout()
}

// checkOperands returns what is wrong with the first operand that is not what it needs to be.
func checkOperands(operands ...operand) error {
	for i := range operands {
		o := &operands[i]
		if !o.tensor.IsSet() && o.isOptional {
			if o.tensor.Data != nil || len(o.tensor.Shape) > 0 {
				return fmt.Errorf("%s has shape %v and no dtype, what is left out is the zero Tensor", o.name, o.tensor.Shape)
			}
			continue
		}
		if err := o.check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *operand) check() error {
	t := &o.tensor
	switch {
	case !t.IsSet():
		return fmt.Errorf("%s is missing, it needs shape %v", o.name, o.shape)
	case t.DType != o.dtypes[0] && (t.DType != o.dtypes[1] || o.dtypes[1] == NoDType):
		return fmt.Errorf("%s is %v, it needs to be %s", o.name, t.DType, either(o.dtypes))
	}
	return o.checkLayout()
}

func either(d [2]DType) string {
	if d[1] == NoDType || d[1] == d[0] {
		return d[0].String()
	}
	return fmt.Sprintf("%v or %v", d[0], d[1])
}

// checkLayout returns what is wrong with the operand apart from its dtype.
func (o *operand) checkLayout() error {
	t := &o.tensor
	if !slices.Equal(t.Shape, o.shape) || len(t.Strides) != len(t.Shape) {
		return fmt.Errorf("%s has shape %v and strides %v, it needs shape %v",
			o.name, t.Shape, t.Strides, o.shape)
	}
	for axis, d := range t.Shape {
		if d < 0 {
			return fmt.Errorf("%s has shape %v, no axis can be negative", o.name, t.Shape)
		}
		if t.Strides[axis] < 0 {
			return fmt.Errorf("%s has strides %v, none can be negative", o.name, t.Strides)
		}
	}
	stride := 1
	for axis := len(t.Shape) - 1; axis >= 0; axis-- {
		fixed := o.layout == dense || o.layout != strided && axis == len(t.Shape)-1
		if fixed && t.Shape[axis] > 1 && t.Strides[axis] != stride {
			return fmt.Errorf("%s has strides %v for shape %v, it needs a stride of %d on axis %d",
				o.name, t.Strides, t.Shape, stride, axis)
		}
		stride *= t.Shape[axis]
	}
	if o.layout == writtenRows && t.Overlaps() {
		return fmt.Errorf("%s has strides %v for shape %v, so that elements of it would lie in the same place",
			o.name, t.Strides, t.Shape)
	}
	if t.Data == nil && t.Elements() > 0 {
		return fmt.Errorf("%s has shape %v but no data", o.name, t.Shape)
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

// checkAlike checks a call all of whose tensors have the shape and the dtype of one of them, and
// contiguous rows.
func checkAlike(lead Tensor, name string, read, written operandList) error {
	if err := lead.validateFloat(name); err != nil {
		return err
	}
	for _, o := range read {
		if err := checkOperands(like(o.name, o.tensor, lead.Shape, lead.DType)); err != nil {
			return err
		}
	}
	for _, o := range written {
		if err := checkOperands(writtenLike(o.name, o.tensor, lead.Shape, lead.DType)); err != nil {
			return err
		}
	}
	return nil
}

// like is an operand of a shape and a dtype whose rows are read.
func like(name string, t Tensor, shape []int, dtype DType) operand {
	return operand{name: name, tensor: t, shape: shape, dtypes: [2]DType{dtype}, layout: contiguousRows}
}

// writtenLike is the same of an output.
func writtenLike(name string, t Tensor, shape []int, dtype DType) operand {
	return operand{name: name, tensor: t, shape: shape, dtypes: [2]DType{dtype}, layout: writtenRows}
}

// indices is an operand of indices.
func indices(name string, t Tensor) operand {
	return operand{name: name, tensor: t, shape: t.Shape, dtypes: [2]DType{I32, I64}, layout: contiguousRows}
}

// wide is a row-major operand of the type of statistics that goes with a dtype.
func wide(name string, t Tensor, shape []int, dtype DType) operand {
	return operand{name: name, tensor: t, shape: shape, dtypes: [2]DType{dtype.Wide()}, layout: dense}
}

// ownOrWide is a row-major operand of a dtype, or of the type of its statistics: a parameter, or
// the gradient of one.
func ownOrWide(name string, t Tensor, shape []int, dtype DType) operand {
	return operand{name: name, tensor: t, shape: shape, dtypes: [2]DType{dtype, dtype.Wide()}, layout: dense}
}

func (o operand) optional() operand {
	o.isOptional = true
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

// Overlaps reports whether elements may share a place: whether some axis steps less far than the
// axes inside it reach.
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
