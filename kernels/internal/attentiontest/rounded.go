package attentiontest

import "github.com/stheno-ml/stheno/kernels/reference"

// Rounding is arithmetic that is coarser than float32.
type Rounding struct {
	Operand func(float32) float32 // as in reference.Arithmetic
	Result  func(float32) float32
	Unit    float64 // the distance from 1 to the next larger operand
}

// Round makes every value of the inputs one that round leaves as it is, which a test of 16-bit
// tensors begins with.
func (p *Problem[T]) Round(round func(float32) float32) {
	for i, b := range p.inputs {
		for j, x := range b.data {
			b.data[j] = T(round(float32(x)))
		}
		copy(p.inputsBefore[i], b.data)
	}
	p.expected = nil
}

// CheckRounded is [Problem.Check] for a kernel whose arithmetic is coarser than the tensors' type:
// its errors are compared with those of an unfused program in that arithmetic, which stores the
// scores, the probabilities and their gradients.
func CheckRounded(p *Problem[float32], r *Rounding) error {
	Expect(p, r)
	return p.Check()
}

// Expect computes what the results will be compared with: in the arithmetic of r, or in float32 if
// r is nil. The checks do this themselves; but it takes much longer than a device needs, and
// problems can do it beside each other.
func Expect(p *Problem[float32], r *Rounding) {
	if p.expected != nil && p.expected.rounding == r {
		return
	}
	var m reference.Arithmetic[float32]
	if r != nil {
		m = reference.Arithmetic[float32]{Operand: r.Operand, Result: r.Result}
	}
	p.expected = &expected{ref: compute(p, reference.Arithmetic[float64]{}), pt: compute(p, m), rounding: r}
}
