//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Products of 8 bits are those of the operands that the CPU rounds, but for the bits that tensor
// cores keep of their sums. What an activation makes of them is compared with what it is applied
// to.
func TestMatMulFloat8(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	var cases []productCase
	for i, c := range slices.Concat(productCases(), sums()) {
		if i%2 == 0 || c.m == 520 && len(c.plus) == 0 {
			if c.activation != kernels.NoActivation {
				c.pre, c.wideC = true, false
			}
			c.precision = kernels.PrecisionFloat8
			cases = append(cases, c)
		}
	}
	for at, dtype := range []kernels.DType{kernels.BF16, kernels.F32, kernels.F16} {
		tests, list := make([]*productTest, len(cases)), make([]expected, len(cases))
		var group sync.WaitGroup
		for i, c := range cases {
			if at > 0 && i%3 != at {
				continue
			}
			tests[i] = newProductTest(t, dtype, c, uint64(i))
			group.Go(func() { list[i] = tests[i].expect(same) })
		}
		group.Wait()
		for i, p := range tests {
			if p == nil {
				continue
			}
			e := list[i]
			p.run()
			if p.activation == kernels.NoActivation {
				p.compareFloat8("c", e.rows, p.out.C, e.c, e.plainC)
			}
			if p.preOut.IsSet() {
				p.compareFloat8("pre", e.rows, p.preOut, e.pre, e.plain)
				c, _ := reference.Activation(p.activation, download(t, d, p.preOut), make([]float64, p.out.C.Elements()))
				rounded := make([]float64, len(c))
				for j, x := range c {
					rounded[j] = roundedTo(dtype, x)
				}
				p.compareWithin("c of pre", allRows(len(c)/max(1, p.n)), p.out.C, c, rounded, 1e-5*slices.Max(append(c, 1)))
			}
			if p.accumulate {
				continue
			}
			first := download(t, d, p.out.C)
			p.run()
			if !slices.Equal(first, download(t, d, p.out.C)) {
				t.Errorf("%v: a second call gives other bits", p)
			}
		}
	}
}

// compareFloat8 is compare, of sums of which tensor cores keep a part: of random numbers they were
// off by up to 2^-11 of the largest.
func (p *productTest) compareFloat8(name string, rows []int, out kernels.Tensor, ref, plain []float64) {
	p.t.Helper()
	largest := 0.0
	for _, x := range ref {
		largest = max(largest, math.Abs(x))
	}
	p.compareWithin(name, rows, out, ref, plain, math.Ldexp(largest, -10))
}

// A gated product of 8 bits gives both products and silu of the one times the other, whichever way
// round the factors lie.
func TestMatMulGatingFloat8(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	for i, c := range []productCase{{m: 300, n: 264, k: 520}, {m: 65, n: 33, k: 100}, {m: 129, n: 72, k: 72, transposeB: true}} {
		c.precision = kernels.PrecisionFloat8
		for _, swapped := range []bool{false, true} {
			p := newProductTest(t, kernels.BF16, c, uint64(i))
			both := p.tensor(kernels.BF16, nil, c.k, 2*c.n, c.transposeB)
			z := p.tensor(kernels.BF16, nil, c.m, 2*c.n, false).device
			first, second := 0, c.n
			if swapped {
				first, second = second, first
			}
			cut := func(x kernels.Tensor, from int) kernels.Tensor { return x.Slice(1, from, from+c.n) }
			p.problem.B = cut(both.device, first)
			e := kernels.Gate{BUp: cut(both.device, second), Pre: cut(z, first), Up: cut(z, second)}
			p.problem.Epilogue = e
			var launched []string
			d.Trace(func(kernel string) { launched = append(launched, kernel) })
			p.run()
			d.Trace(nil)
			if count := len(slices.DeleteFunc(launched, func(name string) bool { return !strings.HasPrefix(name, "matmul_") })); count != 1 {
				t.Errorf("%v: %d kernels multiply, one is enough", p, count)
			}
			exact := func(from int) []float64 {
				m := kernels.MatMul{A: p.exact.A, B: cut(both.host, from), Precision: kernels.PrecisionFloat8}
				x, _ := reference.MatMul[float64](&m, nil)
				return x
			}
			pre, up := exact(first), exact(second)
			rounded := func(x []float64) (y []float64) {
				for _, v := range x {
					y = append(y, roundedTo(kernels.BF16, v))
				}
				return y
			}
			p.compareFloat8("pre", allRows(c.m), e.Pre, pre, rounded(pre))
			p.compareFloat8("up", allRows(c.m), e.Up, up, rounded(up))
			h, _, _ := reference.SwiGLU(pre, up, up)
			plain, _, _ := reference.SwiGLU(rounded(pre), rounded(up), up)
			p.compareFloat8("c", allRows(c.m), p.out.C, h, rounded(plain))
		}
	}
}

// Rows and columns of any magnitude keep their digits, and what is not finite spreads.
func TestMatMulFloat8Scales(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("the device has no products of 8 bits")
	}
	for _, transposed := range []bool{false, true} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			c := productCase{m: 70, n: 66, k: 264, transposeA: transposed, transposeB: !transposed, precision: kernels.PrecisionFloat8, wideC: true}
			p := newProductTest(t, dtype, c, 1)
			a, b := kernels.Host[float64](p.exact.A), kernels.Host[float64](p.exact.B)
			at := func(x kernels.Tensor, row, column int) int { return row*x.Strides[0] + column*x.Strides[1] }
			for k := range c.k {
				a[at(p.exact.A, 3, k)] *= math.Ldexp(1, -60)
				a[at(p.exact.A, 5, k)] = 0
				b[at(p.exact.B, k, 7)] *= math.Ldexp(1, 50)
			}
			a[at(p.exact.A, 60, 2)], b[at(p.exact.B, 9, 65)] = math.Inf(1), math.NaN()
			up := func(x kernels.Tensor, transposed bool) kernels.Tensor {
				if transposed {
					x = x.Permute(1, 0)
				}
				y := upload(t, d, dtype, rowMajor(x), x.Shape...)
				if transposed {
					y = y.Permute(1, 0)
				}
				return y
			}
			p.problem.A, p.problem.B = up(p.exact.A, transposed), up(p.exact.B, !transposed)
			want, _ := reference.MatMul[float64](&p.exact, nil)
			p.run()
			for i, x := range download(t, d, p.out.C) {
				row, column := i/c.n, i%c.n
				size := 0.0
				for k := range c.k {
					size += math.Abs(a[at(p.exact.A, row, k)] * b[at(p.exact.B, k, column)])
				}
				if row == 60 || column == 65 {
					if !math.IsNaN(x) {
						t.Fatalf("%v: element (%d, %d) is %v, of a row or column with a NaN or an infinity", p, row, column, x)
					}
				} else if e := math.Abs(x - want[i]); !(e <= math.Ldexp(size, -11)) {
					t.Fatalf("%v: element (%d, %d) is %v, want %v", p, row, column, x, want[i])
				}
			}
		}
	}
}

// Devices that have no such products say so by a type of error.
func TestMatMulFloat8Unsupported(t *testing.T) {
	d := device(t)
	defer d.WithoutMaps()()
	p := newProductTest(t, kernels.BF16, productCase{m: 8, n: 8, k: 8, precision: kernels.PrecisionFloat8}, 1)
	err := d.MatMul(&p.problem, p.out)
	if want := d.Name() + ": a product in PrecisionFloat8"; !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "PrecisionFloat8") {
		t.Errorf("got %v, want an error like %s", err, want)
	}
}
