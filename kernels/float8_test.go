package kernels_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// Every 8-bit number is a float32 and comes back as it was; of the numbers between two of them, the
// nearer is taken, and of two that are as near the one whose last bit is 0.
func TestFloat8(t *testing.T) {
	const largest, nan = 0x7E, 0x7F
	var before float32
	for i := range largest + 1 {
		x := kernels.Float8(i).Float32()
		if exponent, mantissa := i/8, float64(i%8); exponent == 0 && float64(x) != mantissa/512 || exponent > 0 && float64(x) != math.Ldexp(8+mantissa, exponent-10) {
			t.Fatalf("%#x is %v", i, x)
		}
		for _, sign := range []float32{1, -1} {
			of := func(code int) kernels.Float8 {
				if sign < 0 {
					code |= 0x80
				}
				return kernels.Float8(code)
			}
			check := func(x float32, want int) {
				if got := kernels.ToFloat8(float32(math.Copysign(float64(x), float64(sign)))); got != of(want) {
					t.Errorf("%v·%v: got %#x, want %#x", sign, x, got, of(want))
				}
			}
			check(x, i)
			if got := of(i).Float32(); got != sign*x || math.Signbit(float64(got)) != (sign < 0) {
				t.Errorf("%#x is %v, want %v", of(i), got, sign*x)
			}
			if i > 0 {
				middle := (before + x) / 2
				check(math.Nextafter32(middle, 0), i-1)
				check(middle, i-1+(i-1)%2)
				check(math.Nextafter32(middle, math.MaxFloat32), i)
			}
			check(math.MaxFloat32, largest)
			check(float32(math.Inf(1)), nan)
			check(float32(math.NaN()), nan)
		}
		before = x
	}
	if x := kernels.Float8(nan).Float32(); x == x {
		t.Errorf("%#x is %v, it needs to be NaN", nan, x)
	}
}

// A scale is a power of two that brings a magnitude just under 256, and its inverse.
func TestFloat8Scale(t *testing.T) {
	for _, most := range []float32{1e-30, 0.9999, 1, 1.5, 127, 128, 255.9, 256, 65504, math.MaxFloat32} {
		up, down := kernels.Float8Scale(most)
		if scaled := most * up; up*down != 1 || !(scaled >= 128 && scaled < 256) {
			t.Errorf("%v: scaled by %v it is %v, and back by %v", most, up, scaled, down)
		}
	}
	for _, most := range []float32{0, math.SmallestNonzeroFloat32} {
		if up, down := kernels.Float8Scale(most); up*down != 1 || most*up >= 256 {
			t.Errorf("%v: scales are %v and %v", most, up, down)
		}
	}
}
