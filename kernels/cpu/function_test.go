package cpu_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestFunctions(t *testing.T) { bothTypes(t, testFunctions[float32], testFunctions[float64]) }

func testFunctions[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		x, dy, y, dx := f(), f(), f(), f()
		x.each(func(at *T) { *at = T(math.Exp(float64(*at))) })
		for _, function := range kernels.Functions() {
			if function == kernels.Abs {
				x.each(func(at *T) { *at -= 1 })
			}
			refY, refDX := reference.Function(function, x.values(), dy.values())
			ptY, ptDX := reference.Function(function, x.typed(), dy.typed())
			verify[T](t, function.String()+" "+name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
				err := errors.Join(b.Apply(function, x.Tensor, y.Tensor), b.ApplyBackward(function, x.Tensor, dy.Tensor, dx.Tensor))
				return []result{resultOf("y", y, refY, ptY), resultOf("dx", dx, refDX, ptDX)}, err
			})
		}
		verify[T](t, "x − 0.3 "+name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			err := b.AddScalar(-0.3, x.Tensor, y.Tensor)
			return []result{resultOf("y", y, reference.AddScalar(-0.3, x.values()), reference.AddScalar(-0.3, x.typed()))}, err
		})
	}
}

// Zeros, infinities and NaN give what IEEE's arithmetic gives of each equation.
func TestFunctionsOfSpecialNumbers(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	x := []float64{0, 1, -1, inf, -inf, nan, 1000}
	for f, want := range map[kernels.Function][2][]float64{
		kernels.Exp:  {{1, math.E, 1 / math.E, inf, 0, nan, inf}, {1, math.E, 1 / math.E, inf, 0, nan, inf}},
		kernels.Log:  {{-inf, 0, nan, inf, nan, nan, math.Log(1000)}, {inf, 1, -1, 0, 0, nan, 1e-3}},
		kernels.Sqrt: {{0, 1, nan, inf, nan, nan, math.Sqrt(1000)}, {inf, 0.5, nan, 0, nan, nan, 0.5 / math.Sqrt(1000)}},
		kernels.Abs:  {{0, 1, 1, inf, inf, nan, 1000}, {0, 1, -1, 1, -1, 0, 1}},
	} {
		one, y, dx := []float64{1, 1, 1, 1, 1, 1, 1}, make([]float64, len(x)), make([]float64, len(x))
		of := func(list []float64) kernels.Tensor { return kernels.Of(list, len(list)) }
		if err := errors.Join(cpu.New().Apply(f, of(x), of(y)), cpu.New().ApplyBackward(f, of(x), of(one), of(dx))); err != nil {
			t.Fatal(err)
		}
		for i := range x {
			for n, got := range []float64{y[i], dx[i]} {
				if w := want[n][i]; math.IsNaN(w) != math.IsNaN(got) || !math.IsNaN(w) && math.Abs(got-w) > 1e-12 && got != w {
					t.Errorf("%v of %v is %v and its slope %v, want %v and %v", f, x[i], y[i], dx[i], want[0][i], want[1][i])
				}
			}
		}
	}
}

func TestDiv(t *testing.T) { bothTypes(t, testDiv[float32], testDiv[float64]) }

func testDiv[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		a, divisor, dc, c, da, db := f(), f(), f(), f(), f(), f()
		divisor.each(func(at *T) { *at = T(math.Copysign(math.Abs(float64(*at))+0.1, float64(*at))) })
		refC, refA, refB := reference.Div(a.values(), divisor.values(), dc.values())
		ptC, ptA, ptB := reference.Div(a.typed(), divisor.typed(), dc.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			err := errors.Join(b.Div(a.Tensor, divisor.Tensor, c.Tensor), b.DivBackward(a.Tensor, divisor.Tensor, dc.Tensor, da.Tensor, db.Tensor))
			return []result{resultOf("c", c, refC, ptC), resultOf("da", da, refA, ptA), resultOf("db", db, refB, ptB)}, err
		})
	}
}

func TestSoftmax(t *testing.T) { bothTypes(t, testSoftmax[float32], testSoftmax[float64]) }

func testSoftmax[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		x, dy, y, dx := f(), f(), f(), f()
		x.each(func(at *T) { *at *= 3 })
		refY, refDX := reference.Softmax(x.Tensor, dy.values())
		ptY, ptDX := reference.Softmax(x.Tensor, dy.typed())
		largest := 0.0 // of what a gradient is a difference of
		for i, dy := range dy.values() {
			largest = max(largest, math.Abs(refY[i]*dy))
		}
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.SoftmaxForward(x.Tensor, y.Tensor); err != nil {
				return nil, err
			}
			err := b.SoftmaxBackward(y.Tensor, dy.Tensor, dx.Tensor)
			gradient := resultOf("dx", dx, refDX, ptDX)
			gradient.terms = largest
			return []result{resultOf("y", y, refY, ptY), gradient}, err
		})
	}
}

func TestFunctionErrors(t *testing.T) {
	b, x := cpu.New(), kernels.Of(make([]float32, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: function: function is 9, it needs to be Exp, Log, Sqrt or Abs", b.Apply(9, x, x)},
		{"cpu: function backward: dy is missing, it needs shape [2 3]", b.ApplyBackward(kernels.Exp, x, kernels.Tensor{}, x)},
		{"cpu: add scalar: number is NaN, it needs to be finite", b.AddScalar(math.NaN(), x, x)},
		{"cpu: div: b is missing, it needs shape [2 3]", b.Div(x, kernels.Tensor{}, x)},
		{"cpu: softmax backward: dy is missing, it needs shape [2 3]", b.SoftmaxBackward(x, kernels.Tensor{}, x)},
	})
}

// Targets from 0 to 1 are copied, and the first other one is told, of a view too.
func TestBinaryTargets(t *testing.T) {
	const rows, columns, stride = 60, 90, 100
	fill := func() (x, y kernels.Tensor, wide, copied []float64) {
		wide, copied = make([]float64, rows*stride), make([]float64, rows*columns)
		for i := range wide {
			if wide[i] = float64(i%11) / 10; i%stride >= columns {
				wide[i] = 7
			}
		}
		return kernels.Of(wide, rows, stride).Slice(1, 0, columns), kernels.Of(copied, rows, columns), wide, copied
	}
	x, y, wide, copied := fill()
	if err := cpu.New().BinaryTargets(x, y); err != nil {
		t.Error(err)
	}
	for i, got := range copied {
		if want := wide[i/columns*stride+i%columns]; got != want {
			t.Fatalf("target %d is %v, want %v", i, got, want)
		}
	}
	for _, wrong := range []float64{1.5, -1e-300, math.NaN(), math.Inf(1)} {
		x, y, wide, _ := fill()
		wide[37*stride+5], wide[41*stride] = wrong, 2
		want := fmt.Sprintf("cpu: binary cross-entropy: targets[37 5] is %v, it needs to be from 0 to 1", wrong)
		if err := cpu.New().BinaryTargets(x, y); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
