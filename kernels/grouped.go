package kernels

import "fmt"

// GroupedMatMul multiplies each row of A by one of several matrices. The rows that belong to one of
// them lie together, as [Assignment] sorts them:
//
//	C_i = A_i·B_g + bias_g     or, to accumulate,     C_i ← C_i + A_i·B_g + bias_g
//
// for the rows i of group g, which are those from Offsets_g on and before Offsets_g+1. How many
// rows a group has is known on the device alone.
//
// A and B may have any strides. They have one dtype, or A is float32 beside a B of 16 bits, whose
// numbers count as they are. Sums are in [DType.Wide] of A's.
type GroupedMatMul struct {
	A       Tensor // (rows, k)
	B       Tensor // (groups, k, n)
	Bias    Tensor // (groups, n) of A's dtype or its wide one, left out by the zero Tensor
	Offsets Tensor // (groups+1), int32, ascending from 0 to rows

	Accumulate bool // adds to C
	Precision  Precision
}

// GroupedKernels multiply rows by the matrix of their group: the linear layers of experts, and
// their gradients. A group without rows costs next to nothing, and its gradients are 0. Elements
// are summed in an order that depends on the problem, the rows of the groups and the device alone.
type GroupedKernels interface {
	// GroupedMatMul computes C, (rows, n) of A's dtype or its wide one.
	GroupedMatMul(m *GroupedMatMul, c Tensor) error
	// GroupedMatMulGradient computes the gradient of B from that of C: dB_g = Σ A_iᵀ·dC_i over the
	// rows of g. Of the problem it reads A, Offsets and Precision, and the shape of B. dB is
	// (groups, k, n) row-major, of A's dtype or its wide one.
	GroupedMatMulGradient(m *GroupedMatMul, dC, dB Tensor) error
	// GroupedSumRows computes out_g = Σ x_i over the rows of g: the gradient of a bias. x is (rows,
	// n), out (groups, n) row-major of x's dtype or its wide one.
	GroupedSumRows(x, offsets, out Tensor) error
}

// Dims returns the numbers of rows and of groups, and the sizes of a group's matrix.
func (m *GroupedMatMul) Dims() (rows, groups, columns, depth int) {
	return m.A.Shape[0], m.B.Shape[0], m.B.Shape[2], m.B.Shape[1]
}

// FLOPs counts the multiplications and additions of the products.
func (m *GroupedMatMul) FLOPs() float64 {
	rows, _, columns, depth := m.Dims()
	return 2 * float64(rows) * float64(columns) * float64(depth)
}

// Validate returns what is wrong with the problem, but for the values of Offsets: the argument,
// what it was and what it needs to be. Tensors may lack data.
func (m *GroupedMatMul) Validate() error {
	if m == nil {
		return errNoProblem
	}
	if err := m.A.validateMatrices("a"); err != nil {
		return err
	}
	if err := m.B.validateMatrices("b"); err != nil {
		return err
	}
	half := m.B.DType == BF16 || m.B.DType == F16
	switch {
	case len(m.A.Shape) != 2:
		return fmt.Errorf("a has shape %v, it needs two axes (rows, depth)", m.A.Shape)
	case len(m.B.Shape) != 3:
		return fmt.Errorf("b has shape %v, it needs three axes (groups, depth, columns)", m.B.Shape)
	case m.B.DType != m.A.DType && !(half && m.A.DType == F32):
		return fmt.Errorf("b is %v, a is %v: they need one dtype", m.B.DType, m.A.DType)
	case m.B.Shape[1] != m.A.Shape[1]:
		return fmt.Errorf("b has matrices of %d rows, they need a's %d columns: a is %v, b is %v", m.B.Shape[1], m.A.Shape[1], m.A.Shape, m.B.Shape)
	}
	if m.Bias.IsSet() {
		own := [2]DType{m.A.DType, m.A.DType.Wide()}
		switch bias := m.Bias; {
		case len(bias.Shape) != 2 || bias.Shape[0] != m.B.Shape[0] || bias.Shape[1] != m.B.Shape[2]:
			return fmt.Errorf("bias has shape %v, it needs (%d, %d): a row for each of b's matrices", bias.Shape, m.B.Shape[0], m.B.Shape[2])
		case bias.DType != own[0] && bias.DType != own[1]:
			return fmt.Errorf("bias is %v, it needs to be %s", bias.DType, either(own))
		}
	}
	if err := validateOffsets(m.Offsets, m.B.Shape[0]); err != nil {
		return err
	}
	return m.Precision.validateSixteenBits()
}

// validateOffsets checks the shape and the type of offsets.
func validateOffsets(t Tensor, groups int) error {
	if t.DType != I32 || len(t.Shape) != 1 || t.Shape[0] != groups+1 {
		return fmt.Errorf("offsets is %v of shape %v, it needs to be int32 of shape [%d]: one more than groups", t.DType, t.Shape, groups+1)
	}
	return nil
}

// offsetsOperand is the operand of offsets.
func offsetsOperand(t Tensor) operand {
	return operand{name: "offsets", tensor: t, shape: t.Shape, dtypes: [2]DType{I32}, layout: dense}
}

// Check returns what is wrong with a call of GroupedMatMul.
func (m *GroupedMatMul) Check(c Tensor) error {
	if err := m.Validate(); err != nil {
		return err
	}
	rows, _, columns, _ := m.Dims()
	own := [2]DType{m.A.DType, m.A.DType.Wide()}
	return checkOperands(
		operand{name: "a", tensor: m.A, shape: m.A.Shape, dtypes: own},
		operand{name: "b", tensor: m.B, shape: m.B.Shape, dtypes: [2]DType{m.B.DType}},
		operand{name: "bias", tensor: m.Bias, shape: m.Bias.Shape, dtypes: own, layout: contiguousRows, isOptional: true},
		offsetsOperand(m.Offsets),
		operand{name: "c", tensor: c, shape: []int{rows, columns}, dtypes: own, layout: writtenRows},
	)
}

// CheckGradient returns what is wrong with a call of GroupedMatMulGradient.
func (m *GroupedMatMul) CheckGradient(dC, dB Tensor) error {
	if err := m.Validate(); err != nil {
		return err
	}
	rows, _, columns, _ := m.Dims()
	return checkOperands(
		operand{name: "a", tensor: m.A, shape: m.A.Shape, dtypes: [2]DType{m.A.DType}},
		offsetsOperand(m.Offsets),
		operand{name: "dC", tensor: dC, shape: []int{rows, columns}, dtypes: [2]DType{m.A.DType}},
		ownOrWide("dB", dB, m.B.Shape, m.A.DType),
	)
}

// CheckGroupedSumRows returns what is wrong with a call of GroupedSumRows.
func CheckGroupedSumRows(x, offsets, out Tensor) error {
	if err := x.validateFloat("x"); err != nil {
		return err
	}
	if len(x.Shape) != 2 || len(out.Shape) != 2 {
		return fmt.Errorf("x has shape %v and out %v, they need two axes each", x.Shape, out.Shape)
	}
	if err := validateOffsets(offsets, out.Shape[0]); err != nil {
		return err
	}
	return checkOperands(like("x", x, x.Shape, x.DType), offsetsOperand(offsets), ownOrWide("out", out, []int{out.Shape[0], x.Shape[1]}, x.DType))
}
