package kernels

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Epilogue is what a product goes through before it is written to C: nil for nothing, or one of
// [Activate], [TimesSlope], [Gate], [GateGradient] and [Symmetric], as a value. Its tensors are
// inputs and outputs of the product's call. All but BUp have the shape of C and a contiguous last
// axis.
type Epilogue interface{ isEpilogue() }

// Activate computes C = act(Pre), Pre = A·B + bias.
type Activate struct {
	Activation Activation // none where the product accumulates
	Pre        Tensor     // receives what the activation is applied to, of A's dtype or its wide one; or left out
}

// TimesSlope computes C = (A·B + bias)·act'(Z): the gradient of Z, where act(Z) has the gradient
// A·B + bias.
type TimesSlope struct {
	Activation Activation
	Z          Tensor // of C's dtype
}

// Gate computes C = silu(Pre)·Up, Pre = A·B, Up = A·BUp. The product has no bias. Where products of
// further factors are added, each has a BUp too.
type Gate struct {
	BUp     Tensor // as B is
	Pre, Up Tensor // receive both products, of C's dtype
	// RoundedBUp is BUp as RoundedB is B: both are given, or neither.
	RoundedBUp Float8Sides
	// Rounding receives what C, then a matrix, is rounded to: [MatMulKernels] round it in the same
	// call. It is for products in PrecisionFloat8, or left out.
	Rounding Float8Rounding
}

// GateGradient computes C = (A·B + bias)·Up·silu'(Z) and DUp = (A·B + bias)·silu(Z): the gradients
// of Z and Up, where silu(Z)·Up has the gradient A·B + bias.
type GateGradient struct {
	Z, Up Tensor // of C's dtype
	DUp   Tensor // receives the gradient of Up, of C's dtype
	// Rounding is a [Gate]'s, of C and DUp, which then lie side by side.
	Rounding Float8Rounding
}

// Symmetric computes C = Pre + d·I, Pre = A·B, of a product that is symmetric: a matrix by its
// transpose, or two polynomials of one symmetric matrix. A device may compute half of it, and write
// that twice. The product has no bias, no further factors and does not accumulate.
type Symmetric struct {
	Diagonal float64 // d
	Pre      Tensor  // receives A·B, of C's dtype; or left out
}

func (Activate) isEpilogue()     {}
func (TimesSlope) isEpilogue()   {}
func (Gate) isEpilogue()         {}
func (GateGradient) isEpilogue() {}
func (Symmetric) isEpilogue()    {}

// Activation is that which the epilogue applies, or whose slope it takes; none for other epilogues.
func (m *MatMul) Activation() Activation {
	switch e := m.Epilogue.(type) {
	case Activate:
		return e.Activation
	case TimesSlope:
		return e.Activation
	}
	return NoActivation
}

// validateEpilogue returns what is wrong with the epilogue but for its tensors.
func (m *MatMul) validateEpilogue() error {
	leftOut := func(name string, t Tensor, where string) error {
		return fmt.Errorf("%s has shape %v, it needs to be left out %s", name, t.Shape, where)
	}
	const toAccumulate = "to accumulate"
	switch e := m.Epilogue.(type) {
	case nil:
		return nil
	case Activate:
		if m.Accumulate && e.Activation != NoActivation {
			return fmt.Errorf("activation is %v, it needs to be NoActivation to accumulate", e.Activation)
		}
		return e.Activation.Validate()
	case TimesSlope:
		if m.Accumulate {
			return leftOut("z", e.Z, toAccumulate)
		}
		return e.Activation.Validate()
	case Gate:
		switch {
		case m.Accumulate:
			return leftOut("bUp", e.BUp, toAccumulate)
		case m.Bias.IsSet():
			return leftOut("bias", m.Bias, "where bUp is given")
		}
		return nil
	case GateGradient:
		if m.Accumulate {
			return leftOut("z", e.Z, toAccumulate)
		}
		return nil
	case Symmetric:
		return m.validateSymmetric(e)
	default:
		return fmt.Errorf("epilogue is a %T, it needs to be an Activate, TimesSlope, Gate, GateGradient or Symmetric", e)
	}
}

func (m *MatMul) validateSymmetric(e Symmetric) error {
	rows, columns, _ := m.Dims()
	switch {
	case rows != columns:
		return fmt.Errorf("c has %d rows and %d columns, to be symmetric it needs as many of both", rows, columns)
	case m.Accumulate:
		return errors.New("accumulate is true, of a symmetric product it needs to be false")
	case m.Bias.IsSet():
		return fmt.Errorf("bias has shape %v, it needs to be left out of a symmetric product", m.Bias.Shape)
	case len(m.Plus) > 0:
		return fmt.Errorf("plus has %d factors, a symmetric product needs to have none", len(m.Plus))
	case math.IsNaN(e.Diagonal) || math.IsInf(e.Diagonal, 0):
		return fmt.Errorf("diagonal is %v, it needs to be finite", e.Diagonal)
	}
	return nil
}

// epilogueOperands lists the tensors of a valid epilogue, for a C of the given dtype.
func (m *MatMul) epilogueOperands(ofC DType) []operand {
	shape := m.OutputShape()
	switch e := m.Epilogue.(type) {
	case Activate:
		pre := writtenLike("pre", e.Pre, shape, m.A.DType).optional()
		pre.dtypes[1] = m.A.DType.Wide()
		return []operand{pre}
	case TimesSlope:
		return []operand{like("z", e.Z, shape, ofC)}
	case Gate:
		return []operand{
			{name: "bUp", tensor: e.BUp, shape: m.B.Shape, dtypes: [2]DType{m.B.DType}},
			writtenLike("pre", e.Pre, shape, ofC), writtenLike("up", e.Up, shape, ofC),
		}
	case GateGradient:
		return []operand{
			like("z", e.Z, shape, ofC), like("up", e.Up, shape, ofC), writtenLike("dUp", e.DUp, shape, ofC),
		}
	case Symmetric:
		return []operand{writtenLike("pre", e.Pre, shape, ofC).optional()}
	}
	return nil
}

// MatMulApart computes a product, those that are added to it, its epilogue and the sums of its
// columns by one kernel after the other: for devices and shapes that no kernel computes at once. It
// leaves A·B + bias and [Activate] alone, without Plus and ColumnSums, to the device's MatMul. If
// SumsOfB is asked for, it leaves all else to that.
func MatMulApart(b Backend, m *MatMul, out MatMulOutputs) error {
	if sums := out.SumsOfB; sums.IsSet() {
		out.SumsOfB = Tensor{}
		if err := b.MatMul(m, out); err != nil {
			return err
		}
		return b.SumRows(m.B, sums, false)
	}
	if err := matMulApart(b, m, out.C); err != nil || !out.ColumnSums.IsSet() {
		return err
	}
	return b.SumRows(out.C, out.ColumnSums, false)
}

func matMulApart(b Backend, m *MatMul, c Tensor) error {
	plain := *m
	plain.Epilogue = nil
	switch e := m.Epilogue.(type) {
	case Activate:
		if len(m.Plus) == 0 {
			return b.MatMul(m, MatMulOutputs{C: c})
		}
		return activateApart(b, &plain, e, c)
	case TimesSlope:
		if err := b.MatMul(&plain, MatMulOutputs{C: c}); err != nil {
			return err
		}
		return b.ActivateBackward(e.Activation, e.Z, c, c)
	case Gate:
		plain.Plus = make([]Factors, len(m.Plus))
		for i, f := range m.Plus {
			plain.Plus[i] = Factors{A: f.A, B: f.B}
		}
		if err := b.MatMul(&plain, MatMulOutputs{C: e.Pre}); err != nil {
			return err
		}
		plain.B, plain.RoundedB = e.BUp, e.RoundedBUp
		for i, f := range m.Plus {
			plain.Plus[i].B = f.BUp
		}
		if err := b.MatMul(&plain, MatMulOutputs{C: e.Up}); err != nil {
			return err
		}
		if err := b.SwiGLU(e.Pre, e.Up, c); err != nil || !e.Rounding.IsSet() {
			return err
		}
		return b.RoundFloat8(c, e.Rounding)
	case GateGradient:
		if err := b.MatMul(&plain, MatMulOutputs{C: c}); err != nil {
			return err
		}
		if err := b.SwiGLUBackward(e.Z, e.Up, c, c, e.DUp); err != nil || !e.Rounding.IsSet() {
			return err
		}
		both, _ := SideBySide(c, e.DUp)
		return b.RoundFloat8(both, e.Rounding)
	case Symmetric:
		return symmetricApart(b, &plain, e, c)
	}
	return sumApart(b, &plain, c)
}

// symmetricApart computes all of a symmetric product, and adds to the diagonal.
func symmetricApart(b Backend, plain *MatMul, e Symmetric, c Tensor) error {
	if err := b.MatMul(plain, MatMulOutputs{C: c}); err != nil {
		return err
	}
	if e.Pre.IsSet() {
		if err := b.Copy(e.Pre, c); err != nil {
			return err
		}
	}
	if e.Diagonal == 0 {
		return nil
	}
	last := len(c.Shape) - 1
	diagonal := c
	diagonal.Shape, diagonal.Strides = append(slices.Clone(c.Shape[:last]), 1), append(slices.Clone(c.Strides[:last]), 1)
	diagonal.Strides[last-1]++
	return b.AddScalar(e.Diagonal, diagonal, diagonal)
}

// activateApart computes an activation of a product to which others are added: the sums lie in Pre,
// or in C where that is the wider one.
func activateApart(b Backend, plain *MatMul, e Activate, c Tensor) error {
	z := c
	if e.Pre.IsSet() && (e.Pre.DType == c.DType || e.Pre.DType == c.DType.Wide()) {
		z = e.Pre
	}
	err := b.MatMul(plain, MatMulOutputs{C: z})
	switch {
	case err != nil || !e.Pre.IsSet() && e.Activation == NoActivation:
		return err
	case e.Pre.IsSet() && z.Data == c.Data:
		err = b.Copy(e.Pre, z)
	case e.Pre.IsSet() && (z.DType != c.DType || e.Activation == NoActivation):
		err, z = b.Copy(c, z), c
	}
	if err != nil || e.Activation == NoActivation {
		return err
	}
	return b.Activate(e.Activation, z, c)
}

// sumApart computes a product without an epilogue, and adds one after the other to it.
func sumApart(b Backend, m *MatMul, c Tensor) error {
	first := *m
	first.Plus = nil
	if err := b.MatMul(&first, MatMulOutputs{C: c}); err != nil {
		return err
	}
	for _, f := range m.Plus {
		if err := b.MatMul(&MatMul{A: f.A, B: f.B, Accumulate: true, Precision: m.Precision.OrSixteenBits()}, MatMulOutputs{C: c}); err != nil {
			return err
		}
	}
	return nil
}
