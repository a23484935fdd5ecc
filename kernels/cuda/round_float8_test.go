//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// sidesTest is sides on a device and what the CPU makes of them.
type sidesTest struct{ here, there kernels.Float8Sides }

func newSidesTest(t *testing.T, d *cuda.Device, sides, depth int) (s sidesTest) {
	t.Helper()
	for _, on := range []struct {
		b  kernels.Backend
		to *kernels.Float8Sides
	}{{d, &s.here}, {&cpu.Backend{}, &s.there}} {
		made, err := kernels.NewFloat8Sides(sides, depth, on.b.Alloc)
		if err != nil {
			t.Fatal(err)
		}
		*on.to = made
	}
	return s
}

// compare compares numbers, and what lies beyond the depth, byte by byte.
func (s sidesTest) compare(t *testing.T, d *cuda.Device, what string) {
	t.Helper()
	most := download(t, d, s.here.Most)
	for i, want := range kernels.Host[float32](s.there.Most) {
		if most[i] != float64(want) {
			t.Errorf("%s: the largest of side %d is %v, want %v", what, i, most[i], want)
			return
		}
	}
	if !s.here.IsSet() {
		return
	}
	sides, stride := s.there.Numbers.Shape[0], kernels.Float8Stride(s.there.Numbers.Shape[1])
	got := make([]byte, sides*stride)
	whole := s.here.Numbers
	whole.Shape, whole.Strides = []int{sides, stride}, []int{stride, 1}
	if err := d.DownloadBytes(whole, unsafe.Pointer(unsafe.SliceData(got))); err != nil {
		t.Fatal(err)
	}
	want := unsafe.Slice((*byte)(s.there.Numbers.Data), sides*stride)
	for i, x := range got {
		if nan := x&0x7f == 0x7f && want[i]&0x7f == 0x7f; x != want[i] && !nan {
			t.Errorf("%s: number %d of side %d is %#x, want %#x", what, i%stride, i/stride, x, want[i])
			return
		}
	}
}

// Matrices that are rounded ahead of products have the CPU's numbers, whatever is asked for.
func TestRoundFloat8(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	random := rand.New(rand.NewPCG(5, 6))
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F32, kernels.F16} {
		for _, shape := range [][3]int{{1, 1, 0}, {3, 5, 0}, {5, 16, 3}, {260, 96, 8}, {1037, 520, 0}, {2100, 1100, 4}, {530, 2048, 0}, {77, 2560, 0}, {600, 5632, 0}, {300, 11264, 16}, {33, 14336, 0}, {9, 33000, 0}} {
			rows, columns, gap := shape[0], shape[1], shape[2]
			list := make([]float64, rows*(columns+gap))
			for i := range list {
				list[i] = roundedTo(dtype, random.NormFloat64()*math.Exp2(float64(random.IntN(8))))
			}
			if rows > 4 {
				list[2*(columns+gap)+1], list[3*(columns+gap)+2] = math.Inf(-1), math.NaN()
				clear(list[4*(columns+gap):][:columns])
			}
			x := upload(t, d, dtype, list, rows, columns+gap).Slice(1, 0, columns)
			wide := make([]float32, len(list))
			for i, v := range list {
				wide[i] = float32(v)
			}
			of := kernels.Of(wide, rows, columns+gap).Slice(1, 0, columns)
			what := fmt.Sprintf("%v %v", dtype, shape)
			r, c := newSidesTest(t, d, rows, columns), newSidesTest(t, d, columns, rows)
			host := &cpu.Backend{}
			err := host.RoundFloat8(of, kernels.Float8Rounding{Rows: r.there, ColumnMost: c.there.Most})
			if err == nil {
				err = host.TurnFloat8(r.there, c.there)
			}
			if err != nil {
				t.Fatal(err)
			}
			call := func(what string, rounding kernels.Float8Rounding) {
				t.Helper()
				for _, s := range []kernels.Float8Sides{r.here, c.here} {
					if err := d.Fill(s.Most, 1e30); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.RoundFloat8(x, rounding); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				r.compare(t, d, what)
			}
			call(what+", rows", kernels.Float8Rounding{Rows: r.here})
			call(what+", rows beside magnitudes", kernels.Float8Rounding{Rows: r.here, ColumnMost: c.here.Most})
			if err := d.TurnFloat8(r.here, c.here); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			c.compare(t, d, what+", columns")
		}
	}
}

// Rows and columns of any magnitudes are turned as the CPU turns them, with parts of them that have
// none but zeros.
func TestTurnFloat8Magnitudes(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	const rows, columns = 400, 300
	random := rand.New(rand.NewPCG(11, 12))
	for _, spread := range []int{0, 6, 10, 11, 12, 20, 60} {
		list := make([]float32, rows*columns)
		for row := range rows {
			for column := range columns {
				by := (row/3*7%(2*spread+1) - spread) + (column*5%(2*spread+1) - spread)
				list[row*columns+column] = float32(math.Ldexp(random.NormFloat64(), by))
				if row/128 == 1 && column/128 == 1 || row%50 == 7 || column == 9 {
					list[row*columns+column] = 0
				}
			}
		}
		list[5*columns+6] = float32(math.NaN())
		list[9*columns+9] = float32(math.Inf(1)) // in a column of zeros
		wide := make([]float64, len(list))
		for i, v := range list {
			wide[i] = float64(v)
		}
		x := upload(t, d, kernels.F32, wide, rows, columns)
		r, c := newSidesTest(t, d, rows, columns), newSidesTest(t, d, columns, rows)
		host := &cpu.Backend{}
		err := errors.Join(host.RoundFloat8(kernels.Of(list, rows, columns), kernels.Float8Rounding{Rows: r.there, ColumnMost: c.there.Most}),
			d.RoundFloat8(x, kernels.Float8Rounding{Rows: r.here, ColumnMost: c.here.Most}))
		if err = errors.Join(err, host.TurnFloat8(r.there, c.there), d.TurnFloat8(r.here, c.here)); err != nil {
			t.Fatal(err)
		}
		r.compare(t, d, fmt.Sprintf("magnitudes 2^±%d, rows", spread))
		c.compare(t, d, fmt.Sprintf("magnitudes 2^±%d, columns", spread))
	}
}

// Parts of sides are turned as whole ones are, and what cannot be read is refused.
func TestTurnFloat8OfParts(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	const rows, columns, from, to = 300, 150, 16, 211
	x := normalTest(t, d, rows, columns)
	r, c := newSidesTest(t, d, rows, columns), newSidesTest(t, d, columns, to-from)
	err := d.RoundFloat8(x, kernels.Float8Rounding{Rows: r.here, ColumnMost: c.here.Most})
	wide := kernels.Of(narrowTest(download(t, d, x)), rows, columns)
	if err == nil {
		err = (&cpu.Backend{}).RoundFloat8(wide, kernels.Float8Rounding{Rows: r.there, ColumnMost: c.there.Most})
	}
	if err == nil {
		err = (&cpu.Backend{}).TurnFloat8(r.there.Slice(from, to), c.there)
	}
	if err == nil {
		err = d.TurnFloat8(r.here.Slice(from, to), c.here)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.compare(t, d, "a part of the rows")
	moved := c.here
	moved.Numbers.Data = unsafe.Add(moved.Numbers.Data, 8)
	if err := d.TurnFloat8(r.here.Slice(from, to), moved); err == nil || !strings.Contains(err.Error(), "columns.numbers lies at") {
		t.Errorf("numbers at a multiple of 8: the error is %v", err)
	}
}

func narrowTest(list []float64) []float32 {
	narrow := make([]float32, len(list))
	for i, v := range list {
		narrow[i] = float32(v)
	}
	return narrow
}

// Products of what was rounded ahead have the bits of those that round.
func TestMatMulOfRoundedFloat8(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	const rows, in, out, cut = 300, 264, 520, 200
	// Numbers that are turned are those of the matrix if none is small.
	random := rand.New(rand.NewPCG(7, 8))
	tensor := func(rows, columns int) kernels.Tensor {
		list := make([]float64, rows*columns)
		for i := range list {
			list[i] = math.Copysign(0.1+math.Abs(random.NormFloat64()), random.NormFloat64())
		}
		return upload(t, d, kernels.BF16, list, rows, columns)
	}
	x, w, up, dy, both := tensor(rows, in), tensor(in, out), tensor(in, out), tensor(rows, out), tensor(in, 2*out)
	sides := func(x kernels.Tensor) (r, c kernels.Float8Sides) {
		r, err := kernels.NewFloat8Sides(x.Shape[0], x.Shape[1], d.Alloc)
		if err == nil {
			c, err = kernels.NewFloat8Sides(x.Shape[1], x.Shape[0], d.Alloc)
		}
		if err == nil {
			err = d.RoundFloat8(x, kernels.Float8Rounding{Rows: r, ColumnMost: c.Most})
		}
		if err == nil {
			err = d.TurnFloat8(r, c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r, c
	}
	ofX, acrossX := sides(x)
	ofW, acrossW := sides(w)
	_, acrossUp := sides(up)
	ofDY, acrossDY := sides(dy)
	_, acrossBoth := sides(both)
	gate := func(bUp kernels.Tensor, rounded kernels.Float8Sides) kernels.Gate {
		z := alloc(t, d, kernels.BF16, rows, 2*out)
		return kernels.Gate{BUp: bUp, RoundedBUp: rounded, Pre: z.Slice(1, 0, out), Up: z.Slice(1, out, 2*out)}
	}
	swapped := gate(both.Slice(1, 0, out), acrossBoth.Slice(0, out))
	swapped.Pre, swapped.Up = swapped.Up, swapped.Pre
	for name, m := range map[string]kernels.MatMul{
		"x·W":             {A: x, B: w, RoundedA: ofX},
		"x·W of both":     {A: x, B: w, RoundedA: ofX, RoundedB: acrossW},
		"dy·Wᵀ":           {A: dy, B: w.Permute(1, 0), RoundedA: ofDY, RoundedB: ofW},
		"xᵀ·dy":           {A: x.Permute(1, 0), B: dy, RoundedA: acrossX, RoundedB: acrossDY},
		"xᵀ·a part of dy": {A: x.Permute(1, 0), B: dy.Slice(1, cut, out), RoundedA: acrossX, RoundedB: acrossDY.Slice(cut, out)},
		"x·W, activated":  {A: x, B: w, RoundedA: ofX, Epilogue: kernels.Activate{Activation: kernels.SiLU}},
		"gated":           {A: x, B: w, RoundedA: ofX, Epilogue: gate(up, kernels.Float8Sides{})},
		"gated, of both":  {A: x, B: w, RoundedA: ofX, RoundedB: acrossW, Epilogue: gate(up, acrossUp)},
		"gated, of parts": {A: x, B: both.Slice(1, 0, out), RoundedB: acrossBoth.Slice(0, out), Epilogue: gate(both.Slice(1, out, 2*out), acrossBoth.Slice(out, 2*out))},
		"gated, swapped":  {A: x, B: both.Slice(1, out, 2*out), RoundedB: acrossBoth.Slice(out, 2*out), Epilogue: swapped},
	} {
		m.Precision = kernels.PrecisionFloat8
		var got [2][]float64
		for i := range got {
			c := alloc(t, d, kernels.BF16, m.OutputShape()...)
			if err := d.MatMul(&m, kernels.MatMulOutputs{C: c}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got[i] = download(t, d, c)
			m.RoundedA, m.RoundedB = kernels.Float8Sides{}, kernels.Float8Sides{}
			if e, ok := m.Epilogue.(kernels.Gate); ok {
				e.RoundedBUp = kernels.Float8Sides{}
				m.Epilogue = e
			}
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s: what was rounded ahead gives other bits", name)
		}
	}
}

// A gate and its gradients have the bits that they have where they are rounded apart.
func TestMatMulRoundsWhatItGives(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16, kernels.F32} {
		for _, shape := range [][2]int{{300, 96}, {129, 520}, {70, 1024}, {515, 5632}, {40, 14336}, {33, 40}} {
			rows, columns, depth := shape[0], shape[1], 64
			what := fmt.Sprintf("%v %v", dtype, shape)
			tensor := func(rows, columns int) kernels.Tensor { return typedTest(t, d, dtype, rows, columns) }
			a, w, up, z, u := tensor(rows, depth), tensor(depth, columns), tensor(depth, columns+16).Slice(1, 0, columns), tensor(rows, columns), tensor(rows, columns)
			if columns%32 == 0 {
				both := tensor(2*depth, columns)
				w, up = both.Slice(0, 0, depth), both.Slice(0, depth, 2*depth)
			}
			rounding := func(columns int) (r kernels.Float8Rounding, of [2]sidesTest) {
				of = [2]sidesTest{newSidesTest(t, d, rows, columns), newSidesTest(t, d, columns, rows)}
				return kernels.Float8Rounding{Rows: of[0].here, ColumnMost: of[1].here.Most}, of
			}
			// What is rounded beside C, what is not rounded, and what is rounded alone.
			const ways = 3
			var c, pre, other, both [ways]kernels.Tensor
			var first, second [ways][2]sidesTest
			for i := range ways {
				c[i], pre[i], other[i], both[i] = tensor(rows, columns), tensor(rows, columns), tensor(rows, columns), tensor(rows, 2*columns)
				gate := kernels.Gate{BUp: up, Pre: pre[i], Up: other[i]}
				gradient := kernels.GateGradient{Z: z, Up: u, DUp: both[i].Slice(1, columns, 2*columns)}
				if i != 1 {
					gate.Rounding, first[i] = rounding(columns)
					gradient.Rounding, second[i] = rounding(2 * columns)
					gate.Rounding.Alone, gradient.Rounding.Alone = i == 2, i == 2
				}
				m := kernels.MatMul{A: a, B: w, Epilogue: gate, Precision: kernels.PrecisionFloat8}
				err := d.MatMul(&m, kernels.MatMulOutputs{C: c[i]})
				if m.Epilogue = gradient; err == nil {
					err = d.MatMul(&m, kernels.MatMulOutputs{C: both[i].Slice(1, 0, columns)})
				}
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			for name, x := range map[string]struct {
				of    [ways]kernels.Tensor
				sides [ways][2]sidesTest
			}{"the gate": {c, first}, "its gradients": {both, second}} {
				got := download(t, d, x.of[0])
				if !slices.Equal(got, download(t, d, x.of[1])) {
					t.Errorf("%s: %s has other bits beside its rounding", what, name)
				}
				here := kernels.Of(narrowTest(got), x.of[0].Shape...)
				for _, i := range []int{0, 2} {
					s := x.sides[i]
					if err := (&cpu.Backend{}).RoundFloat8(here, kernels.Float8Rounding{Rows: s[0].there, ColumnMost: s[1].there.Most}); err != nil {
						t.Fatal(err)
					}
					s[0].compare(t, d, what+", rows of "+name)
					s[1].here.Numbers = kernels.Tensor{} // nothing was asked for
					s[1].compare(t, d, what+", columns' magnitudes of "+name)
				}
			}
		}
	}
}

// normalTest is a matrix of random numbers.
func normalTest(t *testing.T, d *cuda.Device, rows, columns int) kernels.Tensor {
	t.Helper()
	return typedTest(t, d, kernels.BF16, rows, columns)
}

func typedTest(t *testing.T, d *cuda.Device, dtype kernels.DType, rows, columns int) kernels.Tensor {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(rows), uint64(columns)))
	list := make([]float64, rows*columns)
	for i := range list {
		list[i] = random.NormFloat64()
	}
	return upload(t, d, dtype, list, rows, columns)
}
