package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
	"pgregory.net/rapid"
)

func TestRoPE(t *testing.T) { bothTypes(t, testRoPE[float32], testRoPE[float64]) }

func testRoPE[T kernels.Float](t *testing.T) {
	for i, c := range []struct {
		shape [4]int
		gap   int
		o     kernels.RoPE
	}{
		{[4]int{1, 1, 1, 2}, 0, kernels.RoPE{}},
		{[4]int{2, 3, 5, 6}, 0, kernels.RoPE{}},
		{[4]int{1, 3, 97, 64}, 0, kernels.RoPE{Offset: 1000}},
		{[4]int{2, 3, 97, 128}, 3, kernels.RoPE{Base: 500000, PositionScale: 4}},
		{[4]int{1, 2, 33, 40}, 0, kernels.RoPE{RotaryDim: 10}},
		{[4]int{1, 2, 33, 5}, 0, kernels.RoPE{RotaryDim: 4}},
		{[4]int{1, 2, 7, 8}, 0, kernels.RoPE{Offset: 123456}},
		{[4]int{1, 0, 7, 8}, 0, kernels.RoPE{}},
		{[4]int{1, 3, 70, 40}, 0, kernels.RoPE{RotaryDim: 36, Divisors: divisors(18, 1), Amplitude: 1.25}},
		{[4]int{2, 3, 5, 6}, 0, kernels.RoPE{Offset: 3, Positions: int64s([]int{4, 0, 0, 1, 900, 7, 7, 7, 2, 1}, 2, 5)}},
		{[4]int{2, 2, 40, 64}, 0, kernels.RoPE{Positions: int32s(someTargets(kernels.CrossEntropyOptions{}, 80, 71), 2, 40)}},
		{[4]int{2, 1, 3, 10}, 2, kernels.RoPE{RotaryDim: 8, Positions: int64s([]int{-5, 1 << 20, 3, 0, 7, -1}, 2, 3)}},
		{[4]int{1, 3, 70, 40}, 0, kernels.RoPE{RotaryDim: 36, Divisors: divisors(18, 3), Amplitude: 1.25}},
	} {
		for _, c.o.Pairing = range []kernels.Pairing{kernels.HalfSplit, kernels.Interleaved} {
			r := newRandom()
			x, y, dx := newField[T](r, c.gap, c.shape[:]...), newField[T](r, c.gap, c.shape[:]...), newField[T](r, 0, c.shape[:]...)
			if i == 1 {
				x.memory[3] = T(math.NaN())
			}
			in := x.Tensor
			if i == 2 { // heads side by side
				in = newField[T](r, c.gap, c.shape[0], c.shape[2], c.shape[1], c.shape[3]).Permute(0, 2, 1, 3)
			}
			ref, pt := reference.RoPE[float64](&c.o, in), reference.RoPE[T](&c.o, in)
			refD, ptD := reference.RoPEGrad[float64](&c.o, in), reference.RoPEGrad[T](&c.o, in)
			verify[T](t, fmt.Sprintf("%+v shape=%v gap=%d seed=%d", c.o, c.shape, c.gap, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
				if err := b.RoPEForward(&c.o, in, y.Tensor); err != nil {
					return nil, err
				}
				err := b.RoPEBackward(&c.o, in, dx.Tensor)
				return []result{resultOf("y", y, ref, pt), resultOf("dx", dx, refD, ptD)}, err
			})
		}
	}
}

// divisors are n numbers that grow from 1.
func divisors(n int, by float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = 1 + by*float64(i)
	}
	return list
}

// Rotating keeps the length of a row and, in place, back again the row; and the product of a query
// with a key depends on how far apart they are alone.
func TestRoPEProperties(t *testing.T) {
	b := cpu.New()
	rotated := func(t *rapid.T, o kernels.RoPE, x []float64, position int) []float64 {
		o.Offset = position
		y := slices.Clone(x)
		view := kernels.Of(y, 1, 1, 1, len(y))
		if err := b.RoPEForward(&o, view, view); err != nil {
			t.Fatal(err)
		}
		return y
	}
	dot := func(x, y []float64) float64 {
		sum := 0.0
		for i := range x {
			sum += x[i] * y[i]
		}
		return sum
	}
	rapid.Check(t, func(t *rapid.T) {
		d := 2 * rapid.IntRange(1, 20).Draw(t, "pairs")
		o := kernels.RoPE{Pairing: kernels.Pairing(rapid.IntRange(0, 1).Draw(t, "pairing")), RotaryDim: 2 * rapid.IntRange(0, d/2).Draw(t, "rotary pairs")}
		numbers := rapid.SliceOfN(rapid.Float64Range(-3, 3), d, d)
		q, k := numbers.Draw(t, "q"), numbers.Draw(t, "k")
		m, n := rapid.IntRange(0, 500).Draw(t, "m"), rapid.IntRange(0, 500).Draw(t, "n")
		shift := rapid.IntRange(0, 500).Draw(t, "shift")
		qm, kn := rotated(t, o, q, m), rotated(t, o, k, n)
		size := 1 + dot(q, q) + dot(k, k)
		if e := dot(qm, qm) - dot(q, q); !(math.Abs(e) <= 1e-13*size) {
			t.Fatalf("the squared length changed by %.3g", e)
		}
		if e := dot(qm, kn) - dot(rotated(t, o, q, m+shift), rotated(t, o, k, n+shift)); !(math.Abs(e) <= 1e-12*size) {
			t.Fatalf("the product changed by %.3g with both moved by %d", e, shift)
		}
		o.Offset = m
		view := kernels.Of(qm, 1, 1, 1, d)
		if err := b.RoPEBackward(&o, view, view); err != nil {
			t.Fatal(err)
		}
		for i := range q {
			if e := qm[i] - q[i]; !(math.Abs(e) <= 1e-14*size) {
				t.Fatalf("rotated there and back, element %d changed by %.3g", i, e)
			}
		}
	})
}

func TestRoPEErrors(t *testing.T) {
	b, x := cpu.New(), kernels.Of(make([]float32, 12), 1, 2, 1, 6)
	odd := kernels.Of(make([]float32, 5), 1, 1, 1, 5)
	checkErrors(t, []errorCase{
		{"cpu: rope forward: x has shape [5], it needs four axes (batch, heads, length, head size)", b.RoPEForward(&kernels.RoPE{}, kernels.Of(make([]float32, 5), 5), x)},
		{"cpu: rope forward: 5 dimensions are to be rotated, it needs to be an even number", b.RoPEForward(&kernels.RoPE{}, odd, odd)},
		{"cpu: rope forward: 3 dimensions are to be rotated, it needs to be an even number", b.RoPEForward(&kernels.RoPE{RotaryDim: 3}, x, x)},
		{"cpu: rope backward: rotary dim is 8, it needs to be from 0 to dy's head size of 6", b.RoPEBackward(&kernels.RoPE{RotaryDim: 8}, x, x)},
		{"cpu: rope forward: offset is -1, it cannot be negative", b.RoPEForward(&kernels.RoPE{Offset: -1}, x, x)},
		{"cpu: rope forward: base is -2, it needs to be positive, or 0 for 10000", b.RoPEForward(&kernels.RoPE{Base: -2}, x, x)},
		{"cpu: rope forward: position scale is NaN, it needs to be positive, or 0 for 1", b.RoPEForward(&kernels.RoPE{PositionScale: math.NaN()}, x, x)},
		{"cpu: rope forward: pairing is 2, it needs to be HalfSplit or Interleaved", b.RoPEForward(&kernels.RoPE{Pairing: 2}, x, x)},
		{"cpu: rope forward: there are 2 divisors, it needs one for each of the 3 pairs", b.RoPEForward(&kernels.RoPE{Divisors: []float64{1, 2}}, x, x)},
		{"cpu: rope forward: divisor 1 is 0, it needs to be positive", b.RoPEForward(&kernels.RoPE{Divisors: []float64{1, 0, 1}}, x, x)},
		{"cpu: rope forward: amplitude is -1, it needs to be positive, or 0 for 1", b.RoPEForward(&kernels.RoPE{Amplitude: -1}, x, x)},
		{"cpu: rope forward: amplitude is 1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", b.RoPEForward(&kernels.RoPE{Amplitude: 1e39}, x, x)},
		{"cpu: rope backward: amplitude is 1e-46, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", b.RoPEBackward(&kernels.RoPE{Amplitude: 1e-46}, x, x)},
		{"cpu: rope backward: dx is missing, it needs shape [1 2 1 6]", b.RoPEBackward(&kernels.RoPE{}, x, kernels.Tensor{})},
	})
}
