package kernels

import (
	"fmt"
	"slices"
)

// MatMul is one product of matrices, or a batch of them, with what usually follows it in a network:
//
//	C = A·B + bias     or, to accumulate,     C ← C + A·B + bias
//
// Products of further factors may be added to A·B. An [Epilogue] changes what is written to C.
//
// A and B may have any strides on every axis: a transpose is a [Tensor.Permute], and an axis of
// stride 0 broadcasts. They have one dtype, or B is a weight that is kept in less memory than it is
// computed with: a 16-bit one beside an A of F32, or one packed matrix beside an A of any type but
// F64. Its numbers count as they are. Sums are in [DType.Wide] of A's.
type MatMul struct {
	A Tensor // (batch..., m, k)
	B Tensor // (batch..., k, n), or (k, n) for all of the batch

	Plus       []Factors // whose products are added to A·B
	Bias       Tensor    // (n) of A's dtype or its wide one, left out by the zero Tensor
	Accumulate bool      // adds to C
	Epilogue   Epilogue
	// Precision is how exact products of float32 tensors need to be. PrecisionFloat8 is for A·B
	// alone, and for 16-bit tensors too; with a [Gate], for A·BUp.
	Precision Precision
	// RoundedA and RoundedB are what [MatMulKernels] made of A and B ahead of a product in
	// PrecisionFloat8, which then does not round them itself; or left out.
	RoundedA, RoundedB Float8Sides
}

// Factors are two matrices whose product is added to that of a [MatMul]: a part of a long sum, or a
// change of low rank. Their strides are as free as those of A and B, and their dtype is A's.
type Factors struct {
	A   Tensor // (batch..., m, kᵢ)
	B   Tensor // (kᵢ, n)
	BUp Tensor // as B is: with a [Gate], A·BUp is added to Up; otherwise left out
}

// MatMulOutputs receives what the kernel computes, beside what its [Epilogue] receives. No output
// may share memory with the inputs or with another. Each has A's dtype or its wide one.
type MatMulOutputs struct {
	C Tensor // (batch..., m, n), last axis contiguous
	// ColumnSums, (n) row-major, receives Σ over all rows of C, before or after C is rounded: a
	// bias's gradient. It may be left out.
	ColumnSums Tensor
	// SumsOfB, (n) row-major, receives Σ over all rows of B: a bias's gradient, beside that of its
	// weight. It may be left out. Otherwise B has two axes, the last contiguous.
	SumsOfB Tensor
}

// MatMulKernels multiply matrices, and sum rows: together, a linear layer and its gradients.
type MatMulKernels interface {
	// MatMul computes C and what the epilogue receives. Every element is summed in an order that
	// depends on the problem and the device alone.
	MatMul(m *MatMul, out MatMulOutputs) error
	// SumRows computes out_j = Σ_i x_ij over all axes of x but the last, in an order that depends
	// on the shape alone: a bias's gradient. With accumulate the sum is added to out. x is (..., n)
	// with a contiguous last axis, out (n) row-major of x's dtype or its wide one; sums are of the
	// wide one.
	SumRows(x, out Tensor, accumulate bool) error
	// RoundFloat8 rounds the rows of a matrix, which are contiguous, as products in PrecisionFloat8
	// would, for those of them that read it several times.
	RoundFloat8(x Tensor, r Float8Rounding) error
	// TurnFloat8 computes the columns of a matrix from what its rows were rounded to: numbers are
	// brought to a column's scale, by the magnitudes that columns has, and rounded again. It gives
	// what the matrix itself would, but for numbers under 2⁻¹³ of the largest of their row or
	// column.
	TurnFloat8(rows, columns Float8Sides) error
}

// CheckSumRows returns what is wrong with a call of SumRows.
func CheckSumRows(x, out Tensor) error {
	if err := x.validateFloat("x"); err != nil {
		return err
	}
	if len(x.Shape) == 0 {
		return fmt.Errorf("x has shape %v, it needs at least one axis", x.Shape)
	}
	return checkOperands(like("x", x, x.Shape, x.DType), ownOrWide("out", out, x.features(), x.DType))
}

// Dims returns the sizes of each product: C is rows × columns, and depth is the axis that is summed
// over.
func (m *MatMul) Dims() (rows, columns, depth int) {
	a, b := m.A.Shape, m.B.Shape
	return a[len(a)-2], b[len(b)-1], a[len(a)-1]
}

// OutputShape returns the shape of C, and of all tensors of an epilogue but BUp.
func (m *MatMul) OutputShape() []int {
	shape := slices.Clone(m.A.Shape)
	_, shape[len(shape)-1], _ = m.Dims()
	return shape
}

// FLOPs counts the multiplications and additions of the product.
func (m *MatMul) FLOPs() float64 {
	_, columns, _ := m.Dims()
	if _, ok := m.Epilogue.(Gate); ok {
		columns *= 2
	}
	elements := m.A.Elements()
	for _, f := range m.Plus {
		elements += f.A.Elements()
	}
	return 2 * float64(elements) * float64(columns)
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil. Tensors may lack data, so that a problem can be checked before its values
// exist.
func (m *MatMul) Validate() error {
	if m == nil {
		return errNoProblem
	}
	if err := m.A.validateMatrices("a"); err != nil {
		return err
	}
	if err := m.validateB(); err != nil {
		return err
	}
	if half := m.B.DType == BF16 || m.B.DType == F16; m.B.DType != m.A.DType && !(half && m.A.DType == F32) && !m.B.DType.IsPacked() {
		return fmt.Errorf("b is %v, a is %v: they need one dtype", m.B.DType, m.A.DType)
	}
	batch := m.A.Shape[:len(m.A.Shape)-2]
	if own := m.B.Shape[:len(m.B.Shape)-2]; len(own) > 0 && !slices.Equal(own, batch) {
		return fmt.Errorf("b has batch axes %v, it needs a's %v or none", own, batch)
	}
	_, columns, depth := m.Dims()
	if rows := m.B.Shape[len(m.B.Shape)-2]; rows != depth {
		return fmt.Errorf("b has %d rows, it needs a's %d columns: a is %v, b is %v", rows, depth, m.A.Shape, m.B.Shape)
	}
	for i := range m.Plus {
		if err := m.validateFactors(i); err != nil {
			return err
		}
	}
	if err := m.validateBias(columns); err != nil {
		return err
	}
	if err := m.validateEpilogue(); err != nil {
		return err
	}
	if m.Precision == PrecisionFloat8 && (m.A.DType == F64 || m.B.DType.IsPacked()) {
		return fmt.Errorf("a is %v and b is %v, for PrecisionFloat8 they need to be float32 or of 16 bits", m.A.DType, m.B.DType)
	}
	return m.Precision.Validate()
}

// Check returns what is wrong with a call of MatMul.
func (m *MatMul) Check(out MatMulOutputs) error {
	if err := m.Validate(); err != nil {
		return err
	}
	own, shape := [2]DType{m.A.DType, m.A.DType.Wide()}, m.OutputShape()
	err := checkOperands(m.factorOperands()...)
	if err != nil {
		return err
	}
	err = checkOperands(
		operand{name: "a", tensor: m.A, shape: m.A.Shape, dtypes: own},
		operand{name: "b", tensor: m.B, shape: m.B.Shape, dtypes: [2]DType{m.B.DType}},
		operand{name: "bias", tensor: m.Bias, shape: m.Bias.Shape, dtypes: own, layout: contiguousRows, isOptional: true},
		operand{name: "c", tensor: out.C, shape: shape, dtypes: own, layout: writtenRows},
		ownOrWide("columnSums", out.ColumnSums, shape[len(shape)-1:], m.A.DType).optional(),
	)
	if err != nil {
		return err
	}
	if err := m.checkSumsOfB(out.SumsOfB); err != nil {
		return err
	}
	if err := m.checkRounded(); err != nil {
		return err
	}
	if err := checkOperands(m.epilogueOperands(out.C.DType)...); err != nil {
		return err
	}
	return m.checkRoundings(out.C)
}

func (m *MatMul) checkSumsOfB(sums Tensor) error {
	b := m.B
	if !sums.IsSet() {
		return checkOperands(ownOrWide("sumsOfB", sums, sums.Shape, m.A.DType).optional())
	}
	if b.DType != m.A.DType || len(b.Shape) != 2 || b.Strides[1] != 1 && b.Shape[1] > 1 {
		return fmt.Errorf("b is %v and has shape %v and strides %v, for sumsOfB it needs a's dtype and two axes, the last contiguous", b.DType, b.Shape, b.Strides)
	}
	return checkOperands(ownOrWide("sumsOfB", sums, b.Shape[1:], b.DType))
}

func (m *MatMul) validateBias(columns int) error {
	if !m.Bias.IsSet() {
		return nil
	}
	if len(m.Bias.Shape) != 1 || m.Bias.Shape[0] != columns {
		return fmt.Errorf("bias has shape %v, it needs one value for each of b's %d columns", m.Bias.Shape, columns)
	}
	if own := [2]DType{m.A.DType, m.A.DType.Wide()}; m.Bias.DType != own[0] && m.Bias.DType != own[1] {
		return fmt.Errorf("bias is %v, it needs to be %s", m.Bias.DType, either(own))
	}
	return m.Bias.validateStrides("bias")
}

// validateFactors checks those of the i-th product that is added, but for their tensors' layout.
func (m *MatMul) validateFactors(i int) error {
	f, name := m.Plus[i], fmt.Sprintf("plus[%d]", i)
	_, gated := m.Epilogue.(Gate)
	if !gated && f.BUp.IsSet() {
		return fmt.Errorf("%s.bUp has shape %v, it needs to be left out without a Gate", name, f.BUp.Shape)
	}
	type factor struct {
		name   string
		tensor Tensor
	}
	factors := []factor{{name + ".a", f.A}, {name + ".b", f.B}}
	if gated {
		factors = append(factors, factor{name + ".bUp", f.BUp})
	}
	for _, x := range factors {
		if err := x.tensor.validateMatrices(x.name); err != nil {
			return err
		}
		if x.tensor.DType != m.A.DType {
			return fmt.Errorf("%s is %v, a is %v: they need one dtype", x.name, x.tensor.DType, m.A.DType)
		}
	}
	last := len(m.A.Shape) - 1
	if len(f.A.Shape) != last+1 || !slices.Equal(f.A.Shape[:last], m.A.Shape[:last]) {
		return fmt.Errorf("%s.a has shape %v, it needs a's %v but for the last axis", name, f.A.Shape, m.A.Shape)
	}
	_, columns, _ := m.Dims()
	for _, x := range factors[1:] {
		if want := []int{f.A.Shape[last], columns}; !slices.Equal(x.tensor.Shape, want) {
			return fmt.Errorf("%s has shape %v, it needs %v: a row for each of %s.a's columns, a column for each of b's", x.name, x.tensor.Shape, want, name)
		}
	}
	return nil
}

// factorOperands lists the tensors of the products that are added.
func (m *MatMul) factorOperands() (list []operand) {
	add := func(name string, t Tensor) {
		list = append(list, operand{name: name, tensor: t, shape: t.Shape, dtypes: [2]DType{m.A.DType}})
	}
	for i, f := range m.Plus {
		add(fmt.Sprintf("plus[%d].a", i), f.A)
		add(fmt.Sprintf("plus[%d].b", i), f.B)
		if f.BUp.IsSet() {
			add(fmt.Sprintf("plus[%d].bUp", i), f.BUp)
		}
	}
	return list
}

// validateB checks the right operand, which may be a packed matrix.
func (m *MatMul) validateB() error {
	if !m.B.DType.IsPacked() {
		return m.B.validateMatrices("b")
	}
	if m.A.DType == F64 {
		return fmt.Errorf("b is %v, beside an a of float64 it needs to be float64", m.B.DType)
	}
	return m.B.validatePacked("b")
}

// validatePacked checks a packed matrix or the transpose of one.
func (t Tensor) validatePacked(name string) error {
	if len(t.Shape) != 2 || len(t.Strides) != 2 {
		return fmt.Errorf("%s is %v and has shape %v, it needs two axes", name, t.DType, t.Shape)
	}
	row := 1 // the axis along which a row lies
	if t.Strides[0] == 1 {
		row = 0
	}
	columns := t.Shape[row]
	switch {
	case t.Shape[1-row] < 0 || columns <= 0 || columns%t.DType.Block() != 0:
		return fmt.Errorf("%s is %v and has shape %v, its rows need to be of a multiple of %d elements", name, t.DType, t.Shape, t.DType.Block())
	case t.Strides[row] != 1 || t.Strides[1-row] != columns:
		return fmt.Errorf("%s is %v and has strides %v for shape %v, its rows need to lie end to end", name, t.DType, t.Strides, t.Shape)
	}
	return nil
}

// validateMatrices checks an operand of a product: floats, at least two axes, nothing negative.
func (t Tensor) validateMatrices(name string) error {
	if err := t.validateFloat(name); err != nil {
		return err
	}
	if len(t.Shape) < 2 {
		return fmt.Errorf("%s has shape %v, it needs at least two axes", name, t.Shape)
	}
	if slices.ContainsFunc(t.Shape, func(d int) bool { return d < 0 }) {
		return fmt.Errorf("%s has shape %v, no axis can be negative", name, t.Shape)
	}
	if len(t.Strides) != len(t.Shape) {
		return fmt.Errorf("%s has %d strides for its %d axes", name, len(t.Strides), len(t.Shape))
	}
	if slices.ContainsFunc(t.Strides, func(s int) bool { return s < 0 }) {
		return fmt.Errorf("%s has strides %v, none can be negative", name, t.Strides)
	}
	return nil
}
