package kernels

import (
	"fmt"
	"slices"
)

// Float8Sides are sides of an operand of [MatMul], rounded as [PrecisionFloat8] rounds them: rows
// of a matrix that is A, or columns of one that is B.
type Float8Sides struct {
	// Numbers, (sides, depth), are a side's elements times [Float8Scale] of Most, of F8. Each row
	// begins Float8Stride(depth) elements behind the one before, and is 0 beyond the depth.
	Numbers Tensor
	Most    Tensor // (sides), of F32: the largest finite magnitude of each
}

// Float8Stride is how many elements lie from one side to the next.
func Float8Stride(depth int) int {
	const multiple = 16
	return (depth + multiple - 1) / multiple * multiple
}

// IsSet reports whether there are sides.
func (s Float8Sides) IsSet() bool { return s.Numbers.IsSet() }

// Slice is some of the sides.
func (s Float8Sides) Slice(from, to int) Float8Sides {
	if !s.IsSet() {
		return s
	}
	return Float8Sides{s.Numbers.Slice(0, from, to), s.Most.Slice(0, from, to)}
}

// Float8Rounding says what [MatMulKernels] round of a matrix.
type Float8Rounding struct {
	Rows       Float8Sides // receives the rows, as products read them that sum over the columns
	ColumnMost Tensor      // (columns), of F32: receives the largest finite magnitude of each; or left out
	// Alone says that of a matrix that a product makes nothing else is read: its elements are
	// undefined behind the call.
	Alone bool
}

// IsSet reports whether anything is rounded.
func (r Float8Rounding) IsSet() bool { return r.Rows.IsSet() || r.ColumnMost.IsSet() }

// SideBySide is the matrix whose columns are those of left and then those of right, if they lie so.
func SideBySide(left, right Tensor) (both Tensor, ok bool) {
	if len(left.Shape) != 2 || len(right.Shape) != 2 || left.Shape[0] != right.Shape[0] || left.DType != right.DType ||
		left.Strides[0] != right.Strides[0] || uintptr(left.Data)+uintptr(left.Shape[1]*left.DType.Size()) != uintptr(right.Data) {
		return both, false
	}
	both = left
	both.Shape = []int{left.Shape[0], left.Shape[1] + right.Shape[1]}
	return both, true
}

// checkRoundings checks what an epilogue's results are rounded to.
func (m *MatMul) checkRoundings(c Tensor) error {
	var r Float8Rounding
	switch e := m.Epilogue.(type) {
	case Gate:
		r = e.Rounding
	case GateGradient:
		if r = e.Rounding; r.IsSet() {
			both, ok := SideBySide(c, e.DUp)
			if !ok {
				return fmt.Errorf("c and dUp have shapes %v and %v and strides %v and %v, to be rounded they need to lie side by side", c.Shape, e.DUp.Shape, c.Strides, e.DUp.Strides)
			}
			c = both
		}
	}
	if !r.IsSet() {
		return nil
	}
	if m.Precision != PrecisionFloat8 {
		return fmt.Errorf("a rounding of c is given, it needs to be left out without PrecisionFloat8")
	}
	return CheckRoundFloat8(c, r)
}

// CheckRoundFloat8 returns what is wrong with a call of RoundFloat8.
func CheckRoundFloat8(x Tensor, r Float8Rounding) error {
	if err := x.validateMatrices("x"); err != nil {
		return err
	}
	if len(x.Shape) != 2 || x.DType == F64 {
		return fmt.Errorf("x is %v of shape %v, it needs to be a matrix of float32 or of 16 bits", x.DType, x.Shape)
	}
	if !r.Rows.IsSet() {
		return fmt.Errorf("rows.numbers is missing, it needs shape %v", x.Shape)
	}
	most := operand{name: "columnMost", tensor: r.ColumnMost, shape: x.Shape[1:], dtypes: [2]DType{F32}, layout: dense, isOptional: true}
	err := checkOperands(operand{name: "x", tensor: x, shape: x.Shape, dtypes: [2]DType{x.DType}, layout: contiguousRows}, most)
	if err == nil {
		err = r.Rows.check("rows", x.Shape[0], x.Shape[1])
	}
	return err
}

// CheckTurnFloat8 returns what is wrong with a call of TurnFloat8.
func CheckTurnFloat8(rows, columns Float8Sides) error {
	for _, s := range []struct {
		name  string
		sides Float8Sides
	}{{"rows", rows}, {"columns", columns}} {
		if n := s.sides.Numbers; len(n.Shape) != 2 || slices.Min(n.Shape) < 0 {
			return fmt.Errorf("%s.numbers has shape %v, it needs two axes", s.name, n.Shape)
		}
	}
	count, depth := rows.Numbers.Shape[0], rows.Numbers.Shape[1]
	if err := rows.check("rows", count, depth); err != nil {
		return err
	}
	return columns.check("columns", depth, count)
}

// check checks sides. Those that are left out pass, with Most or without.
func (s Float8Sides) check(name string, sides, depth int) error {
	numbers := operand{name: name + ".numbers", tensor: s.Numbers, shape: []int{sides, depth}, dtypes: [2]DType{F8}, layout: contiguousRows, isOptional: true}
	most := operand{name: name + ".most", tensor: s.Most, shape: []int{sides}, dtypes: [2]DType{F32}, layout: dense, isOptional: !s.IsSet()}
	if err := checkOperands(numbers, most); err != nil || !s.IsSet() {
		return err
	}
	if stride := Float8Stride(depth); s.Numbers.Strides[0] != stride && sides > 1 {
		return fmt.Errorf("%s has strides %v, it needs a stride of %d on axis 0", numbers.name, s.Numbers.Strides, stride)
	}
	return nil
}

// checkRounded checks the operands of a product that were rounded ahead of it.
func (m *MatMul) checkRounded() error {
	gate, gated := m.Epilogue.(Gate)
	if !m.RoundedA.IsSet() && !m.RoundedB.IsSet() && !gate.RoundedBUp.IsSet() {
		return nil
	}
	if m.Precision != PrecisionFloat8 {
		return fmt.Errorf("roundedA or roundedB is given, it needs to be left out without PrecisionFloat8")
	}
	if up := gate.RoundedBUp; gated && up.IsSet() != m.RoundedB.IsSet() {
		return fmt.Errorf("roundedB has shape %v and roundedBUp %v, both need to be given or neither", m.RoundedB.Numbers.Shape, up.Numbers.Shape)
	}
	rows, columns, depth := m.Dims()
	if batch := m.A.Shape[:len(m.A.Shape)-2]; len(batch) > 0 || len(m.B.Shape) > 2 {
		return fmt.Errorf("a has shape %v and b %v, beside roundedA or roundedB they need two axes", m.A.Shape, m.B.Shape)
	}
	err := m.RoundedA.check("roundedA", rows, depth)
	if err == nil {
		err = m.RoundedB.check("roundedB", columns, depth)
	}
	if err == nil {
		err = gate.RoundedBUp.check("roundedBUp", columns, depth)
	}
	return err
}

// NewFloat8Sides describes sides, and gives them memory.
func NewFloat8Sides(sides, depth int, alloc func(dtype DType, shape ...int) (Tensor, error)) (s Float8Sides, err error) {
	if s.Most, err = alloc(F32, sides); err != nil {
		return s, err
	}
	if s.Numbers, err = alloc(F8, sides, Float8Stride(depth)); err == nil {
		s.Numbers = s.Numbers.Slice(1, 0, depth)
	}
	return s, err
}
