package kernels

import (
	"fmt"
	"slices"
)

// MatMul is one product of matrices, or a batch of them, with what usually follows it in a network:
//
//	C = act(A·B + bias)     or, to accumulate,     C ← C + A·B + bias     or, with Z,     C = (A·B + bias)·act'(Z)
//
//	or, with Z and Up,     C = (A·B + bias)·Up·act'(Z)     DUp = (A·B + bias)·act(Z)
//
//	or, with BUp,     C = act(Pre)·Up     Pre = A·B     Up = A·BUp
//
// A and B may have any strides on every axis, so that a transpose is a [Tensor.Permute] and an axis of stride 0
// broadcasts. They have one dtype, or A is F32 and B a 16-bit one, such as a weight that is kept in less memory than it is computed
// with: its numbers count as they are. Sums are in [DType.Wide] of A's.
type MatMul struct {
	A Tensor // (batch..., m, k)
	B Tensor // (batch..., k, n), or (k, n) for all of the batch

	Bias       Tensor // (n) of A's dtype or its wide one, left out by the zero Tensor
	Activation Activation
	// Z, (batch..., m, n) of C's dtype with a contiguous last axis, is what an activation was applied to whose result has the gradient
	// A·B + bias: C is then the gradient of Z. Or it is left out.
	Z Tensor
	// Up, as Z is, is what the result of the activation, SiLU, was multiplied by before it had that gradient: C is then the gradient of
	// Z, and DUp that of Up. Or it is left out.
	Up Tensor
	// BUp, as B is, is a second factor of A, whose product the result of the activation, SiLU, is multiplied by. There is no bias then. Or it
	// is left out.
	BUp Tensor
	// Accumulate adds to C, which then has no activation.
	Accumulate bool
	// Precision is how exact the product of float32 tensors needs to be.
	Precision Precision
}

// MatMulOutputs receives what the kernel computes. None may share memory with the inputs or with another. Each has A's
// dtype or its wide one.
type MatMulOutputs struct {
	C   Tensor // (batch..., m, n), last axis contiguous
	Pre Tensor // the same: receives what the activation is applied to, or left out
	DUp Tensor // the same, of C's dtype: receives the gradient of Up where that is given
	Up  Tensor // the same, of C's dtype, as Pre then needs to be: receives A·BUp where BUp is given
	// ColumnSums, (n) row-major, receives Σ over all rows of C, before or after C is rounded: a bias's gradient; or left out.
	ColumnSums Tensor
}

// MatMulKernels multiply matrices, and sum rows: together, a linear layer and its gradients.
type MatMulKernels interface {
	// MatMul computes C, and Pre if asked. Every element is summed in an order that depends on the problem and the device alone.
	MatMul(m *MatMul, out MatMulOutputs) error
	// SumRows computes out_j = Σ_i x_ij over all axes of x but the last, in an order that depends on the shape alone:
	// a bias's gradient. With accumulate the sum is added to out. x is (..., n) with a contiguous last axis, out (n) row-major
	// of x's dtype or its wide one; sums are of the wide one.
	SumRows(x, out Tensor, accumulate bool) error
}

// MatMulGated computes a product with BUp one kernel after the other, for devices that have none for it.
func MatMulGated(b Backend, m *MatMul, out MatMulOutputs) error {
	for _, layer := range []struct{ weight, out Tensor }{{m.B, out.Pre}, {m.BUp, out.Up}} {
		plain := MatMul{A: m.A, B: layer.weight, Precision: m.Precision}
		if err := b.MatMul(&plain, MatMulOutputs{C: layer.out}); err != nil {
			return err
		}
	}
	if err := b.SwiGLU(out.Pre, out.Up, out.C); err != nil || !out.ColumnSums.IsSet() {
		return err
	}
	return b.SumRows(out.C, out.ColumnSums, false)
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

// Dims returns the sizes of each product: C is rows × columns, and depth is the axis that is summed over.
func (m *MatMul) Dims() (rows, columns, depth int) {
	a, b := m.A.Shape, m.B.Shape
	return a[len(a)-2], b[len(b)-1], a[len(a)-1]
}

// OutputShape returns the shape that C, Pre, Z, DUp and both Up need.
func (m *MatMul) OutputShape() []int {
	shape := slices.Clone(m.A.Shape)
	_, shape[len(shape)-1], _ = m.Dims()
	return shape
}

// FLOPs counts the multiplications and additions of the product.
func (m *MatMul) FLOPs() float64 {
	_, columns, _ := m.Dims()
	if m.BUp.IsSet() {
		columns *= 2
	}
	return 2 * float64(m.A.Elements()) * float64(columns)
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it needs to be, or
// nil. Tensors may lack data, so that a problem can be checked before its values exist.
func (m *MatMul) Validate() error {
	if m == nil {
		return errNoProblem
	}
	if err := m.A.validateMatrices("a"); err != nil {
		return err
	}
	if err := m.B.validateMatrices("b"); err != nil {
		return err
	}
	if half := m.B.DType == BF16 || m.B.DType == F16; m.B.DType != m.A.DType && !(half && m.A.DType == F32) {
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
	if err := m.validateBias(columns); err != nil {
		return err
	}
	if err := m.Activation.Validate(); err != nil {
		return err
	}
	if m.Accumulate && m.Activation != NoActivation {
		return fmt.Errorf("activation is %v, it needs to be NoActivation to accumulate", m.Activation)
	}
	switch {
	case m.Z.IsSet() && m.Accumulate:
		return fmt.Errorf("z has shape %v, it needs to be left out to accumulate", m.Z.Shape)
	case m.Up.IsSet() && !m.Z.IsSet():
		return fmt.Errorf("up has shape %v, it needs z beside it, which is missing", m.Up.Shape)
	case m.Up.IsSet() && m.Activation != SiLU:
		return fmt.Errorf("activation is %v, it needs to be SiLU where up is given", m.Activation)
	case m.BUp.IsSet() && m.Activation != SiLU:
		return fmt.Errorf("activation is %v, it needs to be SiLU where bUp is given", m.Activation)
	case m.BUp.IsSet() && m.Z.IsSet():
		return fmt.Errorf("z has shape %v, it needs to be left out where bUp is given", m.Z.Shape)
	case m.BUp.IsSet() && m.Bias.IsSet():
		return fmt.Errorf("bias has shape %v, it needs to be left out where bUp is given", m.Bias.Shape)
	}
	return m.Precision.Validate()
}

// Check returns what is wrong with a call of MatMul.
func (m *MatMul) Check(out MatMulOutputs) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if m.Z.IsSet() && out.Pre.IsSet() {
		return fmt.Errorf("pre has shape %v, it needs to be left out where z is given", out.Pre.Shape)
	}
	if out.DUp.IsSet() && !m.Up.IsSet() {
		return fmt.Errorf("dUp has shape %v, it needs to be left out where up is", out.DUp.Shape)
	}
	if out.Up.IsSet() && !m.BUp.IsSet() {
		return fmt.Errorf("up has shape %v, it needs to be left out where bUp is", out.Up.Shape)
	}
	own, shape := [2]DType{m.A.DType, m.A.DType.Wide()}, m.OutputShape()
	ofPre := own
	if m.BUp.IsSet() {
		ofPre = [2]DType{out.C.DType}
	}
	return checkOperands(
		operand{name: "a", tensor: m.A, shape: m.A.Shape, dtypes: own},
		operand{name: "b", tensor: m.B, shape: m.B.Shape, dtypes: [2]DType{m.B.DType}},
		operand{name: "bUp", tensor: m.BUp, shape: m.B.Shape, dtypes: [2]DType{m.B.DType}, isOptional: true},
		operand{name: "bias", tensor: m.Bias, shape: m.Bias.Shape, dtypes: own, layout: contiguousRows, isOptional: true},
		operand{name: "c", tensor: out.C, shape: shape, dtypes: own, layout: writtenRows},
		operand{name: "pre", tensor: out.Pre, shape: shape, dtypes: ofPre, layout: writtenRows, isOptional: !m.BUp.IsSet()},
		like("z", m.Z, shape, out.C.DType).optional(),
		like("up", m.Up, shape, out.C.DType).optional(),
		operand{name: "dUp", tensor: out.DUp, shape: shape, dtypes: [2]DType{out.C.DType}, layout: writtenRows, isOptional: !m.Up.IsSet()},
		operand{name: "up", tensor: out.Up, shape: shape, dtypes: ofPre, layout: writtenRows, isOptional: !m.BUp.IsSet()},
		ownOrWide("columnSums", out.ColumnSums, shape[len(shape)-1:], m.A.DType).optional(),
	)
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
