package cpu_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestMatMulFloat8(t *testing.T) {
	slow.Emulated(t)
	for i, c := range slices.Concat(productCases(), weightCases()) {
		if c.precision = kernels.PrecisionFloat8; !leftOut(i) {
			checkProduct[float32](t, c, uint64(i))
		}
	}
}

// Rows of A and columns of B have scales of their own, whatever their magnitudes, and what is not
// finite spreads as far as it does in a product.
func TestMatMulFloat8Scales(t *testing.T) {
	const m, n, k = 70, 66, 40
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		h := &halfTest{t, dtype, newRandom(), nil}
		a, b := h.tensor(dtype, h.r.NormFloat64, m, k), h.tensor(dtype, h.r.NormFloat64, k, n)
		scaled := func(x kernels.Tensor, row, column int, by float64) {
			x = x.Slice(0, row, row+1).Slice(1, column, column+1)
			kernels.CopyHost(x, kernels.Of([]float64{numbers(x)[0] * by}, 1, 1))
		}
		for p := range k {
			scaled(a, 3, p, 1.0/256)
			scaled(a, 5, p, 0)
			scaled(b, p, 7, 128)
		}
		scaled(a, 60, 2, math.Inf(1))
		scaled(b, 9, 65, math.NaN())
		problem := &kernels.MatMul{A: a, B: b, Precision: kernels.PrecisionFloat8}
		out := kernels.MatMulOutputs{C: h.out(kernels.F32, m, n)}
		h.done((&cpu.Backend{Threads: 2}).MatMul(problem, out))
		want, _ := reference.MatMul[float64](problem, nil)
		for i, x := range numbers(out.C) {
			row, column := i/n, i%n
			if row == 60 || column == 65 {
				if !math.IsNaN(x) {
					t.Fatalf("%v: element (%d, %d) is %v, of a row or column with a NaN or an infinity", dtype, row, column, x)
				}
			} else if e := math.Abs(x - want[i]); !(e <= 1e-5*max(math.Abs(want[i]), math.Abs(want[i/n*n]))) {
				t.Fatalf("%v: element (%d, %d) is %v, want %v", dtype, row, column, x, want[i])
			}
		}
	}
}

func TestFloat8IsRefused(t *testing.T) {
	number := kernels.Of([]float64{1}, 1, 1)
	out := kernels.MatMulOutputs{C: kernels.Of([]float64{1}, 1, 1)}
	err := (&cpu.Backend{}).MatMul(&kernels.MatMul{A: number, B: number, Precision: kernels.PrecisionFloat8}, out)
	const want = "cpu: matmul: a is float64 and b is float64, for PrecisionFloat8 they need to be float32 or of 16 bits"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v: no device computes it", err)
	}
}

// What is rounded ahead of products is what they round, and products of it have their bits.
func TestRoundFloat8(t *testing.T) {
	const rows, columns, others, gap = 70, 37, 90, 3
	b := &cpu.Backend{Threads: 2}
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		h := &halfTest{t, dtype, newRandom(), nil}
		x := h.tensor(dtype, h.r.NormFloat64, rows, columns+gap).Slice(1, gap, columns+gap)
		kernels.CopyHost(x.Slice(0, 7, 8), kernels.Of(make([]float64, columns), 1, columns))
		kernels.CopyHost(x.Slice(0, 9, 10).Slice(1, 0, 1), kernels.Of([]float64{math.Inf(1)}, 1, 1))
		sides := func(n, depth int) kernels.Float8Sides {
			s, err := kernels.NewFloat8Sides(n, depth, b.Alloc)
			h.done(err)
			return s
		}
		r, c, known := sides(rows, columns), sides(columns, rows), sides(columns, rows)
		h.done(b.RoundFloat8(x, kernels.Float8Rounding{Rows: r, Columns: kernels.Float8Sides{Most: known.Most}}))
		h.done(b.RoundFloat8(x, kernels.Float8Rounding{Columns: known, Knows: true}))
		h.done(b.RoundFloat8(x, kernels.Float8Rounding{Columns: c}))
		for _, s := range []struct {
			name   string
			sides  kernels.Float8Sides
			matrix kernels.Tensor
		}{{"rows", r, x}, {"columns", c, x.Permute(1, 0)}, {"columns of known magnitudes", known, x.Permute(1, 0)}} {
			want := numbers(s.matrix)
			depth := s.matrix.Shape[1]
			for side := range s.matrix.Shape[0] {
				_, down := kernels.Float8Scale(kernels.Host[float32](s.sides.Most)[side])
				list := reference.RoundFloat8(want[side*depth : (side+1)*depth])
				for p, x := range list {
					got := float64(kernels.Float8(*(*uint8)(unsafe.Add(s.sides.Numbers.Data, side*s.sides.Numbers.Strides[0]+p))).Float32() * down)
					if got != x && !(math.IsNaN(got) && math.IsNaN(x)) {
						t.Fatalf("%v: %s: number %d of side %d is %v, want %v", dtype, s.name, p, side, got, x)
					}
				}
			}
		}
		y := h.tensor(dtype, h.r.NormFloat64, columns, others)
		dy := h.tensor(dtype, h.r.NormFloat64, rows, others)
		ofDY := sides(others, rows)
		h.done(b.RoundFloat8(dy, kernels.Float8Rounding{Columns: ofDY}))
		for name, m := range map[string]kernels.MatMul{
			"x·y":            {A: x, B: y, RoundedA: r},
			"xᵀ·dy":          {A: x.Permute(1, 0), B: dy, RoundedA: c, RoundedB: ofDY},
			"xᵀ·part of dy":  {A: x.Permute(1, 0), B: dy.Slice(1, 8, 20), RoundedA: c, RoundedB: ofDY.Slice(8, 20)},
			"x·y, activated": {A: x, B: y, RoundedA: r, Epilogue: kernels.Activate{Activation: kernels.SiLU}},
			"gated":          {A: x, B: y, RoundedA: r, Epilogue: kernels.Gate{BUp: y, Pre: h.out(dtype, rows, others), Up: h.out(dtype, rows, others)}},
		} {
			m.Precision = kernels.PrecisionFloat8
			var got [2][]float64
			for i := range got {
				out := kernels.MatMulOutputs{C: h.out(dtype, m.OutputShape()...)}
				h.done(b.MatMul(&m, out))
				got[i] = numbers(out.C)
				m.RoundedA, m.RoundedB = kernels.Float8Sides{}, kernels.Float8Sides{}
			}
			alike := func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }
			if !slices.EqualFunc(got[0], got[1], alike) {
				t.Errorf("%v: %s: what was rounded ahead gives other bits", dtype, name)
			}
		}
	}
}

// What a gate gives, and its gradients, can be rounded in the product's call.
func TestMatMulRoundsWhatItGives(t *testing.T) {
	const rows, depth, columns = 33, 20, 29
	b := &cpu.Backend{Threads: 2}
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		h := &halfTest{t, dtype, newRandom(), nil}
		sides := func(n, depth int) kernels.Float8Sides {
			s, err := kernels.NewFloat8Sides(n, depth, b.Alloc)
			h.done(err)
			return s
		}
		rounding := func(columns int) kernels.Float8Rounding {
			return kernels.Float8Rounding{Rows: sides(rows, columns), Columns: sides(columns, rows)}
		}
		tensor := func(shape ...int) kernels.Tensor { return h.tensor(dtype, h.r.NormFloat64, shape...) }
		a, w, c, both := tensor(rows, depth), tensor(depth, columns), h.out(dtype, rows, columns), h.out(dtype, rows, 2*columns)
		half := func(i int) kernels.Tensor { return both.Slice(1, i*columns, (i+1)*columns) }
		gate := kernels.Gate{BUp: tensor(depth, columns), Pre: h.out(dtype, rows, columns), Up: h.out(dtype, rows, columns), Rounding: rounding(columns)}
		gradient := kernels.GateGradient{Z: tensor(rows, columns), Up: tensor(rows, columns), DUp: half(1), Rounding: rounding(2 * columns)}
		h.done(b.MatMul(&kernels.MatMul{A: a, B: w, Epilogue: gate, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: c}))
		h.done(b.MatMul(&kernels.MatMul{A: a, B: w, Epilogue: gradient, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: half(0)}))
		for name, x := range map[string]struct {
			of  kernels.Tensor
			got kernels.Float8Rounding
		}{"the gate": {c, gate.Rounding}, "its gradients": {both, gradient.Rounding}} {
			want := rounding(x.of.Shape[1])
			h.done(b.RoundFloat8(x.of, want))
			for i, s := range [][2]kernels.Float8Sides{{x.got.Rows, want.Rows}, {x.got.Columns, want.Columns}} {
				bytes := func(s kernels.Float8Sides) []byte {
					return unsafe.Slice((*byte)(s.Numbers.Data), s.Numbers.Shape[0]*s.Numbers.Strides[0])
				}
				if !slices.Equal(bytes(s[0]), bytes(s[1])) || !slices.Equal(numbers(s[0].Most), numbers(s[1].Most)) || slices.Max(bytes(s[0])) == 0 {
					t.Errorf("%v: %s: rounding %d is not that of the result", dtype, name, i)
				}
			}
		}
		gradient.DUp = h.out(dtype, rows, columns)
		err := b.MatMul(&kernels.MatMul{A: a, B: w, Epilogue: gradient, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: c})
		if err == nil || !strings.Contains(err.Error(), "to be rounded they need to lie side by side") {
			t.Errorf("gradients that lie apart: the error is %v", err)
		}
		err = b.MatMul(&kernels.MatMul{A: a, B: w, Epilogue: gate}, kernels.MatMulOutputs{C: c})
		if err == nil || !strings.Contains(err.Error(), "it needs to be left out without PrecisionFloat8") {
			t.Errorf("without 8 bits: the error is %v", err)
		}
	}
}

func TestRoundFloat8Errors(t *testing.T) {
	b := &cpu.Backend{}
	x := kernels.Of(make([]float32, 12), 3, 4)
	sides := func(n, depth int) kernels.Float8Sides {
		s, err := kernels.NewFloat8Sides(n, depth, b.Alloc)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rows, columns := sides(3, 4), sides(4, 3)
	dense := rows
	dense.Numbers.Strides = []int{4, 1}
	for want, err := range map[string]error{
		"round float8: x is float64 of shape [1 1], it needs to be a matrix of float32 or of 16 bits":  b.RoundFloat8(kernels.Of([]float64{1}, 1, 1), kernels.Float8Rounding{}),
		"round float8: rows.numbers has shape [4 3] and strides [16 1], it needs shape [3 4]":          b.RoundFloat8(x, kernels.Float8Rounding{Rows: columns}),
		"round float8: rows.numbers has strides [4 1], it needs a stride of 16 on axis 0":              b.RoundFloat8(x, kernels.Float8Rounding{Rows: dense}),
		"round float8: rows.most is missing, it needs shape [3]":                                       b.RoundFloat8(x, kernels.Float8Rounding{Rows: kernels.Float8Sides{Numbers: rows.Numbers}}),
		"round float8: rows.numbers has shape [], it needs to be given beside rows.most":               b.RoundFloat8(x, kernels.Float8Rounding{Rows: kernels.Float8Sides{Most: rows.Most}}),
		"round float8: columns.numbers has shape [], it needs to be given where columns.most is known": b.RoundFloat8(x, kernels.Float8Rounding{Columns: kernels.Float8Sides{Most: columns.Most}, Knows: true}),
		"round float8: x has strides [1 4] for shape [4 3], it needs a stride of 1 on axis 1":          b.RoundFloat8(x.Permute(1, 0), kernels.Float8Rounding{}),
		"matmul: roundedA or roundedB is given, it needs to be left out without PrecisionFloat8":       b.MatMul(&kernels.MatMul{A: x, B: x.Permute(1, 0), RoundedA: rows}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 3, 3)}),
		"matmul: roundedB.numbers has shape [4 3] and strides [16 1], it needs shape [3 4]":            b.MatMul(&kernels.MatMul{A: x, B: x.Permute(1, 0), RoundedB: columns, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 3, 3)}),
		"matmul: a has shape [1 3 4] and b [4 3], beside roundedA or roundedB they need two axes":      b.MatMul(&kernels.MatMul{A: x.Reshape(1, 3, 4), B: x.Permute(1, 0), RoundedA: rows, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 1, 3, 3)}),
		"matmul: roundedB has shape [3 4], it needs to be left out where bUp is given": b.MatMul(&kernels.MatMul{A: x, B: x.Permute(1, 0), RoundedB: rows, Precision: kernels.PrecisionFloat8, Epilogue: kernels.Gate{
			BUp: x.Permute(1, 0), Pre: kernels.Of(make([]float32, 9), 3, 3), Up: kernels.Of(make([]float32, 9), 3, 3)}}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 3, 3)}),
	} {
		if err == nil || err.Error() != "cpu: "+want {
			t.Errorf("the error is %v, want cpu: %s", err, want)
		}
	}
}
