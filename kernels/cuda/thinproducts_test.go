//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Products of a large matrix by thin ones from both sides and from either: of any number of rows,
// columns and ranks, with Right in both orders of its axes, and Down whole, transposed and in
// parts.
func TestThinProducts(t *testing.T) {
	for _, c := range []struct{ rows, columns, ranks, gap int }{
		{1024, 2048, 8, 0}, {1000, 2560, 24, 0}, {512, 11264, 16, 8}, {300, 5632, 8, 0}, {129, 4096, 32, 64},
		{2000, 264, 40, 0}, {1111, 1000, 48, 8}, {640, 2048, 64, 0}, {77, 14336, 56, 0}, {8192, 8, 8, 0}, {8, 8192, 16, 0},
		{4500, 2048, 16, 0}, {8192, 640, 24, 0},
	} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			t.Run(fmt.Sprintf("%d×%d of %d ranks/%v", c.rows, c.columns, c.ranks, dtype), func(t *testing.T) {
				newThinTest(t, c.rows, c.columns, c.ranks, c.gap, dtype).run()
			})
		}
	}
}

// thinTest is a problem, with Right in both orders, and what it gives in float64.
type thinTest struct {
	*rowwiseTest
	dtype                kernels.DType
	gap                  int
	x, up, left          field
	rights               [2]kernels.Tensor
	wantAcross, wantDown []float64
	wantGated            []float64 // Down of silu(x)·up
}

func newThinTest(t *testing.T, rows, columns, ranks, gap int, dtype kernels.DType) *thinTest {
	r := newRowwiseTest(t, "%v %d×%d of %d ranks, gap %d", dtype, rows, columns, ranks, gap)
	if !r.d.HasMaps() {
		t.Skip("this GPU has no kernel for it")
	}
	// Sums are of about 1: errors are those of what a number of 16 bits is rounded to.
	sized := func(n int) func() float64 {
		return func() float64 { return r.random.NormFloat64() / math.Sqrt(float64(n)) }
	}
	c := &thinTest{rowwiseTest: r, dtype: dtype, gap: gap, x: r.normals(dtype, gap, rows, columns), left: r.filled(dtype, gap, sized(rows), rows, ranks)}
	right, turned := r.filled(dtype, 0, sized(columns), columns, ranks), r.empty(dtype, gap, ranks, columns)
	r.must(r.d.Copy(turned.Permute(1, 0), right.Tensor))
	c.rights = [2]kernels.Tensor{right.Tensor, turned.Permute(1, 0)}
	c.wantAcross, c.wantDown = reference.ThinProducts(&kernels.ThinProducts{X: c.x.host, Right: right.host, Left: c.left.host, Scale: 1.7})
	c.up = r.normals(dtype, gap, rows, columns)
	hidden := r.empty(dtype, 0, rows, columns)
	r.must(r.d.SwiGLU(c.x.Tensor, c.up.Tensor, hidden.Tensor))
	_, c.wantGated = reference.ThinProducts(&kernels.ThinProducts{X: kernels.Of(r.values(hidden), rows, columns), Left: c.left.host})
	return c
}

func (c *thinTest) run() {
	c.computeGated()
	for _, right := range c.rights {
		for _, wide := range []bool{false, true} {
			c.compute(right, c.left.Tensor, wide)
			if c.left.Shape[1] <= 32 { // others are for products of two large matrices
				c.compute(right, kernels.Tensor{}, wide)
			}
			c.compute(kernels.Tensor{}, c.left.Tensor, wide)
		}
	}
}

// computeGated computes Down of silu(x)·up.
func (c *thinTest) computeGated() {
	columns, ranks := c.x.Shape[1], c.left.Shape[1]
	whole, turned := c.empty(kernels.F32, 0, ranks, columns), c.empty(c.dtype, c.gap, columns, ranks)
	p := kernels.ThinProducts{X: c.x.Tensor, Up: c.up.Tensor, Left: c.left.Tensor}
	out := kernels.ThinOutputs{Down: []kernels.ThinPart{{Out: whole.Tensor}, {Out: turned.Permute(1, 0)}}}
	if !c.d.TakesThinProducts(&p, len(out.Down)) {
		c.Fatalf("%s: there is no kernel for a gated x", c.name)
	}
	c.must(c.d.ThinProducts(&p, out))
	c.exact("gated down", c.values(whole), c.wantGated, kernels.F32)
	c.checkGaps("gated down", turned)
	down := c.values(whole)
	c.must(c.d.ThinProducts(&p, out))
	c.checkSame("gated down", whole, down)
}

// compute computes Across, if there is a right, and Down, if there is a left.
func (c *thinTest) compute(right, left kernels.Tensor, wide bool) {
	rows, columns, ranks := c.x.Shape[0], c.x.Shape[1], c.left.Shape[1]
	acrossType := c.dtype
	if wide {
		acrossType = kernels.F32
	}
	across, whole := c.empty(acrossType, c.gap, rows, ranks), c.empty(kernels.F32, 0, ranks, columns)
	turned, first, last := c.empty(c.dtype, 0, columns, ranks), c.empty(kernels.F32, 0, 5, columns-3), c.empty(kernels.F32, 0, 3, 4)
	p := kernels.ThinProducts{X: c.x.Tensor, Right: right, Left: left, Scale: 1.7}
	var out kernels.ThinOutputs
	if right.IsSet() {
		out.Across = across.Tensor
	}
	switch {
	case left.IsSet() && wide:
		out.Down = []kernels.ThinPart{{Out: first.Tensor, Rank: 2, Column: 3}, {Out: last.Tensor, Rank: ranks - 3, Column: columns - 4}, {Out: whole.Tensor}}
	case left.IsSet():
		out.Down = []kernels.ThinPart{{Out: whole.Tensor}, {Out: turned.Permute(1, 0)}}
	}
	if !c.d.TakesThinProducts(&p, len(out.Down)) {
		c.Fatalf("%s: there is no kernel", c.name)
	}
	c.must(c.d.ThinProducts(&p, out))
	if right.IsSet() {
		c.exact("across", c.values(across), c.wantAcross, acrossType)
		c.checkGaps("across", across)
	}
	if left.IsSet() {
		c.exact("down", c.values(whole), c.wantDown, kernels.F32)
	}
	down := c.values(whole)
	part := func(rank, column, ranks, width int) (list []float64) {
		for i := range ranks {
			list = append(list, down[(rank+i)*columns+column:][:width]...)
		}
		return list
	}
	switch {
	case left.IsSet() && wide:
		c.checkSame("the first part", first, part(2, 3, 5, columns-3))
		c.checkSame("the last part", last, part(ranks-3, columns-4, 3, 4))
	case left.IsSet():
		want := kernels.Of(make([]float64, len(c.wantDown)), columns, ranks)
		kernels.CopyHost(want, kernels.Of(c.wantDown, ranks, columns).Permute(1, 0))
		c.exact("down transposed", c.values(turned), kernels.Host[float64](want), c.dtype)
	}
	before := c.values(across)
	c.must(c.d.ThinProducts(&p, out))
	c.checkSame("across", across, before)
	c.checkSame("down", whole, down)
}

// exact compares sums of about 1 of exact products, in float32, with those in float64: what a
// number of 16 bits is rounded to, or some units of float32.
func (r *rowwiseTest) exact(what string, got, want []float64, dtype kernels.DType) {
	r.Helper()
	unit := map[kernels.DType]float64{kernels.BF16: 0x1p-8, kernels.F16: 0x1p-11, kernels.F32: 0x1p-18}[dtype]
	for i := range want {
		if e := math.Abs(got[i] - want[i]); !(e <= 1.01*unit*max(1, math.Abs(want[i]))+0x1p-18) {
			r.Fatalf("%s: %s[%d] is %v, it needs to be %v", r.name, what, i, got[i], want[i])
		}
	}
}

// In a recording, and beside calls of other sizes, results have the same bits.
func TestThinProductsRecorded(t *testing.T) {
	r := newRowwiseTest(t, "recorded thin products")
	if !r.d.HasMaps() {
		t.Skip("this GPU has no kernel for it")
	}
	var call []func() error
	var outs []field
	for _, c := range []struct{ rows, columns, ranks int }{{1024, 2048, 8}, {512, 5632, 24}, {2048, 512, 16}} {
		x, right := r.normals(kernels.BF16, 0, c.rows, c.columns), r.normals(kernels.BF16, 0, c.columns, c.ranks)
		left := r.empty(kernels.BF16, 0, c.rows, c.ranks)
		across, down := r.empty(kernels.BF16, 0, c.rows, c.ranks), r.empty(kernels.F32, 0, c.ranks, c.columns)
		call = append(call, func() error { // what one writes, the next one reads
			first := kernels.ThinProducts{X: x.Tensor, Right: right.Tensor, Scale: 0.01}
			second := kernels.ThinProducts{X: x.Tensor, Right: right.Tensor, Left: left.Tensor, Scale: 1}
			return errors.Join(r.d.ThinProducts(&first, kernels.ThinOutputs{Across: left.Tensor}),
				r.d.ThinProducts(&second, kernels.ThinOutputs{Across: across.Tensor, Down: []kernels.ThinPart{{Out: down.Tensor}}}))
		})
		outs = append(outs, across, down)
	}
	all := func() (err error) {
		for _, one := range call {
			err = errors.Join(err, one())
		}
		return err
	}
	r.must(all())
	var before [][]float64
	for _, out := range outs {
		before = append(before, r.values(out))
		r.must(r.d.Fill(out.memory, math.NaN()))
	}
	recording, err := r.d.Capture(all)
	r.must(err)
	for range 20 {
		r.must(recording.Launch())
	}
	for i, out := range outs {
		r.checkSame(fmt.Sprint("output ", i), out, before[i])
		if slices.ContainsFunc(before[i], math.IsNaN) {
			t.Errorf("output %d was not written", i)
		}
	}
}

// What the kernels have no form for is refused, and what makes no sense is named.
func TestThinProductsErrors(t *testing.T) {
	r := newRowwiseTest(t, "errors of thin products")
	if !r.d.HasMaps() {
		t.Skip("this GPU has no kernel for it")
	}
	x, right, left := r.normals(kernels.BF16, 0, 512, 256), r.normals(kernels.BF16, 0, 256, 8), r.normals(kernels.BF16, 0, 512, 8)
	for _, p := range []kernels.ThinProducts{
		{X: r.normals(kernels.F32, 0, 512, 256).Tensor, Right: r.normals(kernels.F32, 0, 256, 8).Tensor, Scale: 1},
		{X: x.Tensor, Right: r.normals(kernels.BF16, 0, 256, 12).Tensor, Scale: 1},
		{X: x.Tensor, Right: r.normals(kernels.BF16, 0, 256, 72).Tensor, Scale: 1},
		{X: x.Tensor.Slice(1, 4, 252), Right: right.Tensor.Slice(0, 4, 252), Scale: 1},
		{X: x.Tensor.Slice(0, 0, 8), Left: left.Tensor.Slice(0, 0, 8)},
		{X: x.Tensor, Up: x.Tensor, Right: right.Tensor, Left: left.Tensor, Scale: 1},
	} {
		if r.d.TakesThinProducts(&p, 1) {
			t.Errorf("x of %v and %v with %d ranks is taken", p.X.DType, p.X.Shape, p.Ranks())
		}
	}
	p := kernels.ThinProducts{X: x.Tensor, Right: right.Tensor, Left: left.Tensor, Scale: 1}
	if r.d.TakesThinProducts(&p, 5) || !r.d.TakesThinProducts(&p, 4) {
		t.Error("four parts are taken, and five are not")
	}
	across := r.empty(kernels.BF16, 0, 512, 8)
	err := r.d.ThinProducts(&p, kernels.ThinOutputs{Across: across.Tensor})
	if want := "down has no parts, with left it needs at least one"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}
