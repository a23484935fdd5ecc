package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Pairing says which two dimensions of a head RoPE rotates together.
type Pairing int

const (
	HalfSplit   Pairing = iota // d and d + RotaryDim/2, as GPT-NeoX and Llama do
	Interleaved                // 2d and 2d + 1, as GPT-J and the original do
)

// RoPE is the rotary position embedding. Pair d of row t is rotated by the angle
//
//	θ = (Offset + p_t)/(PositionScale·Divisors_d) · Base^(−2d/RotaryDim)
//	y₁ = Amplitude·(x₁·cos θ − x₂·sin θ)      y₂ = Amplitude·(x₂·cos θ + x₁·sin θ)
//
// where p_t is t, or what Positions says, so that a product of a query and a key depends on the
// distance of their positions alone. The zero value is Llama's.
type RoPE struct {
	Pairing       Pairing
	Offset        int     // the position of the first row: how many tokens a cache already holds
	Positions     Tensor  // (B, S), int32 or int64, any numbers: p of each row of each batch item; left out: t
	Base          float64 // 0 means 10000
	PositionScale float64 // positions are divided by it (linear scaling, to stretch a context); 0 means 1
	RotaryDim     int     // how many leading dimensions are rotated, the others are copied; 0 means all

	// Divisors slow down the pairs one by one, which is how Llama 3, YaRN and LongRoPE stretch a
	// context; nil means 1 for each. Amplitude multiplies what is rotated, which YaRN and LongRoPE
	// do as well; 0 means 1.
	Divisors  []float64
	Amplitude float64
}

// RoPEKernels rotate heads. x and y are (B, H, S, D) of one dtype with contiguous rows; y may be x
// itself. Angles do not depend on the dtype: 16-bit rows are rotated in float32 and rounded once.
type RoPEKernels interface {
	// RoPEForward computes y from x.
	RoPEForward(r *RoPE, x, y Tensor) error
	// RoPEBackward computes dx from dy: the rotation by −θ, with the same amplitude.
	RoPEBackward(r *RoPE, dy, dx Tensor) error
}

// Dim returns how many dimensions of a head of size d are rotated.
func (r *RoPE) Dim(d int) int {
	if r.RotaryDim == 0 {
		return d
	}
	return r.RotaryDim
}

// Frequency returns the angle by which a pair turns from one position to the next, for heads of
// which dim dimensions are rotated: θ is Offset + t times it.
func (r *RoPE) Frequency(pair, dim int) float64 {
	base, scale := r.Base, r.PositionScale
	if base == 0 {
		base = 10000
	}
	if scale == 0 {
		scale = 1
	}
	if r.Divisors != nil {
		scale *= r.Divisors[pair]
	}
	return math.Pow(base, -2*float64(pair)/float64(dim)) / scale
}

// EffectiveAmplitude is Amplitude, or 1 where Amplitude is 0.
func (r *RoPE) EffectiveAmplitude() float64 {
	if r.Amplitude == 0 {
		return 1
	}
	return r.Amplitude
}

// Equal reports whether two rotations are the same, apart from the rows' positions.
func (r *RoPE) Equal(other *RoPE) bool {
	return r.Pairing == other.Pairing && r.Offset == other.Offset && r.Base == other.Base && r.PositionScale == other.PositionScale &&
		r.RotaryDim == other.RotaryDim && r.Amplitude == other.Amplitude && slices.Equal(r.Divisors, other.Divisors)
}

// CheckForward returns what is wrong with a call of RoPEForward.
func (r *RoPE) CheckForward(x, y Tensor) error { return r.check(x, "x", y, "y") }

// CheckBackward returns what is wrong with a call of RoPEBackward.
func (r *RoPE) CheckBackward(dy, dx Tensor) error { return r.check(dy, "dy", dx, "dx") }

func (r *RoPE) check(from Tensor, fromName string, to Tensor, toName string) error {
	if err := r.Validate(from, fromName); err != nil {
		return err
	}
	if r.Positions.IsSet() {
		if err := checkOperands(indices("positions", r.Positions)); err != nil {
			return err
		}
	}
	return checkAlike(from, fromName, operandList{{fromName, from}}, operandList{{toName, to}})
}

// Validate returns what is wrong with the options for a tensor of that name, naming the argument,
// what it was and what it needs to be, or nil.
func (r *RoPE) Validate(x Tensor, name string) error {
	if r == nil {
		return errNoProblem
	}
	if err := x.validateRows(name); err != nil {
		return err
	}
	d := x.Shape[3]
	switch {
	case r.Pairing != HalfSplit && r.Pairing != Interleaved:
		return fmt.Errorf("pairing is %d, it needs to be HalfSplit or Interleaved", r.Pairing)
	case r.Offset < 0:
		return fmt.Errorf("offset is %d, it cannot be negative", r.Offset)
	case !(r.Base >= 0) || math.IsInf(r.Base, 0):
		return fmt.Errorf("base is %v, it needs to be positive, or 0 for 10000", r.Base)
	case !(r.PositionScale >= 0) || math.IsInf(r.PositionScale, 0):
		return fmt.Errorf("position scale is %v, it needs to be positive, or 0 for 1", r.PositionScale)
	case r.RotaryDim < 0 || r.RotaryDim > d:
		return fmt.Errorf("rotary dim is %d, it needs to be from 0 to %s's head size of %d", r.RotaryDim, name, d)
	case r.Dim(d)%2 != 0:
		return fmt.Errorf("%d dimensions are to be rotated, it needs to be an even number", r.Dim(d))
	case !(r.Amplitude >= 0) || math.IsInf(r.Amplitude, 0):
		return fmt.Errorf("amplitude is %v, it needs to be positive, or 0 for 1", r.Amplitude)
	case r.Divisors != nil && len(r.Divisors) != r.Dim(d)/2:
		return fmt.Errorf("there are %d divisors, it needs one for each of the %d pairs", len(r.Divisors), r.Dim(d)/2)
	}
	if err := validateNumber("amplitude", r.Amplitude, x.DType); err != nil {
		return err
	}
	if p := r.Positions; p.IsSet() {
		if err := p.validateIndices("positions"); err != nil {
			return err
		}
		if want := []int{x.Shape[0], x.Shape[2]}; !slices.Equal(p.Shape, want) {
			return fmt.Errorf("positions has shape %v, it needs one for each of %s's rows in a batch item: %v", p.Shape, name, want)
		}
	}
	for pair, divisor := range r.Divisors {
		if !(divisor > 0) || math.IsInf(divisor, 0) {
			return fmt.Errorf("divisor %d is %v, it needs to be positive", pair, divisor)
		}
	}
	return nil
}
