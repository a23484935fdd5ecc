//go:build gpu

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
			r, c, m := newSidesTest(t, d, rows, columns), newSidesTest(t, d, columns, rows), newSidesTest(t, d, columns, rows)
			host := &cpu.Backend{}
			if err := host.RoundFloat8(of, kernels.Float8Rounding{Rows: r.there, Columns: c.there}); err != nil {
				t.Fatal(err)
			}
			call := func(what string, rounding kernels.Float8Rounding) {
				t.Helper()
				for _, s := range []kernels.Float8Sides{r.here, c.here} {
					if err := d.Fill(s.Most, 1e30); err != nil {
						t.Fatal(err)
					}
				}
				if rounding.Knows {
					if err := d.Copy(rounding.Columns.Most, m.here.Most); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.RoundFloat8(x, rounding); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			call(what, kernels.Float8Rounding{Rows: r.here, Columns: c.here})
			r.compare(t, d, what+", rows of both")
			c.compare(t, d, what+", columns of both")
			call(what, kernels.Float8Rounding{Rows: r.here})
			r.compare(t, d, what+", rows")
			call(what, kernels.Float8Rounding{Columns: c.here})
			c.compare(t, d, what+", columns")
			m.here.Numbers, m.there = kernels.Tensor{}, c.there
			call(what, kernels.Float8Rounding{Rows: r.here, Columns: m.here})
			r.compare(t, d, what+", rows beside magnitudes")
			m.compare(t, d, what+", magnitudes")
			call(what, kernels.Float8Rounding{Columns: c.here, Knows: true})
			c.compare(t, d, what+", columns of known magnitudes")
		}
	}
}

// Products of what was rounded ahead have the bits of those that round.
func TestMatMulOfRoundedFloat8(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	const rows, in, out, cut = 300, 264, 520, 200
	x, w, dy := normalTest(t, d, rows, in), normalTest(t, d, in, out), normalTest(t, d, rows, out)
	sides := func(t2 kernels.Tensor) (r, c kernels.Float8Sides) {
		r, err := kernels.NewFloat8Sides(t2.Shape[0], t2.Shape[1], d.Alloc)
		if err == nil {
			c, err = kernels.NewFloat8Sides(t2.Shape[1], t2.Shape[0], d.Alloc)
		}
		if err == nil {
			err = d.RoundFloat8(t2, kernels.Float8Rounding{Rows: r, Columns: c})
		}
		if err != nil {
			t.Fatal(err)
		}
		return r, c
	}
	ofX, acrossX := sides(x)
	ofW, acrossW := sides(w)
	ofDY, acrossDY := sides(dy)
	for name, m := range map[string]kernels.MatMul{
		"x·W":             {A: x, B: w, RoundedA: ofX},
		"x·W of both":     {A: x, B: w, RoundedA: ofX, RoundedB: acrossW},
		"dy·Wᵀ":           {A: dy, B: w.Permute(1, 0), RoundedA: ofDY, RoundedB: ofW},
		"xᵀ·dy":           {A: x.Permute(1, 0), B: dy, RoundedA: acrossX, RoundedB: acrossDY},
		"xᵀ·a part of dy": {A: x.Permute(1, 0), B: dy.Slice(1, cut, out), RoundedA: acrossX, RoundedB: acrossDY.Slice(cut, out)},
		"x·W, activated":  {A: x, B: w, RoundedA: ofX, Epilogue: kernels.Activate{Activation: kernels.SiLU}},
		"gated":           {A: x, B: w, RoundedA: ofX, Epilogue: kernels.Gate{BUp: normalTest(t, d, in, out), Pre: alloc(t, d, kernels.BF16, rows, out), Up: alloc(t, d, kernels.BF16, rows, out)}},
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
				return kernels.Float8Rounding{Rows: of[0].here, Columns: of[1].here}, of
			}
			var c, pre, other, both [2]kernels.Tensor
			first, ofFirst := rounding(columns)
			second, ofSecond := rounding(2 * columns)
			for i := range 2 {
				c[i], pre[i], other[i], both[i] = tensor(rows, columns), tensor(rows, columns), tensor(rows, columns), tensor(rows, 2*columns)
				gate := kernels.Gate{BUp: up, Pre: pre[i], Up: other[i]}
				gradient := kernels.GateGradient{Z: z, Up: u, DUp: both[i].Slice(1, columns, 2*columns)}
				if i == 0 {
					gate.Rounding, gradient.Rounding = first, second
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
				of    [2]kernels.Tensor
				sides [2]sidesTest
			}{"the gate": {c, ofFirst}, "its gradients": {both, ofSecond}} {
				got := download(t, d, x.of[0])
				if !slices.Equal(got, download(t, d, x.of[1])) {
					t.Errorf("%s: %s has other bits beside its rounding", what, name)
				}
				wide := make([]float32, len(got))
				for i, v := range got {
					wide[i] = float32(v)
				}
				here := kernels.Of(wide, x.of[0].Shape...)
				if err := (&cpu.Backend{}).RoundFloat8(here, kernels.Float8Rounding{Rows: x.sides[0].there, Columns: x.sides[1].there}); err != nil {
					t.Fatal(err)
				}
				x.sides[0].compare(t, d, what+", rows of "+name)
				x.sides[1].compare(t, d, what+", columns of "+name)
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
