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

// float8Test makes sides, and reads them.
type float8Test struct {
	*halfTest
	b *cpu.Backend
}

func (f float8Test) sides(n, depth int) kernels.Float8Sides {
	s, err := kernels.NewFloat8Sides(n, depth, f.b.Alloc)
	f.done(err)
	return s
}

// rounded are the rows of a matrix.
func (f float8Test) rounded(x kernels.Tensor) kernels.Float8Sides {
	s := f.sides(x.Shape[0], x.Shape[1])
	f.done(f.b.RoundFloat8(x, kernels.Float8Rounding{Rows: s}))
	return s
}

// turned is the transpose of a matrix, its rows contiguous.
func (f float8Test) turned(x kernels.Tensor) kernels.Tensor {
	to := f.out(x.DType, x.Shape[1], x.Shape[0])
	kernels.CopyHost(to, x.Permute(1, 0))
	return to
}

// number is one of a side, as it was before it was scaled.
func (float8Test) number(s kernels.Float8Sides, side, p int) float64 {
	_, down := kernels.Float8Scale(kernels.Host[float32](s.Most)[side])
	return float64(kernels.Float8(*(*uint8)(unsafe.Add(s.Numbers.Data, side*s.Numbers.Strides[0]+p))).Float32() * down)
}

func alike(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }

// What is rounded ahead of products is what they round, and products of it have their bits.
func TestRoundFloat8(t *testing.T) {
	const rows, columns, others, gap = 70, 37, 90, 3
	b := &cpu.Backend{Threads: 2}
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		h := float8Test{&halfTest{t, dtype, newRandom(), nil}, b}
		x := h.tensor(dtype, h.r.NormFloat64, rows, columns+gap).Slice(1, gap, columns+gap)
		kernels.CopyHost(x.Slice(0, 7, 8), kernels.Of(make([]float64, columns), 1, columns))
		kernels.CopyHost(x.Slice(0, 9, 10).Slice(1, 0, 1), kernels.Of([]float64{math.Inf(1)}, 1, 1))
		r, most := h.sides(rows, columns), h.out(kernels.F32, columns)
		h.done(b.RoundFloat8(x, kernels.Float8Rounding{Rows: r, ColumnMost: most}))
		want := numbers(x)
		for side := range rows {
			for p, x := range reference.RoundFloat8(want[side*columns : (side+1)*columns]) {
				if got := h.number(r, side, p); !alike(got, x) {
					t.Fatalf("%v: number %d of row %d is %v, want %v", dtype, p, side, got, x)
				}
			}
		}
		for p, got := range numbers(most) {
			largest := 0.0
			for side := range rows {
				if x := math.Abs(want[side*columns+p]); x <= math.MaxFloat32 {
					largest = max(largest, x)
				}
			}
			if got != largest {
				t.Fatalf("%v: the largest of column %d is %v, want %v", dtype, p, got, largest)
			}
		}
		y, dy := h.tensor(dtype, h.r.NormFloat64, columns, others), h.tensor(dtype, h.r.NormFloat64, rows, others)
		c, ofY, ofDY := h.rounded(h.turned(x)), h.rounded(h.turned(y)), h.rounded(h.turned(dy))
		up := h.tensor(dtype, h.r.NormFloat64, columns, others)
		for name, m := range map[string]kernels.MatMul{
			"x·y":            {A: x, B: y, RoundedA: r},
			"xᵀ·dy":          {A: x.Permute(1, 0), B: dy, RoundedA: c, RoundedB: ofDY},
			"xᵀ·part of dy":  {A: x.Permute(1, 0), B: dy.Slice(1, 8, 20), RoundedA: c, RoundedB: ofDY.Slice(8, 20)},
			"x·y, activated": {A: x, B: y, RoundedA: r, Epilogue: kernels.Activate{Activation: kernels.SiLU}},
			"gated":          {A: x, B: y, RoundedA: r, RoundedB: ofY, Epilogue: kernels.Gate{BUp: up, RoundedBUp: h.rounded(h.turned(up)), Pre: h.out(dtype, rows, others), Up: h.out(dtype, rows, others)}},
		} {
			m.Precision = kernels.PrecisionFloat8
			var got [2][]float64
			for i := range got {
				out := kernels.MatMulOutputs{C: h.out(dtype, m.OutputShape()...)}
				h.done(b.MatMul(&m, out))
				got[i] = numbers(out.C)
				m.RoundedA, m.RoundedB = kernels.Float8Sides{}, kernels.Float8Sides{}
				if gate, ok := m.Epilogue.(kernels.Gate); ok {
					gate.RoundedBUp = kernels.Float8Sides{}
					m.Epilogue = gate
				}
			}
			if !slices.EqualFunc(got[0], got[1], alike) {
				t.Errorf("%v: %s: what was rounded ahead gives other bits", dtype, name)
			}
		}
	}
}

// Columns that are made of rows have a number of these, rounded by the column's scale. Numbers that
// are not small beside others of their row and their column are those of the matrix.
func TestTurnFloat8(t *testing.T) {
	const rows, columns, small = 70, 37, 1.0 / (1 << 13)
	b := &cpu.Backend{Threads: 2}
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		h := float8Test{&halfTest{t, dtype, newRandom(), nil}, b}
		x := h.tensor(dtype, func() float64 { return h.r.NormFloat64() * math.Exp2(float64(h.r.IntN(30))) }, rows, columns)
		kernels.CopyHost(x.Slice(0, 7, 8), kernels.Of(make([]float64, columns), 1, columns))
		kernels.CopyHost(x.Slice(1, 5, 6), kernels.Of(make([]float64, rows), rows, 1))
		kernels.CopyHost(x.Slice(0, 9, 10).Slice(1, 0, 1), kernels.Of([]float64{math.NaN()}, 1, 1))
		r, c := h.sides(rows, columns), h.sides(columns, rows)
		h.done(b.RoundFloat8(x, kernels.Float8Rounding{Rows: r, ColumnMost: c.Most}))
		h.done(b.TurnFloat8(r, c))
		mostOfRow, mostOfColumn, list := numbers(r.Most), numbers(c.Most), numbers(x)
		same, other := 0, 0
		for p := range columns {
			column := make([]float64, rows)
			for i := range column {
				column[i] = list[i*columns+p]
			}
			direct := reference.RoundFloat8(column)
			up, down := kernels.Float8Scale(float32(mostOfColumn[p]))
			for i := range rows {
				got := h.number(c, p, i)
				if want := float64(kernels.ToFloat8(float32(h.number(r, i, p))*up).Float32() * down); !alike(got, want) {
					t.Fatalf("%v: number %d of column %d is %v, want %v", dtype, i, p, got, want)
				}
				if size := math.Abs(column[i]); !(size < small*max(mostOfRow[i], mostOfColumn[p])) && !alike(got, direct[i]) {
					t.Fatalf("%v: number %d of column %d is %v, %v is rounded to %v", dtype, i, p, got, column[i], direct[i])
				}
				if alike(got, direct[i]) {
					same++
				} else {
					other++
				}
			}
			for i := rows; i < kernels.Float8Stride(rows); i++ {
				if x := h.number(c, p, i); x != 0 {
					t.Fatalf("%v: number %d of column %d, beyond the rows, is %v", dtype, i, p, x)
				}
			}
		}
		if same == 0 || other == 0 {
			t.Errorf("%v: %d numbers are those of the matrix and %d are not, the test needs both", dtype, same, other)
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
			return kernels.Float8Rounding{Rows: sides(rows, columns), ColumnMost: h.out(kernels.F32, columns)}
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
			bytes := func(s kernels.Float8Sides) []byte {
				return unsafe.Slice((*byte)(s.Numbers.Data), s.Numbers.Shape[0]*s.Numbers.Strides[0])
			}
			if got := bytes(x.got.Rows); !slices.Equal(got, bytes(want.Rows)) || !slices.Equal(numbers(x.got.Rows.Most), numbers(want.Rows.Most)) || slices.Max(got) == 0 {
				t.Errorf("%v: %s: the rows are not those of the result", dtype, name)
			}
			if got := numbers(x.got.ColumnMost); !slices.Equal(got, numbers(want.ColumnMost)) || slices.Max(got) == 0 {
				t.Errorf("%v: %s: the columns' largest are not those of the result", dtype, name)
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
	most := kernels.Of(make([]float32, 3), 3)
	for want, err := range map[string]error{
		"round float8: x is float64 of shape [1 1], it needs to be a matrix of float32 or of 16 bits": b.RoundFloat8(kernels.Of([]float64{1}, 1, 1), kernels.Float8Rounding{}),
		"round float8: rows.numbers has shape [4 3] and strides [16 1], it needs shape [3 4]":         b.RoundFloat8(x, kernels.Float8Rounding{Rows: columns}),
		"round float8: rows.numbers has strides [4 1], it needs a stride of 16 on axis 0":             b.RoundFloat8(x, kernels.Float8Rounding{Rows: dense}),
		"round float8: rows.most is missing, it needs shape [3]":                                      b.RoundFloat8(x, kernels.Float8Rounding{Rows: kernels.Float8Sides{Numbers: rows.Numbers}}),
		"round float8: rows.numbers is missing, it needs shape [3 4]":                                 b.RoundFloat8(x, kernels.Float8Rounding{Rows: kernels.Float8Sides{Most: rows.Most}}),
		"round float8: columnMost has shape [3] and strides [1], it needs shape [4]":                  b.RoundFloat8(x, kernels.Float8Rounding{Rows: rows, ColumnMost: most}),
		"turn float8: rows.numbers has shape [], it needs two axes":                                   b.TurnFloat8(kernels.Float8Sides{}, columns),
		"turn float8: columns.numbers has shape [3 4] and strides [16 1], it needs shape [4 3]":       b.TurnFloat8(rows, rows),
		"turn float8: columns.most is missing, it needs shape [4]":                                    b.TurnFloat8(rows, kernels.Float8Sides{Numbers: columns.Numbers}),
		"round float8: x has strides [1 4] for shape [4 3], it needs a stride of 1 on axis 1":         b.RoundFloat8(x.Permute(1, 0), kernels.Float8Rounding{Rows: columns}),
		"matmul: roundedA or roundedB is given, it needs to be left out without PrecisionFloat8":      b.MatMul(&kernels.MatMul{A: x, B: x.Permute(1, 0), RoundedA: rows}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 3, 3)}),
		"matmul: roundedB.numbers has shape [4 3] and strides [16 1], it needs shape [3 4]":           b.MatMul(&kernels.MatMul{A: x, B: x.Permute(1, 0), RoundedB: columns, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 3, 3)}),
		"matmul: a has shape [1 3 4] and b [4 3], beside roundedA or roundedB they need two axes":     b.MatMul(&kernels.MatMul{A: x.Reshape(1, 3, 4), B: x.Permute(1, 0), RoundedA: rows, Precision: kernels.PrecisionFloat8}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 1, 3, 3)}),
		"matmul: roundedB has shape [3 4] and roundedBUp [], both need to be given or neither": b.MatMul(&kernels.MatMul{A: x, B: x.Permute(1, 0), RoundedB: rows, Precision: kernels.PrecisionFloat8, Epilogue: kernels.Gate{
			BUp: x.Permute(1, 0), Pre: kernels.Of(make([]float32, 9), 3, 3), Up: kernels.Of(make([]float32, 9), 3, 3)}}, kernels.MatMulOutputs{C: kernels.Of(make([]float32, 9), 3, 3)}),
	} {
		if err == nil || err.Error() != "cpu: "+want {
			t.Errorf("the error is %v, want cpu: %s", err, want)
		}
	}
}
