//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// productCase is one product; its zero options are row-major operands without gaps, and C = A·B of
// their dtype.
type productCase struct {
	m, n, k                int
	batch                  []int
	sharedB                bool
	transposeA, transposeB bool
	gap                    int // elements between the rows of all tensors
	bias, accumulate, pre  bool
	wideC, wideBias        bool // float32 beside 16-bit operands
	activation             kernels.Activation
	precision              kernels.Precision
	plus                   []int // the depths of further factors
}

// productCases are small odd ones, those along the edges of tiles, and batches.
func productCases() []productCase {
	sizes := []int{0, 1, 2, 7, 8, 16, 17, 33, 64, 65, 100, 128, 129, 256, 264}
	var cases []productCase
	size := func(i int) int { return sizes[i%len(sizes)] }
	for i := range 3 * len(sizes) {
		c := productCase{m: size(i), n: size(i*7 + 3 + i/15*5), k: size(i*11 + 5 + i/15*2)}
		c.transposeA, c.transposeB = i%2 == 1, i/2%2 == 1
		c.gap = i % 3 * 4
		c.bias, c.pre = i%4 < 2, i%5 == 0
		c.wideC, c.wideBias = i%3 == 1, i%8 < 4
		if c.accumulate = i%7 == 2; !c.accumulate {
			c.activation = kernels.Activation(i % len(kernels.Activations()))
		}
		cases = append(cases, c)
	}
	for i, activation := range kernels.Activations() {
		cases = append(cases, productCase{m: 300, n: 520, k: 192, bias: true, pre: true, activation: activation, transposeB: i%2 == 1, wideC: i > 4})
	}
	for transposes := range 4 {
		c := productCase{m: 520, n: 776, k: 1096, transposeA: transposes&1 > 0, transposeB: transposes&2 > 0}
		accumulating, wide, odd, deep := c, c, c, c
		accumulating.accumulate, accumulating.bias, accumulating.gap = true, true, 8
		wide.accumulate, wide.wideC = true, true
		odd.n, odd.gap = 777, 1
		deep.m, deep.n, deep.k, deep.bias = 192, 264, 9000, true
		cases = append(cases, c, accumulating, wide, odd, deep)
	}
	return append(cases,
		productCase{m: 1, n: 4096, k: 1024, bias: true},
		productCase{m: 5000, n: 768, k: 72, bias: true, wideC: true},
		productCase{batch: []int{3}, m: 17, n: 33, k: 20},
		productCase{batch: []int{3}, m: 17, n: 33, k: 20, sharedB: true},
		productCase{batch: []int{3}, m: 136, n: 264, k: 72, sharedB: true, gap: 8, accumulate: true},
		productCase{batch: []int{2, 3}, m: 17, n: 32, k: 24, transposeA: true, sharedB: true, pre: true, activation: kernels.GELUTanh},
		productCase{batch: []int{2, 3}, m: 1, n: 65, k: 40, sharedB: true, bias: true},
		productCase{batch: []int{2, 1, 3}, m: 65, n: 64, k: 64, transposeB: true, gap: 8, bias: true},
		productCase{batch: []int{0}, m: 5, n: 5, k: 5},
		productCase{batch: []int{40}, m: 64, n: 24, k: 64, transposeB: true},
	)
}

// fewRows are products of few rows by large matrices, in both orders, along the edges of a
// cluster's columns and of a warp's steps.
func fewRows() []productCase {
	cases := []productCase{{m: 4, n: 50257, k: 768, transposeB: true, wideC: true}, {batch: []int{2, 3}, m: 2, n: 640, k: 768, sharedB: true}}
	for i, m := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17} {
		for j, columns := range []int{512, 1000, 2056} {
			c := productCase{m: m, n: columns, k: []int{512, 1032, 5632}[(i+j)%3], transposeB: i%2 == j%2}
			c.bias, c.pre, c.wideC, c.gap = i%3 == 0, j == 1, i%4 == 3, i%3*8
			if c.accumulate = i%5 == 2; !c.accumulate {
				c.activation = kernels.Activation((i + j) % len(kernels.Activations()))
			}
			cases = append(cases, c)
		}
	}
	return cases
}

// sums are products to which others are added: in one pass where they are large, of 16 bits and no
// batch.
func sums() []productCase {
	var cases []productCase
	for i, plus := range [][]int{{8}, {24, 8}, {1}, {7, 72}, {64, 200}, {520}, {16, 3, 5}} {
		for transposes := i % 2; transposes < 4; transposes += 1 + i/2%2 {
			c := productCase{m: 520, n: 776, k: 1096, plus: plus, transposeA: transposes&1 > 0, transposeB: transposes&2 > 0}
			c.bias, c.wideC, c.gap = i%2 == 0, i == 6, i%3*8
			if i == 2 {
				c.accumulate = true
			} else if i == 3 || i == 5 {
				c.activation, c.pre = kernels.Activation(1+transposes), true
			}
			cases = append(cases, c)
		}
	}
	return append(cases,
		productCase{m: 300, n: 2048, k: 2048, plus: []int{8}}, productCase{m: 9000, n: 264, k: 264, plus: []int{64}, transposeB: true},
		productCase{m: 129, n: 9, k: 8200, plus: []int{40}, transposeB: true, transposeA: true},
		productCase{m: 100, n: 1032, k: 5000, plus: []int{40, 8}, transposeA: true, wideC: true},
		productCase{m: 3, n: 1032, k: 520, plus: []int{40}}, productCase{m: 5, n: 7, k: 3, plus: []int{2}, bias: true},
		productCase{batch: []int{2, 3}, m: 65, n: 64, k: 64, sharedB: true, plus: []int{8}, activation: kernels.GELUErf},
	)
}

// values is a tensor of the device beside its float64 values on the host, with the same strides.
type values struct {
	device, host kernels.Tensor
}

// productTest is a case with its tensors.
type productTest struct {
	productCase
	t       *testing.T
	d       *cuda.Device
	dtype   kernels.DType
	random  *rand.Rand
	problem kernels.MatMul // on the device
	out     kernels.MatMulOutputs
	preOut  kernels.Tensor // that the epilogue receives, or not set
	exact   kernels.MatMul // in float64
	initial []float64      // what C holds before, row-major
}

// tensor makes random numbers of a type: rows × columns a matrix, which lie transposed if asked.
func (p *productTest) tensor(dtype kernels.DType, batch []int, rows, columns int, transposed bool) values {
	if transposed {
		rows, columns = columns, rows
	}
	wide := append(slices.Clone(batch), rows, columns+p.gap)
	n := kernels.Contiguous(nil, dtype, wide...).Elements()
	list := make([]float64, max(1, n))
	for i := range list {
		list[i] = roundedTo(dtype, p.random.NormFloat64())
	}
	v := values{upload(p.t, p.d, dtype, list, wide...), kernels.Of(list, wide...)}
	last := len(wide) - 1
	for _, t := range []*kernels.Tensor{&v.device, &v.host} {
		if *t = t.Slice(last, 0, columns); transposed {
			order := make([]int, len(wide))
			for axis := range order {
				order[axis] = axis
			}
			order[last], order[last-1] = last-1, last
			*t = t.Permute(order...)
		}
	}
	return v
}

// roundedTo is the number of a type that is nearest to x.
func roundedTo(dtype kernels.DType, x float64) float64 {
	if dtype == kernels.F32 {
		return float64(float32(x))
	}
	return float64(fromHalf(dtype, toHalf(dtype, float32(x))))
}

// upload gives a row-major tensor of the device with these values.
func upload(t *testing.T, d *cuda.Device, dtype kernels.DType, list []float64, shape ...int) kernels.Tensor {
	t.Helper()
	up, err := d.Alloc(dtype, shape...)
	if err != nil {
		t.Fatal(err)
	}
	var from unsafe.Pointer
	if dtype == kernels.F32 {
		wide := make([]float32, len(list))
		for i, x := range list {
			wide[i] = float32(x)
		}
		from = unsafe.Pointer(unsafe.SliceData(wide))
	} else {
		narrow := make([]uint16, len(list))
		for i, x := range list {
			narrow[i] = toHalf(dtype, float32(x))
		}
		from = unsafe.Pointer(unsafe.SliceData(narrow))
	}
	if err := d.UploadBytes(up, from); err != nil {
		t.Fatal(err)
	}
	return up
}

// download gives the values of a tensor of the device in row-major order.
func download(t *testing.T, d *cuda.Device, x kernels.Tensor) []float64 {
	t.Helper()
	list := make([]float64, x.Elements())
	dense, err := d.Alloc(x.DType, x.Shape...)
	if err == nil {
		err = d.Copy(dense, x)
	}
	if err != nil {
		t.Fatal(err)
	}
	if x.DType == kernels.F32 {
		wide := make([]float32, len(list)+1)
		err = d.DownloadBytes(dense, unsafe.Pointer(unsafe.SliceData(wide)))
		for i := range list {
			list[i] = float64(wide[i])
		}
	} else {
		narrow := make([]uint16, len(list)+1)
		err = d.DownloadBytes(dense, unsafe.Pointer(unsafe.SliceData(narrow)))
		for i := range list {
			list[i] = float64(fromHalf(x.DType, narrow[i]))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func newProductTest(t *testing.T, dtype kernels.DType, c productCase, seed uint64) *productTest {
	p := &productTest{productCase: c, t: t, d: device(t), dtype: dtype, random: rand.New(rand.NewPCG(seed, 1))}
	p.problem = kernels.MatMul{Accumulate: c.accumulate, Precision: c.precision}
	p.exact = p.problem
	p.exact.Epilogue = kernels.Activate{Activation: c.activation}
	a := p.tensor(dtype, c.batch, c.m, c.k, c.transposeA)
	batchOfB := c.batch
	if c.sharedB {
		batchOfB = nil
	}
	b := p.tensor(dtype, batchOfB, c.k, c.n, c.transposeB)
	p.problem.A, p.exact.A, p.problem.B, p.exact.B = a.device, a.host, b.device, b.host
	for _, depth := range c.plus {
		a, b := p.tensor(dtype, c.batch, c.m, depth, c.transposeA), p.tensor(dtype, nil, depth, c.n, c.transposeB)
		p.problem.Plus = append(p.problem.Plus, kernels.Factors{A: a.device, B: b.device})
		p.exact.Plus = append(p.exact.Plus, kernels.Factors{A: a.host, B: b.host})
	}
	if c.bias {
		kind := dtype
		if c.wideBias {
			kind = kernels.F32
		}
		list := make([]float64, c.n)
		for i := range list {
			list[i] = roundedTo(kind, p.random.NormFloat64())
		}
		p.problem.Bias, p.exact.Bias = upload(t, p.d, kind, list, c.n), kernels.Of(list, c.n)
	}
	kind := dtype
	if c.wideC {
		kind = kernels.F32
	}
	out := p.tensor(kind, c.batch, c.m, c.n, false)
	p.out.C, p.initial = out.device, rowMajor(out.host)
	if c.pre {
		p.preOut = p.tensor(dtype, c.batch, c.m, c.n, false).device
	}
	p.problem.Epilogue = kernels.Activate{Activation: c.activation, Pre: p.preOut}
	return p
}

// rowMajor gives the elements of a tensor of the host.
func rowMajor(x kernels.Tensor) []float64 {
	list, host := make([]float64, x.Elements()), kernels.Host[float64](x)
	for i := range list {
		offset, rest := 0, i
		for axis := len(x.Shape) - 1; axis >= 0; axis-- {
			offset += rest % x.Shape[axis] * x.Strides[axis]
			rest /= x.Shape[axis]
		}
		list[i] = host[offset]
	}
	return list
}

// expected are rows of C and Pre: what float64 gives, and what an unfused program gives that rounds
// after each step.
type expected struct {
	rows                  []int // of all rows of the batch
	c, pre, plainC, plain []float64
}

// expect computes all rows, or some of them where that would take long.
func (p *productTest) expect(operands func(float64) float64) expected {
	const most = 1 << 23
	all := p.exact
	var e expected
	if len(p.batch) == 0 && p.m*p.n*p.k > most {
		list := make([]float64, 0, most)
		for n := range max(4, most/(p.n*p.k)) {
			row := p.random.IntN(p.m)
			if n == 0 {
				row = p.m - 1
			}
			e.rows = append(e.rows, row)
			list = append(list, rowMajor(p.exact.A.Slice(0, row, row+1))...)
		}
		all.A, all.Plus = kernels.Of(list, len(e.rows), p.k), rowsOf(p.exact.Plus, e.rows)
	} else {
		for row := range p.out.C.Elements() / max(1, p.n) {
			e.rows = append(e.rows, row)
		}
	}
	initial := make([]float64, 0, len(e.rows)*p.n)
	for _, row := range e.rows {
		initial = append(initial, p.initial[row*p.n:][:p.n]...)
	}
	e.c, e.pre = reference.MatMul(&all, initial)

	sum, _ := reference.MatMul[float32](&kernels.MatMul{A: narrowed(all.A, operands), B: narrowed(all.B, operands), Precision: p.precision}, nil)
	var added [][]float32
	for _, f := range all.Plus {
		more, _ := reference.MatMul[float32](&kernels.MatMul{A: narrowed(f.A, same), B: narrowed(f.B, same)}, nil)
		added = append(added, more)
	}
	bias := make([]float64, p.n)
	if p.bias {
		bias = rowMajor(p.exact.Bias)
	}
	steps := p.dtype
	if p.wideC {
		steps = kernels.F32
	}
	for i, x := range sum {
		y := roundedTo(steps, roundedTo(steps, float64(x))+bias[i%p.n])
		for _, more := range added {
			y = roundedTo(steps, y+float64(more[i]))
		}
		if p.accumulate {
			y = roundedTo(steps, y+initial[i])
		}
		e.plain = append(e.plain, roundedTo(p.dtype, y))
		z, _ := reference.Activation[float32](p.activation, []float32{float32(y)}, []float32{0})
		e.plainC = append(e.plainC, roundedTo(steps, float64(z[0])))
	}
	return e
}

func allRows(n int) (rows []int) {
	for row := range n {
		rows = append(rows, row)
	}
	return rows
}

// rowsOf are some rows of the factors that are added.
func rowsOf(plus []kernels.Factors, rows []int) (some []kernels.Factors) {
	for _, f := range plus {
		var list []float64
		for _, row := range rows {
			list = append(list, rowMajor(f.A.Slice(0, row, row+1))...)
		}
		some = append(some, kernels.Factors{A: kernels.Of(list, len(rows), f.A.Shape[1]), B: f.B})
	}
	return some
}

// narrowed is a float64 tensor in float32, each element changed first.
func narrowed(x kernels.Tensor, change func(float64) float64) kernels.Tensor {
	list := make([]float32, x.Elements())
	for i, v := range rowMajor(x) {
		list[i] = float32(change(v))
	}
	return kernels.Of(list, x.Shape...)
}

func (p *productTest) String() string { return fmt.Sprintf("%v %+v", p.dtype, p.productCase) }

// run poisons the outputs and computes.
func (p *productTest) run() {
	p.t.Helper()
	if !p.accumulate {
		p.poison(p.out.C)
	}
	if p.preOut.IsSet() {
		p.poison(p.preOut)
	}
	if err := p.d.MatMul(&p.problem, p.out); err != nil {
		p.t.Fatalf("%v: %v", p, err)
	}
}

func (p *productTest) poison(x kernels.Tensor) {
	list := make([]float64, x.Elements())
	for i := range list {
		list[i] = math.NaN()
	}
	if err := p.d.Copy(x, upload(p.t, p.d, x.DType, list, x.Shape...)); err != nil {
		p.t.Fatal(err)
	}
}

// compare holds rows of an output against the criterion that package reference states.
func (p *productTest) compare(name string, rows []int, out kernels.Tensor, ref, plain []float64) {
	p.t.Helper()
	p.compareWithin(name, rows, out, ref, plain, 0)
}

// compareWithin is compare that allows an error of its own.
func (p *productTest) compareWithin(name string, rows []int, out kernels.Tensor, ref, plain []float64, allowed float64) {
	p.t.Helper()
	got := download(p.t, p.d, out)
	var worst, worstPlain, largest float64
	for n, row := range rows {
		for j := range p.n {
			i := n*p.n + j
			e := math.Abs(got[row*p.n+j] - ref[i])
			if math.IsNaN(e) {
				e = math.Inf(1)
			}
			worst, largest = max(worst, e), max(largest, math.Abs(ref[i]))
			worstPlain = max(worstPlain, math.Abs(plain[i]-ref[i]))
		}
	}
	if bound := 2*worstPlain + 1e-6*largest + allowed; worst > bound {
		p.t.Errorf("%v: %s has an error of %.3g, bound %.3g (unfused %.3g, largest %.3g)", p, name, worst, bound, worstPlain, largest)
	}
}

func (p *productTest) check(e expected) {
	p.t.Helper()
	p.run()
	p.compare("c", e.rows, p.out.C, e.c, e.plainC)
	if p.preOut.IsSet() {
		p.compare("pre", e.rows, p.preOut, e.pre, e.plain)
	}
}

func TestMatMul(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		checkProducts(t, dtype, productCases(), same)
	}
}

func TestMatMulPlus(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		checkProducts(t, dtype, sums(), same)
	}
}

func TestMatMulOfFewRows(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		checkProducts(t, dtype, fewRows(), same)
	}
}

// same leaves operands as they are.
func same(x float64) float64 { return x }

// A product may be the gradient of what an activation was applied to, and have the sums of its
// columns: in one pass where it is large and of 16 bits, whatever its edges, and by other kernels
// where there is none for it.
func TestMatMulGradient(t *testing.T) {
	d := device(t)
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		for i, c := range []productCase{
			{m: 5, n: 7, k: 3}, {m: 100, n: 72, k: 64, transposeB: true, gap: 8}, {m: 1000, n: 1160, k: 200, transposeB: true},
			{m: 1030, n: 1032, k: 72, transposeB: true, gap: 8}, {m: 8200, n: 136, k: 136, transposeB: true, gap: 8}, {m: 300, n: 3600, k: 1000, transposeB: true, wideBias: true},
			{m: 1100, n: 1001, k: 40, transposeB: true}, {batch: []int{2, 2}, m: 33, n: 40, k: 24, gap: 8},
		} {
			acts := []kernels.Activation{kernels.GELUTanh, kernels.GELUErf, kernels.SiLU, kernels.ReLUSquared}[i%2*2:][:2]
			for _, act := range append(acts, kernels.ReLU+kernels.Activation(i%4)) {
				p := newProductTest(t, dtype, c, uint64(i))
				z := p.tensor(dtype, c.batch, c.m, c.n, false)
				p.problem.Epilogue = kernels.TimesSlope{Activation: act, Z: z.device}
				kind := dtype
				if c.wideBias {
					kind = kernels.F32
				}
				p.out.ColumnSums = upload(t, d, kind, make([]float64, c.n), c.n)
				if err := d.Fill(p.out.ColumnSums, math.NaN()); err != nil {
					t.Fatal(err)
				}
				p.run()
				product, _ := reference.MatMul[float64](&p.exact, nil)
				plain := make([]float32, len(product))
				for j, x := range product {
					plain[j] = float32(roundedTo(dtype, x))
				}
				_, ref := reference.Activation(act, rowMajor(z.host), product)
				_, pt := reference.Activation(act, single(rowMajor(z.host)), plain)
				var rows []int
				for row := range p.out.C.Elements() / c.n {
					rows = append(rows, row)
				}
				rounded := make([]float64, len(pt))
				sums, ptSums := make([]float64, c.n), make([]float32, c.n)
				for j, x := range pt {
					rounded[j] = roundedTo(dtype, float64(x))
					sums[j%c.n] += ref[j]
					ptSums[j%c.n] += float32(rounded[j])
				}
				p.compare("c", rows, p.out.C, ref, rounded)
				roundedSums := make([]float64, c.n)
				for j, x := range ptSums {
					roundedSums[j] = roundedTo(kind, float64(x))
				}
				p.compare("column sums", []int{0}, p.out.ColumnSums, sums, roundedSums)
				c1, sums1 := download(t, d, p.out.C), download(t, d, p.out.ColumnSums)
				p.run()
				if !slices.Equal(c1, download(t, d, p.out.C)) || !slices.Equal(sums1, download(t, d, p.out.ColumnSums)) {
					t.Errorf("%v: a second call gives other bits", p)
				}
				restore := d.WithoutMaps()
				p.run()
				restore()
				p.compare("c on any device", rows, p.out.C, ref, rounded)
			}
		}
	}
}

// A product may be both gradients of what a gated MLP multiplies: in one pass where it is large and
// of 16 bits, both tensors of a pair lie alike, and the second lies behind the first.
func TestMatMulGated(t *testing.T) {
	d := device(t)
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		for i, c := range []productCase{
			{m: 5, n: 7, k: 3}, {batch: []int{2, 2}, m: 33, n: 40, k: 24, gap: 8}, {m: 1030, n: 1032, k: 72, transposeB: true, gap: 8},
			{m: 8200, n: 136, k: 136, transposeB: true}, {m: 300, n: 3600, k: 264, transposeB: true, gap: 16}, {m: 1100, n: 1001, k: 40, transposeB: true},
			{m: 1030, n: 1032, k: 264, transposeB: true, plus: []int{8}}, {m: 1030, n: 1032, k: 72, transposeB: true, plus: []int{5, 100}, gap: 8},
			{m: 1030, n: 1032, k: 72, gap: 8}, {m: 300, n: 3600, k: 264}, {m: 1030, n: 1032, k: 264, plus: []int{5, 100}, gap: 8},
		} {
			const large = 2
			if i >= large && dtype == kernels.F32 {
				break // has no pass of its own
			}
			p := newProductTest(t, dtype, c, uint64(i))
			pair := func() (first, second values) {
				wide := c
				wide.n = 2*c.n + c.gap
				both := (&productTest{productCase: wide, t: t, d: d, dtype: dtype, random: p.random}).tensor(dtype, c.batch, c.m, wide.n, false)
				last := len(c.batch) + 1
				cut := func(from int) values {
					return values{both.device.Slice(last, from, from+c.n), both.host.Slice(last, from, from+c.n)}
				}
				return cut(0), cut(c.n + c.gap)
			}
			z, up := pair()
			dZ, dUp := pair()
			epilogue := kernels.GateGradient{Z: z.device, Up: up.device, DUp: dUp.device}
			p.problem.Epilogue, p.out.C = epilogue, dZ.device
			product, _ := reference.MatMul[float64](&p.exact, nil)
			plain := make([]float32, len(product))
			for j, x := range product {
				plain[j] = float32(roundedTo(dtype, x))
			}
			_, ref, refUp := reference.SwiGLU(rowMajor(z.host), rowMajor(up.host), product)
			_, pt, ptUp := reference.SwiGLU(single(rowMajor(z.host)), single(rowMajor(up.host)), plain)
			var rows []int
			for row := range p.out.C.Elements() / c.n {
				rows = append(rows, row)
			}
			rounded, roundedUp := make([]float64, len(pt)), make([]float64, len(pt))
			for j := range pt {
				rounded[j], roundedUp[j] = roundedTo(dtype, float64(pt[j])), roundedTo(dtype, float64(ptUp[j]))
			}
			check := func(how string) {
				p.poison(epilogue.DUp)
				p.run()
				p.compare("c"+how, rows, p.out.C, ref, rounded)
				p.compare("dUp"+how, rows, epilogue.DUp, refUp, roundedUp)
			}
			check("")
			first, firstUp := download(t, d, p.out.C), download(t, d, epilogue.DUp)
			check(" again")
			if !slices.Equal(first, download(t, d, p.out.C)) || !slices.Equal(firstUp, download(t, d, epilogue.DUp)) {
				t.Errorf("%v: a second call gives other bits", p)
			}
			if c.n%8 == 0 && i >= large {
				p.overwrites(epilogue, first, firstUp)
			}
			if i > large && len(c.plus) == 0 {
				continue
			}
			epilogue.Z, epilogue.Up = up.device, z.device
			p.problem.Epilogue = epilogue
			_, ref, refUp = reference.SwiGLU(rowMajor(up.host), rowMajor(z.host), product)
			_, pt, ptUp = reference.SwiGLU(single(rowMajor(up.host)), single(rowMajor(z.host)), plain)
			for j := range pt {
				rounded[j], roundedUp[j] = roundedTo(dtype, float64(pt[j])), roundedTo(dtype, float64(ptUp[j]))
			}
			check(" in two passes")
			restore := d.WithoutMaps()
			check(" on any device")
			restore()
		}
	}
}

// overwrites checks that a product's two gradients come to lie over what they are of, with the bits
// of those that lie elsewhere.
func (p *productTest) overwrites(e kernels.GateGradient, first, firstUp []float64) {
	p.t.Helper()
	z, up := alloc(p.t, p.d, e.Z.DType, e.Z.Shape...), alloc(p.t, p.d, e.Up.DType, e.Up.Shape...)
	over := p.problem
	over.Epilogue = kernels.GateGradient{Z: e.Z, Up: e.Up, DUp: e.Up}
	if !p.d.GateGradientsInPlace(&over, e.Z) {
		p.t.Errorf("%v: gradients do not come to lie over what they are of", p)
		return
	}
	err := errors.Join(p.d.Copy(z, e.Z), p.d.Copy(up, e.Up), p.d.MatMul(&over, kernels.MatMulOutputs{C: e.Z}))
	if got, gotUp := download(p.t, p.d, e.Z), download(p.t, p.d, e.Up); !slices.Equal(first, got) || !slices.Equal(firstUp, gotUp) {
		p.t.Errorf("%v: gradients over what they are of have other bits", p)
	}
	if err = errors.Join(err, p.d.Copy(e.Z, z), p.d.Copy(e.Up, up)); err != nil {
		p.t.Fatal(err)
	}
}

// A product may be the first half of a gated MLP: in one pass where it is large and of 16 bits, and
// the second product lies behind the first. The factors lie in any order.
func TestMatMulGating(t *testing.T) {
	d := device(t)
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		for i, c := range []productCase{
			{m: 5, n: 7, k: 3}, {batch: []int{2, 2}, m: 33, n: 40, k: 24, gap: 8}, {m: 90, n: 72, k: 64, transposeB: true},
			{m: 1030, n: 1032, k: 72, gap: 8}, {m: 8200, n: 136, k: 136}, {m: 300, n: 3600, k: 1000, gap: 16}, {m: 1100, n: 1001, k: 40},
			{m: 90, n: 72, k: 64, plus: []int{9}}, {m: 1030, n: 1032, k: 72, plus: []int{16}}, {m: 1030, n: 1032, k: 264, plus: []int{5, 100}, gap: 8},
			{m: 1030, n: 1032, k: 72, transposeB: true, gap: 8}, {m: 8200, n: 136, k: 136, transposeB: true},
			{m: 300, n: 3600, k: 1000, transposeB: true, gap: 16}, {m: 1030, n: 1032, k: 264, transposeB: true, plus: []int{5, 100}, gap: 8},
		} {
			const large = 3
			if i >= large && dtype == kernels.F32 {
				break // has no pass of its own
			}
			p := newProductTest(t, dtype, c, uint64(i))
			pair := func(rows, columns int, transposed bool) (first, second values) {
				wide := 2*columns + c.gap
				both := (&productTest{productCase: c, t: t, d: d, dtype: dtype, random: p.random}).tensor(dtype, c.batch, rows, wide, transposed)
				last := len(c.batch) + 1
				cut := func(from int) values {
					return values{both.device.Slice(last, from, from+columns), both.host.Slice(last, from, from+columns)}
				}
				return cut(0), cut(columns + c.gap)
			}
			b, bUp := pair(c.k, c.n, c.transposeB)
			plus := [2][]kernels.Factors{rowsOf(p.exact.Plus, allRows(c.m))} // of Pre, and of Up
			for n, depth := range c.plus {
				own, other := pair(depth, c.n, c.transposeB)
				p.problem.Plus[n].B, p.problem.Plus[n].BUp = own.device, other.device
				plus[0][n].B = own.host
				plus[1] = append(plus[1], kernels.Factors{A: plus[0][n].A, B: other.host})
			}
			pre, up := pair(c.m, c.n, false)
			epilogue := kernels.Gate{BUp: bUp.device, Pre: pre.device, Up: up.device}
			p.problem.B, p.problem.Epilogue = b.device, epilogue
			a, rows := p.exact.A, []int(nil)
			for row := range p.out.C.Elements() / c.n {
				rows = append(rows, row)
			}
			if i >= large {
				var list []float64
				rows = slices.DeleteFunc(rows, func(row int) bool { return row%19 != (c.m-1)%19 })
				for _, row := range rows {
					list = append(list, rowMajor(a.Slice(0, row, row+1))...)
				}
				a = kernels.Of(list, len(rows), c.k)
				plus[0], plus[1] = rowsOf(plus[0], rows), rowsOf(plus[1], rows)
			}
			factor := func(b values, plus []kernels.Factors) (exact []float64, plain []float32, rounded []float64) {
				exact, _ = reference.MatMul[float64](&kernels.MatMul{A: a, B: b.host, Plus: plus}, nil)
				sums, _ := reference.MatMul[float32](&kernels.MatMul{A: narrowed(a, same), B: narrowed(b.host, same)}, nil)
				for _, x := range sums {
					rounded = append(rounded, roundedTo(dtype, float64(x)))
				}
				for _, f := range plus {
					more, _ := reference.MatMul[float32](&kernels.MatMul{A: narrowed(f.A, same), B: narrowed(f.B, same)}, nil)
					for i, x := range more {
						rounded[i] = roundedTo(dtype, rounded[i]+float64(x))
					}
				}
				return exact, single(rounded), rounded
			}
			refPre, plainPre, roundedPre := factor(b, plus[0])
			refUp, plainUp, roundedUp := factor(bUp, plus[1])
			ref, _, _ := reference.SwiGLU(refPre, refUp, refUp)
			pt, _, _ := reference.SwiGLU(plainPre, plainUp, plainUp)
			rounded := make([]float64, len(pt))
			for j := range pt {
				rounded[j] = roundedTo(dtype, float64(pt[j]))
			}
			check := func(how string) {
				p.poison(epilogue.Pre)
				p.poison(epilogue.Up)
				p.run()
				p.compare("c"+how, rows, p.out.C, ref, rounded)
				p.compare("pre"+how, rows, epilogue.Pre, refPre, roundedPre)
				p.compare("up"+how, rows, epilogue.Up, refUp, roundedUp)
			}
			check("")
			first := download(t, d, p.out.C)
			check(" again")
			if !slices.Equal(first, download(t, d, p.out.C)) {
				t.Errorf("%v: a second call gives other bits", p)
			}
			if i > large && len(c.plus) == 0 {
				continue
			}
			epilogue.BUp = b.device
			p.problem.B, p.problem.Epilogue = bUp.device, epilogue
			for n := range p.problem.Plus {
				f := &p.problem.Plus[n]
				f.B, f.BUp = f.BUp, f.B
			}
			refPre, refUp, roundedPre, roundedUp = refUp, refPre, roundedUp, roundedPre
			ref, _, _ = reference.SwiGLU(refPre, refUp, refUp)
			pt, _, _ = reference.SwiGLU(plainUp, plainPre, plainPre)
			for j := range pt {
				rounded[j] = roundedTo(dtype, float64(pt[j]))
			}
			check(" the other way round")
			restore := d.WithoutMaps()
			check(" on any device")
			restore()
		}
	}
}

// float32 tensors whose products need to be no more exact than TF32's.
func TestMatMulTF32(t *testing.T) {
	var cases []productCase
	for _, c := range productCases() {
		if c.k >= 64 && c.activation == kernels.NoActivation {
			c.precision = kernels.PrecisionTF32
			cases = append(cases, c)
		}
	}
	checkProducts(t, kernels.F32, cases, func(x float64) float64 {
		const last = 1 << 12 // of TF32's bits, among float32's
		bits := math.Float32bits(float32(x))
		return float64(math.Float32frombits((bits + last) &^ (2*last - 1)))
	})
}

// checkProducts computes each case with the kernels of the device, and with those for any device
// since Ampere, for much shared memory and for little. An unfused program changes operands as it is
// told.
func checkProducts(t *testing.T, dtype kernels.DType, cases []productCase, operands func(float64) float64) {
	t.Helper()
	d := device(t)
	tests, list := make([]*productTest, len(cases)), make([]expected, len(cases))
	var group sync.WaitGroup
	for i, c := range cases {
		tests[i] = newProductTest(t, dtype, c, uint64(i))
		group.Go(func() { list[i] = tests[i].expect(operands) })
	}
	group.Wait()
	for i, p := range tests {
		for n, choose := range []func() (restore func()){func() func() { return func() {} }, d.WithoutMaps, d.AsSmallest} {
			if p.accumulate && n > 0 {
				if err := d.Copy(p.out.C, upload(t, d, p.out.C.DType, p.initial, p.out.C.Shape...)); err != nil {
					t.Fatal(err)
				}
			}
			restore := choose()
			p.check(list[i])
			restore()
		}
	}
}

// What lies between the rows of outputs stays as it was, and sums are the same bits in every call:
// on the device, and on any.
func TestMatMulGapsAndBits(t *testing.T) {
	d := device(t)
	for _, choose := range []func() (restore func()){func() func() { return func() {} }, d.WithoutMaps, d.AsSmallest} {
		restore := choose()
		checkGapsAndBits(t)
		restore()
	}
}

func checkGapsAndBits(t *testing.T) {
	t.Helper()
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		for i, c := range []productCase{
			{m: 200, n: 264, k: 520, gap: 8}, {m: 200, n: 263, k: 520, gap: 3}, {m: 256, n: 256, k: 20000, gap: 16, transposeA: true},
		} {
			p := newProductTest(t, dtype, c, uint64(i))
			whole := kernels.Tensor{Data: p.out.C.Data, DType: dtype, Shape: []int{c.m, c.n + c.gap}, Strides: []int{c.n + c.gap, 1}, Owner: p.out.C.Owner}
			before := download(t, p.d, whole)
			p.run()
			first := download(t, p.d, whole)
			for j := range first {
				if j%(c.n+c.gap) >= c.n && first[j] != before[j] {
					t.Fatalf("%v: element %d of C's memory lies between its rows and became %v", p, j, first[j])
				}
			}
			p.run()
			if !slices.Equal(download(t, p.d, whole), first) {
				t.Errorf("%v: a second call gives other bits", p)
			}
		}
	}
}

// Gradients of weights of 1,600 rows have a tile of their own, whose blocks share A.
func TestMatMulSide(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		for i, c := range []productCase{
			{m: 1600, n: 1600, k: 520, transposeA: true}, {m: 1600, n: 4800, k: 200, transposeA: true, wideC: true},
			{m: 1500, n: 1600, k: 264, transposeA: true, gap: 8, accumulate: true, wideC: true, bias: true},
			{m: 1590, n: 1440, k: 4000, transposeA: true, gap: 8, bias: true, pre: true},
		} {
			p := newProductTest(t, dtype, c, uint64(i))
			var launched []string
			p.d.Trace(func(kernel string) { launched = append(launched, kernel) })
			p.check(p.expect(same))
			p.d.Trace(nil)
			if !slices.ContainsFunc(launched, func(kernel string) bool { return strings.Contains(kernel, "_side_") }) {
				t.Errorf("%v: %v have run, not the tile for such rows", p, launched)
			}
			if c.accumulate {
				continue
			}
			first := download(t, p.d, p.out.C)
			p.run()
			if !slices.Equal(first, download(t, p.d, p.out.C)) {
				t.Errorf("%v: a second call gives other bits", p)
			}
		}
	}
}

// Symmetric products have the errors of others, with a number on the diagonal and beside themselves
// without it. Large ones in float16 have a kernel of their own, whose halves have the same bits but
// near the diagonal.
func TestMatMulSymmetric(t *testing.T) {
	for i, c := range []struct {
		batch       []int
		side, depth int
		gap         int
		turned      bool // the first factor's columns are contiguous
		pre         bool
		dtype       kernels.DType
		whole       bool // no half is left out
	}{
		{side: 512, depth: 64}, {side: 520, depth: 1000, pre: true}, {side: 768, depth: 768, pre: true, turned: true},
		{side: 776, depth: 4096, gap: 8, turned: true}, {batch: []int{3}, side: 1000, depth: 200, gap: 16, pre: true},
		{batch: []int{2, 3}, side: 528, depth: 72, turned: true}, {batch: []int{48}, side: 768, depth: 128, pre: true},
		{batch: []int{5}, side: 640, depth: 2056, pre: true, turned: true}, {side: 2048, depth: 136, pre: true},
		{batch: []int{2, 2, 2}, side: 512, depth: 40, gap: 8, pre: true},
		{side: 264, depth: 512, pre: true, whole: true}, {side: 768, depth: 768, dtype: kernels.BF16, pre: true, whole: true},
		{side: 521, depth: 333, pre: true, whole: true}, {batch: []int{3}, side: 600, depth: 96, dtype: kernels.F32, whole: true},
		{batch: []int{0}, side: 512, depth: 64, whole: true}, {side: 512, depth: 0, pre: true, whole: true},
	} {
		dtype := kernels.F16
		if c.dtype != kernels.NoDType {
			dtype = c.dtype
		}
		p := newProductTest(t, dtype, productCase{batch: c.batch, m: c.side, n: c.side, k: c.depth, gap: c.gap, transposeA: c.turned, pre: c.pre}, uint64(i))
		last := len(c.batch) + 1
		transposed := func(x kernels.Tensor) kernels.Tensor {
			axes := make([]int, last+1)
			for axis := range axes {
				axes[axis] = axis
			}
			axes[last-1], axes[last] = last, last-1
			return x.Permute(axes...)
		}
		p.problem.B, p.exact.B = transposed(p.problem.A), transposed(p.exact.A)
		p.problem.Epilogue = kernels.Symmetric{Diagonal: -2.25, Pre: p.preOut}
		var launched []string
		p.d.Trace(func(kernel string) { launched = append(launched, kernel) })
		p.run()
		p.d.Trace(nil)
		if has := slices.ContainsFunc(launched, func(kernel string) bool { return strings.Contains(kernel, "_symmetric") }); has == c.whole {
			t.Errorf("%v: %v have run", p, launched)
		}
		// Rows of the whole batch, some where it is large.
		all := p.exact
		all.Epilogue = kernels.Activate{}
		ref, _ := reference.MatMul[float64](&all, nil)
		single, _ := reference.MatMul[float32](&kernels.MatMul{A: narrowed(all.A, same), B: narrowed(all.B, same)}, nil)
		e := expected{rows: allRows(len(ref) / c.side), pre: ref, c: slices.Clone(ref)}
		for k, x := range single {
			e.plain = append(e.plain, roundedTo(dtype, float64(x)))
			y := e.plain[k]
			if k/c.side%c.side == k%c.side {
				e.c[k] -= 2.25
				y = roundedTo(dtype, y-2.25)
			}
			e.plainC = append(e.plainC, y)
		}
		p.compare("c", e.rows, p.out.C, e.c, e.plainC)
		if c.pre {
			p.compare("pre", e.rows, p.preOut, e.pre, e.plain)
		}
		got := download(t, p.d, p.out.C)
		for k, x := range got {
			item, row, column := k/(c.side*c.side), k/c.side%c.side, k%c.side
			if mirror := got[(item*c.side+column)*c.side+row]; !c.whole && row/256 != column/256 && x != mirror {
				t.Fatalf("%v: c[%d %d] is %v, c[%d %d] is %v", p, row, column, x, column, row, mirror)
			}
		}
		p.run()
		if !slices.Equal(got, download(t, p.d, p.out.C)) {
			t.Errorf("%v: a second call gives other bits", p)
		}
	}
}

// Items of two axes that are not one have the bits of a product each.
func TestMatMulSymmetricItems(t *testing.T) {
	const side, depth = 520, 64 // one slice, so that all are summed in one order
	d := device(t)
	random := rand.New(rand.NewPCG(21, 22))
	list := make([]float64, 2*3*side*depth)
	for i := range list {
		list[i] = roundedTo(kernels.F16, random.NormFloat64())
	}
	x := upload(t, d, kernels.F16, list, 2, 3, side, depth).Slice(1, 1, 3)
	whole := make([]float64, 2*3*side*side)
	all := upload(t, d, kernels.F16, whole, 2, 3, side, side)
	out, pre := all.Slice(1, 0, 2), upload(t, d, kernels.F16, whole, 2, 3, side, side).Slice(1, 1, 3)
	m := &kernels.MatMul{A: x, B: x.Permute(0, 1, 3, 2), Epilogue: kernels.Symmetric{Diagonal: 3, Pre: pre}}
	if err := d.MatMul(m, kernels.MatMulOutputs{C: out}); err != nil {
		t.Fatal(err)
	}
	item := func(x kernels.Tensor, i, j int) kernels.Tensor {
		x = x.Slice(0, i, i+1).Slice(1, j, j+1)
		x.Shape, x.Strides = x.Shape[2:], x.Strides[2:]
		return x
	}
	for i := range 2 {
		for j := range 2 {
			one, alone := upload(t, d, kernels.F16, whole[:side*side], side, side), upload(t, d, kernels.F16, whole[:side*side], side, side)
			a := item(x, i, j)
			m := &kernels.MatMul{A: a, B: a.Permute(1, 0), Epilogue: kernels.Symmetric{Diagonal: 3, Pre: alone}}
			if err := d.MatMul(m, kernels.MatMulOutputs{C: one}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(download(t, d, item(out, i, j)), download(t, d, one)) || !slices.Equal(download(t, d, item(pre, i, j)), download(t, d, alone)) {
				t.Errorf("item %d %d has other bits than a product of its own", i, j)
			}
		}
		for _, x := range download(t, d, item(all, i, 2)) {
			if x != 0 {
				t.Fatalf("an item that is none of the product's was written: %v", x)
			}
		}
	}
}

// BenchmarkMatMulSymmetric is what Muon multiplies of GPT-2's matrices and larger ones, beside the
// same products with both halves.
func BenchmarkMatMulSymmetric(b *testing.B) {
	d := device(b)
	for _, c := range []struct{ count, side, depth int }{{48, 768, 768}, {12, 768, 2304}, {12, 768, 3072}, {8, 2048, 2048}, {8, 2048, 5632}} {
		for _, turned := range []bool{false, true} {
			x, out := normalMatrix(b, d, c.count*c.side, c.depth), normalMatrix(b, d, c.count*c.side, c.side)
			// the bits of bfloat16 are numbers of float16 too
			x.DType, out.DType, out.Shape, out.Strides = kernels.F16, kernels.F16, []int{c.count, c.side, c.side}, []int{c.side * c.side, c.side, 1}
			x = x.Reshape(c.count, c.side, c.depth)
			m := kernels.MatMul{A: x, B: x.Permute(0, 2, 1)}
			if turned {
				x = x.Reshape(c.count, c.depth, c.side)
				m.A, m.B = x.Permute(0, 2, 1), x
			}
			for name, epilogue := range map[string]kernels.Epilogue{"whole": nil, "symmetric": kernels.Symmetric{Diagonal: 1}} {
				b.Run(fmt.Sprintf("%dx%dx%d/turned=%t/%s", c.count, c.side, c.depth, turned, name), func(b *testing.B) {
					m := m
					m.Epilogue = epilogue
					call := func() error { return d.MatMul(&m, kernels.MatMulOutputs{C: out}) }
					one, err := ofRecording(b, d, []func() error{call, call, call, call})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(one*1e6, "µs")
					b.ReportMetric(m.FLOPs()/one/1e12, "TFLOP/s")
				})
			}
		}
	}
}

// A value that is not finite reaches the row or column that it belongs to, and nothing else.
func TestMatMulSpreadsNaN(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			p := newProductTest(t, dtype, productCase{m: 160, n: 200, k: 136}, 1)
			one := upload(t, p.d, dtype, []float64{bad}, 1, 1)
			if err := p.d.Copy(p.problem.A.Slice(0, 1, 2).Slice(1, 2, 3), one); err != nil {
				t.Fatal(err)
			}
			if err := p.d.Copy(p.problem.B.Slice(0, 5, 6).Slice(1, 1, 2), one); err != nil {
				t.Fatal(err)
			}
			p.run()
			for i, x := range download(t, p.d, p.out.C) {
				if finite := !math.IsNaN(x) && !math.IsInf(x, 0); finite == (i/p.n == 1 || i%p.n == 1) {
					t.Fatalf("%v with %v in row 1 of A and column 1 of B: c[%d %d] is %v", dtype, bad, i/p.n, i%p.n, x)
				}
			}
		}
	}
}

// Operands may be broadcast along any axis by a stride of 0, and have more than two axes of a
// batch.
func TestMatMulStrides(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(3, 3))
	list := make([]float64, 1<<14)
	for i := range list {
		list[i] = roundedTo(kernels.BF16, random.NormFloat64())
	}
	for name, c := range map[string]struct{ shape, a, b, c []int }{
		"A's rows":          {[]int{50, 40, 30}, []int{0, 1}, []int{40, 1}, []int{40, 1}},
		"A's columns":       {[]int{50, 40, 30}, []int{1, 0}, []int{40, 1}, []int{40, 1}},
		"all of A":          {[]int{50, 40, 30}, []int{0, 0}, []int{40, 1}, []int{40, 1}},
		"B's rows":          {[]int{50, 40, 30}, []int{30, 1}, []int{0, 1}, []int{40, 1}},
		"B's columns":       {[]int{50, 40, 30}, []int{30, 1}, []int{1, 0}, []int{40, 1}},
		"none":              {[]int{50, 40, 30}, []int{2, 101}, []int{3, 90}, []int{40, 1}},
		"a batch of A":      {[]int{5, 24, 40, 16}, []int{0, 16, 1}, []int{640, 40, 1}, []int{960, 40, 1}},
		"a batch of B":      {[]int{5, 24, 40, 16}, []int{384, 1, 24}, []int{0, 1, 16}, []int{1000, 40, 1}},
		"a batch's axes":    {[]int{2, 3, 2, 8, 16, 8}, []int{64, 256, 1024, 8, 1}, []int{128, 0, 512, 16, 1}, []int{128, 512, 2048, 16, 1}},
		"an axis in a head": {[]int{3, 4, 16, 32, 8}, []int{512, 8, 32, 1}, []int{8, 1024, 1, 32}, []int{2048, 512, 32, 1}},
	} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			batch, rest := c.shape[:len(c.shape)-3], c.shape[len(c.shape)-3:]
			memory := upload(t, d, dtype, list, len(list))
			view := func(base kernels.Tensor, strides []int, rows, columns int) kernels.Tensor {
				base.Shape, base.Strides = append(slices.Clone(batch), rows, columns), strides
				return base
			}
			p := kernels.MatMul{A: view(memory, c.a, rest[0], rest[2]), B: view(memory, c.b, rest[2], rest[1])}
			exact := kernels.MatMul{A: view(kernels.Of(list, len(list)), c.a, rest[0], rest[2]), B: view(kernels.Of(list, len(list)), c.b, rest[2], rest[1])}
			out := view(upload(t, d, kernels.F32, list, len(list)), c.c, rest[0], rest[1])
			if err := d.MatMul(&p, kernels.MatMulOutputs{C: out}); err != nil {
				t.Fatal(err)
			}
			ref, _ := reference.MatMul[float64](&exact, nil)
			for i, x := range download(t, d, out) {
				if !(math.Abs(x-ref[i]) <= 2e-5) {
					t.Fatalf("broadcasting %s, %v: element %d of C is %v instead of %v", name, dtype, i, x, ref[i])
				}
			}
		}
	}
}

func TestMatMulErrors(t *testing.T) {
	d := device(t)
	tensor := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		x, err := d.Alloc(dtype, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for want, change := range map[string]func(p *kernels.MatMul, out *kernels.MatMulOutputs){
		"c is missing, it needs shape [2 3 5]":                                                        func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C = kernels.Tensor{} },
		"c has strides [3 1 6] for shape [2 3 5], it needs a stride of 1 on axis 2":                   func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C.Strides = []int{3, 1, 6} },
		"c has strides [0 5 1] for shape [2 3 5], so that elements of it would lie in the same place": func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C.Strides[0] = 0 },
		"pre is float16, it needs to be bfloat16 or float32": func(p *kernels.MatMul, out *kernels.MatMulOutputs) {
			pre := out.C
			pre.DType = kernels.F16
			p.Epilogue = kernels.Activate{Pre: pre}
		},
		"bias is float16, it needs to be bfloat16 or float32": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.Bias = tensor(kernels.F16, 5) },
		"z has shape [2 3 4] and strides [12 4 1], it needs shape [2 3 5]": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) {
			p.Epilogue = kernels.TimesSlope{Z: tensor(kernels.BF16, 2, 3, 4)}
		},
		"z is missing, it needs shape [2 3 5]": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) {
			p.Epilogue = kernels.GateGradient{Up: tensor(kernels.BF16, 2, 3, 5)}
		},
		"columnSums has shape [3] and strides [1], it needs shape [5]": func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.ColumnSums = tensor(kernels.F32, 3) },
		"sumsOfB has shape [3] and strides [1], it needs shape [5]":    func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.SumsOfB = tensor(kernels.F32, 3) },
		"b has shape [4 5] but no data":                                func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.B.Data = nil },
	} {
		p, out := &kernels.MatMul{A: tensor(kernels.BF16, 2, 3, 4), B: tensor(kernels.BF16, 4, 5)}, kernels.MatMulOutputs{C: tensor(kernels.BF16, 2, 3, 5)}
		change(p, &out)
		if err := d.MatMul(p, out); err == nil || err.Error() != "cuda:0: matmul: "+want {
			t.Errorf("the error is %q, it needs to be %q", err, "cuda:0: matmul: "+want)
		}
	}
}
