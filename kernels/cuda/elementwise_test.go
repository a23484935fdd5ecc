//go:build gpu

package cuda_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func single(list []float64) []float32 {
	narrow := make([]float32, len(list))
	for i, x := range list {
		narrow[i] = float32(x)
	}
	return narrow
}

func TestElementwiseKernels(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, s := range fieldShapes {
			r := newRowwiseTest(t, "%v %v gap %d", dtype, s.shape, s.gap)
			a, b, dc := r.normals(dtype, s.gap, s.shape...), r.normals(dtype, 0, s.shape...), r.normals(dtype, 2*s.gap, s.shape...)
			x, y, dy := a.values(), b.values(), dc.values()
			c, e := r.empty(dtype, s.gap, s.shape...), r.empty(dtype, 0, s.shape...)
			r.must(r.d.Add(a.Tensor, b.Tensor, c.Tensor))
			r.check("a + b", c, reference.Add[float64](a.host, b.host), reference.Add[float32](a.host, b.host))
			r.must(errors.Join(r.d.Mul(a.Tensor, b.Tensor, c.Tensor), r.d.MulScalar(-0.3, a.Tensor, e.Tensor)))
			product, _, _ := reference.Mul(x, y, dy)
			plain, _, _ := reference.Mul(single(x), single(y), single(dy))
			r.check("a·b", c, product, plain)
			r.check("−0.3·a", e, reference.Scale(-0.3, x), reference.Scale(-0.3, single(x)))
			for _, act := range kernels.Activations() {
				r.must(errors.Join(r.d.Activate(act, a.Tensor, c.Tensor), r.d.ActivateBackward(act, a.Tensor, dc.Tensor, e.Tensor)))
				want, slope := reference.Activation(act, x, dy)
				plain, plainSlope := reference.Activation(act, single(x), single(dy))
				r.check(act.String(), c, want, plain)
				r.check(act.String()+"'", e, slope, plainSlope)
			}
			dUp := r.empty(dtype, s.gap, s.shape...)
			r.must(errors.Join(r.d.SwiGLU(a.Tensor, b.Tensor, c.Tensor), r.d.SwiGLUBackward(a.Tensor, b.Tensor, dc.Tensor, e.Tensor, dUp.Tensor)))
			want, dGateWant, dUpWant := reference.SwiGLU(x, y, dy)
			plain, dGatePlain, dUpPlain := reference.SwiGLU(single(x), single(y), single(dy))
			r.check("swiglu", c, want, plain)
			r.check("dGate", e, dGateWant, dGatePlain)
			r.check("dUp", dUp, dUpWant, dUpPlain)

			const cap = 1.5
			r.must(r.d.SoftCap(cap, a.Tensor, c.Tensor))
			capped, _ := reference.SoftCap(cap, x, dy)
			plain, _ = reference.SoftCap(cap, single(x), single(dy))
			r.check("soft cap", c, capped, plain)
			r.must(r.d.SoftCapBackward(cap, a.Tensor, dc.Tensor, e.Tensor))
			slope, plainSlope := make([]float64, len(x)), make([]float32, len(x))
			for i := range x {
				slope[i] = dy[i] * (1 - x[i]/cap*x[i]/cap)
				plainSlope[i] = float32(dy[i]) * (1 - float32(x[i])/cap*float32(x[i])/cap)
			}
			r.check("soft cap'", e, slope, plainSlope)

			r.must(r.d.Add(a.Tensor, b.Tensor, b.Tensor))
			r.check("a + b in place", b, reference.Add[float64](a.host, b.host), reference.Add[float32](a.host, b.host))
		}
	}
}

// What has 16 bits is added to float32 as it is, as views and in place too.
func TestAddToWide(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		for _, columns := range []int{1, 6, 64} {
			x, y := make([]float64, 3*columns), make([]float64, 3*columns)
			for i := range x {
				x[i], y[i] = float64(i%5)+1e-3, float64(i%9)
			}
			a, b := tensorOf(t, kernels.F32, x, 3, columns), tensorOf(t, dtype, y, 3, columns)
			into := a.Slice(0, 1, 3)
			if err := device(t).Add(into, b.Slice(0, 0, 2), into); err != nil {
				t.Fatal(err)
			}
			for i, got := range numbersOf(t, a) {
				want := float32(x[i])
				if i >= columns {
					want += float32(y[i-columns])
				}
				if got != float64(want) {
					t.Fatalf("%v, %d columns: element %d is %v, want %v", dtype, columns, i, got, want)
				}
			}
		}
	}
	half, single := tensorOf(t, kernels.BF16, []float64{1}, 1), tensorOf(t, kernels.F32, []float64{1}, 1)
	err := device(t).Add(half, single, half)
	if err == nil || !strings.Contains(err.Error(), "b is float32, it needs to be bfloat16") {
		t.Errorf("float32 added to bfloat16: %v", err)
	}
}

// Lists of tensors of many sizes are added in one call, to the bits of additions of their own.
func TestAccumulate(t *testing.T) {
	var sums, x, want []kernels.Tensor
	for i, n := range []int{0, 1, 5, 4096, 40001} {
		a, b := make([]float64, n), make([]float64, n)
		for j := range n {
			a[j], b[j] = math.Sin(float64(i+j)), math.Cos(float64(i-7*j))
		}
		sums, x = append(sums, tensorOf(t, kernels.F32, a, n)), append(x, tensorOf(t, kernels.F32, b, n))
		want = append(want, tensorOf(t, kernels.F32, a, n))
		if err := device(t).Add(want[i], x[i], want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := device(t).Accumulate(sums, x); err != nil {
		t.Fatal(err)
	}
	for i := range sums {
		if !slices.Equal(numbersOf(t, sums[i]), numbersOf(t, want[i])) {
			t.Errorf("%d elements: other bits than Add gives", sums[i].Elements())
		}
	}
	err := device(t).Accumulate(sums, x[1:])
	if err == nil || !strings.Contains(err.Error(), "x has 4 tensors, it needs one for each of the 5 of sums") {
		t.Errorf("lists of two lengths: %v", err)
	}
}

// Far from zero, activations and slopes become the lines that they approach, and infinities and NaN
// stay.
func TestActivationTails(t *testing.T) {
	tails := []float64{-1e4, -300, -88, -30, -12, -6, 6, 12, 30, 88, 300, 1e4, math.Inf(1), math.NaN(), 0, 1}
	for _, dtype := range halfAndFull {
		for _, act := range kernels.Activations() {
			if act == kernels.ReLUSquared && dtype == kernels.F16 {
				continue // the square of 300 is no float16
			}
			r := newRowwiseTest(t, "%v %v", dtype, act)
			i := -1
			x := r.filled(dtype, 0, func() float64 { i++; return tails[i] }, len(tails))
			y, dx, ones := r.empty(dtype, 0, len(tails)), r.empty(dtype, 0, len(tails)), r.filled(dtype, 0, func() float64 { return 1 }, len(tails))
			r.must(errors.Join(r.d.Activate(act, x.Tensor, y.Tensor), r.d.ActivateBackward(act, x.Tensor, ones.Tensor, dx.Tensor)))
			got, slope := r.values(y), r.values(dx)
			want, wantSlope := reference.Activation(act, x.values(), ones.values())
			unit := map[kernels.DType]float64{kernels.F32: 1e-6, kernels.BF16: 1.0 / 256, kernels.F16: 1.0 / 2048}[dtype]
			for i, tail := range tails {
				near := func(got, want float64) bool {
					return math.IsNaN(got) && math.IsNaN(want) || got == want || math.Abs(got-want) <= unit*math.Abs(want)+1e-6
				}
				if !near(got[i], want[i]) {
					t.Errorf("%s: act(%v) is %v, it needs to be %v", r.name, tail, got[i], want[i])
				}
				if !math.IsInf(tail, 0) && !near(slope[i], wantSlope[i]) {
					t.Errorf("%s: act'(%v) is %v, it needs to be %v", r.name, tail, slope[i], wantSlope[i])
				}
			}
		}
	}
}

func TestReductions(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, s := range fieldShapes {
			r := newRowwiseTest(t, "%v %v gap %d", dtype, s.shape, s.gap)
			x := r.normals(dtype, s.gap, s.shape...)
			sum, mean, spread := r.empty(kernels.F32, 0), r.empty(kernels.F32, 0), r.empty(dtype, s.gap, s.shape...)
			r.must(errors.Join(r.d.Sum(x.Tensor, sum.Tensor), r.d.Mean(x.Tensor, mean.Tensor), r.d.Broadcast(sum.Tensor, 0.5, spread.Tensor)))
			want := reference.Sum[float64](x.host)
			r.check("the sum", sum, []float64{want}, single([]float64{want}))
			r.check("the mean", mean, []float64{want / float64(x.Elements())}, single([]float64{want / float64(x.Elements())}))
			all, half := make([]float64, x.Elements()), 0.5*r.values(sum)[0]
			for i := range all {
				all[i] = half
			}
			r.check("the broadcast", spread, all, single(all))
		}
	}
}

// Sums of columns, into either dtype, and added to what is there.
func TestSumRows(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, s := range append(fieldShapes, fieldShapes[0]) {
			for _, wide := range parameterTypes(dtype) {
				r := newRowwiseTest(t, "%v %v gap %d into %v", dtype, s.shape, s.gap, wide)
				n := s.shape[len(s.shape)-1]
				x, out := r.normals(dtype, s.gap, s.shape...), r.normals(wide, 0, n)
				sums, plain := make([]float64, n), make([]float32, n)
				for i, v := range x.values() {
					sums[i%n] += v
					plain[i%n] += float32(v)
				}
				for column, before := range out.values() {
					plain[column] += float32(before)
				}
				more := make([]float64, n)
				for column, before := range out.values() {
					more[column] = sums[column] + before
				}
				r.must(r.d.SumRows(x.Tensor, out.Tensor, true))
				r.check("the sum and what was there", out, more, plain)
				first := r.values(out)
				r.must(errors.Join(r.d.Copy(out.Tensor, out.host), r.d.SumRows(x.Tensor, out.Tensor, true)))
				r.checkSame("the sum", out, first)
				for column, before := range out.values() {
					plain[column] -= float32(before)
				}
				r.must(r.d.SumRows(x.Tensor, out.Tensor, false))
				r.check("the sum", out, sums, plain)
			}
		}
	}
}

// The mask is the CPU's, whatever the dtype, and what is dropped is 0 even where it was no number.
func TestDropout(t *testing.T) {
	for _, dtype := range halfAndFull {
		for i, s := range fieldShapes {
			o := kernels.Dropout{P: []float64{0.1, 0.7, 0}[i%3], Seed: 1<<40 + 7, Step: uint32(i)}
			r := newRowwiseTest(t, "%v %v gap %d p %v", dtype, s.shape, s.gap, o.P)
			x, y := r.normals(dtype, s.gap, s.shape...), r.empty(dtype, 2*s.gap, s.shape...)
			want, plain := reference.Dropout[float64](o, x.host), reference.Dropout[float32](o, x.host)
			r.must(r.d.Dropout(o, x.Tensor, y.Tensor))
			r.check("y", y, want, plain)
			r.must(r.d.Dropout(o, x.Tensor, x.Tensor))
			r.check("y in place", x, want, plain)
		}
	}
	r := newRowwiseTest(t, "NaN")
	x, o := r.empty(kernels.F32, 0, 64), kernels.Dropout{P: 0.5}
	r.must(r.d.Dropout(o, x.Tensor, x.Tensor))
	for column, y := range r.values(x) {
		if o.Keep(0, 0, column) != math.IsNaN(y) {
			t.Errorf("of a NaN in column %d became %v", column, y)
		}
	}
}

// A mask of any type, with a bias for each batch item, for all, or none.
func TestKeyMask(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, maskType := range []kernels.DType{kernels.I32, kernels.I64, kernels.F32, kernels.BF16} {
			for _, batches := range []int{0, 1, 3} {
				r := newRowwiseTest(t, "%v mask %v bias %d", dtype, maskType, batches)
				values := []float64{0, 1, 0, -2}
				if maskType.IsFloat() {
					values[2] = math.Copysign(0, -1)
				}
				next := func() float64 { return values[r.random.IntN(4)] }
				var mask, hostMask kernels.Tensor
				if maskType.IsFloat() {
					f := r.filled(maskType, 2, next, 3, 7)
					mask, hostMask = f.Tensor, f.host
				} else {
					mask, hostMask = r.indices(maskType, func() int { return int(next()) }, 3, 7)
				}
				bias, out := r.normals(dtype, 0, max(1, batches), 2, 5, 7), r.empty(dtype, 0, 3, 2, 5, 7)
				if batches == 0 {
					bias = r.filled(dtype, 0, func() float64 { return 0 }, 1, 2, 5, 7)
					bias.Tensor = kernels.Tensor{}
				}
				r.must(r.d.KeyMask(mask, bias.Tensor, out.Tensor))
				want := make([]float64, out.Elements())
				for i := range want {
					item := i / 70
					if want[i] = bias.values()[i%bias.host.Elements()]; kernels.HostElement(hostMask, item*7+i%7) == 0 {
						want[i] = math.Inf(-1)
					}
				}
				r.check("out", out, want, single(want))
			}
		}
	}
}

// A GPU does not compute float64: it says so, and does not do something else.
func TestFloat64IsUnsupported(t *testing.T) {
	r := newRowwiseTest(t, "float64")
	x, scalar := r.normals(kernels.F64, 0, 2, 8).Tensor, r.normals(kernels.F64, 0).Tensor
	for name, err := range map[string]error{
		"add": r.d.Add(x, x, x), "sum": r.d.Sum(x, scalar), "activation": r.d.Activate(kernels.SiLU, x, x),
		"norm forward": r.d.NormForward(&kernels.Norm{X: x}, kernels.NormOutputs{Y: x}),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s of float64: the error is %v, it needs to wrap errors.ErrUnsupported", name, err)
		}
	}
}
