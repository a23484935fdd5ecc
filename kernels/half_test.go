package kernels_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// Every 16-bit number is a float32 and comes back as it was; of the numbers between two of them,
// the nearer is taken, and of two that are as near the one whose last bit is 0.
func TestHalves(t *testing.T) {
	check := func(t *testing.T, infinity int, number func(uint16) float32, round func(float32) uint16) {
		for i := range infinity {
			x, next := number(uint16(i)), number(uint16(i+1))
			for _, sign := range []float32{1, -1} {
				bits := uint16(0)
				if sign < 0 {
					bits = 0x8000
				}
				if got := round(float32(math.Copysign(float64(x), float64(sign)))); got != uint16(i)|bits {
					t.Fatalf("%v: got %#x, want %#x", sign*x, got, uint16(i)|bits)
				}
				if i+1 == infinity {
					break // beyond the largest number lies infinity, tested below
				}
				middle, even := float32((float64(x)+float64(next))/2), uint16(i+i%2)
				for _, c := range []struct {
					x    float32
					want uint16
				}{{math.Nextafter32(middle, 0), uint16(i)}, {middle, even}, {math.Nextafter32(middle, math.MaxFloat32), uint16(i + 1)}} {
					if got := round(sign * c.x); got != c.want|bits && c.x > 0 {
						t.Fatalf("%v, between %v and %v: got %#x, want %#x", sign*c.x, x, next, got, c.want|bits)
					}
				}
			}
		}
		if got := round(float32(math.Inf(1))); got != uint16(infinity) {
			t.Errorf("infinity: got %#x", got)
		}
		if got := round(math.MaxFloat32); got != uint16(infinity) {
			t.Errorf("%v: got %#x, want infinity", math.MaxFloat32, got)
		}
		if got := number(round(float32(math.NaN()))); got == got {
			t.Errorf("NaN: got %v", got)
		}
	}
	t.Run("bfloat16", func(t *testing.T) {
		check(t, 0x7F80, func(i uint16) float32 { return kernels.BFloat16(i).Float32() }, func(x float32) uint16 { return uint16(kernels.ToBFloat16(x)) })
	})
	t.Run("float16", func(t *testing.T) {
		check(t, 0x7C00, func(i uint16) float32 { return kernels.Float16(i).Float32() }, func(x float32) uint16 { return uint16(kernels.ToFloat16(x)) })
	})
}
