package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/packed"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// productCase is one product; its zero options are row-major operands without gaps, and C = A·B.
type productCase struct {
	m, n, k                int
	batch                  []int
	sharedB                bool
	transposeA, transposeB bool
	gap                    int // elements between the rows of all tensors
	bias, accumulate, pre  bool
	activation             kernels.Activation
	weights                kernels.DType // of B, where that is kept in less memory beside float32
	plus                   []int         // the depths of further factors
	precision              kernels.Precision
}

var productSizes = []int{0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129, 256}

// productCases pairs every size with three others on each of the other axes, under options that
// take turns.
func productCases() []productCase {
	var cases []productCase
	size := func(i int) int { return productSizes[i%len(productSizes)] }
	for i := range 2 * len(productSizes) {
		c := productCase{m: size(i), n: size(i*7 + 3 + i/18*5), k: size(i*11 + 5 + i/18*2)}
		c.transposeA, c.transposeB = i%2 == 1, i/2%2 == 1
		c.gap = i % 3 * 5
		c.bias, c.pre = i%4 < 2, i%5 == 0
		if c.accumulate = i%7 == 2; !c.accumulate {
			c.activation = kernels.Activation(i % len(kernels.Activations()))
		}
		cases = append(cases, c)
	}
	return append(cases,
		productCase{m: 3, n: 40, k: 300},
		productCase{m: 3, n: 700, k: 300, transposeB: true},
		productCase{m: 3, n: 70, k: 300, transposeB: true, transposeA: true, gap: 3, accumulate: true, bias: true},
		productCase{m: 1, n: 1100, k: 33},
		productCase{m: 1, n: 203, k: 768, bias: true, pre: true, activation: kernels.GELUTanh}, // in parts, as these
		productCase{m: 3, n: 4100, k: 200, gap: 5, accumulate: true, bias: true},
		productCase{m: 2, n: 70, k: 520, transposeA: true, gap: 1},
		productCase{m: 130, n: 3, k: 300, transposeB: true},
		productCase{m: 130, n: 19, k: 300, accumulate: true, gap: 2},
		productCase{m: 64, n: 600, k: 700, gap: 1},
		productCase{m: 130, n: 1030, k: 30, transposeB: true},
		productCase{m: 60, n: 300, k: 1024, accumulate: true},
		productCase{batch: []int{3}, m: 17, n: 33, k: 20},
		productCase{batch: []int{3}, m: 17, n: 33, k: 20, sharedB: true},
		productCase{batch: []int{3}, m: 17, n: 33, k: 20, sharedB: true, gap: 4, accumulate: true},
		productCase{batch: []int{2, 3}, m: 17, n: 33, k: 20, transposeA: true, sharedB: true, pre: true, activation: kernels.GELUTanh},
		productCase{batch: []int{2, 3}, m: 1, n: 65, k: 40, sharedB: true, bias: true},
		productCase{batch: []int{2, 1, 3}, m: 65, n: 64, k: 64, transposeB: true, gap: 3, bias: true},
		productCase{batch: []int{0}, m: 5, n: 5, k: 5},
		productCase{batch: []int{40}, m: 64, n: 24, k: 64, transposeB: true},
		productCase{m: 33, n: 100, k: 64, plus: []int{8}, bias: true},
		productCase{m: 5, n: 70, k: 31, plus: []int{1, 40}, transposeA: true, gap: 3, accumulate: true},
		productCase{m: 64, n: 33, k: 20, plus: []int{3, 70, 8}, transposeB: true, bias: true, pre: true, activation: kernels.GELUTanh},
		productCase{batch: []int{2, 3}, m: 17, n: 33, k: 20, plus: []int{4}, sharedB: true, activation: kernels.SiLU},
		productCase{m: 3, n: 2, k: 0, plus: []int{0, 5}, pre: true},
		productCase{m: 130, n: 5003, k: 1}, productCase{m: 5003, n: 1, k: 1}, productCase{m: 1, n: 1, k: 1},
		productCase{m: 70, n: 33, k: 1, gap: 3, transposeA: true, transposeB: true},
		productCase{batch: []int{40}, m: 700, n: 1, k: 1},
		productCase{batch: []int{2, 3}, m: 17, n: 33, k: 1, gap: 2},
		productCase{batch: []int{3}, m: 17, n: 33, k: 1, sharedB: true},
		productCase{batch: []int{3}, m: 17, n: 1, k: 1, gap: 4, transposeA: true},
		productCase{m: 7, n: 0, k: 1}, productCase{m: 0, n: 1, k: 1},
	)
}

// packedCases are products of float32 and packed matrices.
func packedCases() []productCase {
	cases := []productCase{
		{m: 1, n: 203, k: 768, transposeB: true, bias: true, pre: true, activation: kernels.GELUTanh},
		{m: 1, n: 7, k: 64, transposeB: true}, {m: 1, n: 2304, k: 128, transposeB: true},
		{m: 3, n: 333, k: 448, transposeB: true, transposeA: true, gap: 3, accumulate: true, bias: true},
		{m: 4, n: 35, k: 704, transposeB: true, pre: true, activation: kernels.SiLU},
		{m: 5, n: 35, k: 704, transposeB: true, pre: true, activation: kernels.SiLU},
		{m: 12, n: 70, k: 832, transposeB: true, bias: true}, {m: 13, n: 70, k: 832, transposeB: true, bias: true},
		{m: 16, n: 1000, k: 1280, transposeB: true}, {m: 17, n: 65, k: 64, transposeB: true},
		{m: 70, n: 40, k: 2624, transposeB: true, bias: true}, {m: 130, n: 515, k: 192, transposeB: true, accumulate: true, gap: 2},
		{batch: []int{2, 3}, m: 1, n: 65, k: 64, sharedB: true, transposeB: true, bias: true},
		{batch: []int{3}, m: 2, n: 33, k: 128, sharedB: true, transposeB: true, transposeA: true, pre: true, activation: kernels.GELUErf},
		{m: 1, n: 768, k: 203}, {m: 4, n: 64, k: 1}, {m: 17, n: 448, k: 33, bias: true}, {m: 70, n: 1280, k: 65, accumulate: true},
		{m: 130, n: 192, k: 515, transposeA: true, gap: 2}, {batch: []int{3}, m: 2, n: 128, k: 33, sharedB: true},
		{m: 0, n: 3, k: 64, transposeB: true}, {m: 4, n: 0, k: 64, transposeB: true},
	}
	var all []productCase
	for _, dtype := range []kernels.DType{kernels.Int8, kernels.Int4, kernels.NF4} {
		for _, c := range cases {
			c.weights = dtype
			all = append(all, c)
		}
	}
	return all
}

// packedTensor is a matrix of k rows and n columns packed, or its transpose.
func packedTensor(dtype kernels.DType, values []float32, k, n int, transposed bool) kernels.Tensor {
	t := kernels.Tensor{DType: dtype, Shape: []int{k, n}, Strides: []int{n, 1}}
	rows, columns := k, n
	if transposed {
		rows, columns, t.Strides = n, k, []int{1, k}
		across := make([]float32, len(values))
		for i := range values {
			across[i%n*k+i/n] = values[i]
		}
		values = across
	}
	bytes, err := packed.Pack(dtype, values, rows, columns)
	if err != nil {
		panic(err)
	}
	t.Data = unsafe.Pointer(unsafe.SliceData(bytes))
	return t
}

// weightCases are products of float32 and 16-bit numbers.
func weightCases() []productCase {
	cases := []productCase{
		{m: 1, n: 203, k: 768, bias: true, pre: true, activation: kernels.GELUTanh},
		{m: 1, n: 2304, k: 200},
		{m: 3, n: 4100, k: 200, gap: 5, accumulate: true, bias: true},
		{m: 16, n: 70, k: 520, transposeA: true, gap: 1},
		{m: 1, n: 1000, k: 97, transposeB: true},
		{m: 5, n: 333, k: 130, transposeB: true, transposeA: true, gap: 3, accumulate: true, bias: true},
		{m: 16, n: 35, k: 700, transposeB: true, pre: true, activation: kernels.SiLU},
		{m: 17, n: 65, k: 33}, {m: 70, n: 40, k: 64, transposeB: true, bias: true},
		{batch: []int{2, 3}, m: 1, n: 65, k: 40, sharedB: true, bias: true},
		{batch: []int{3}, m: 2, n: 33, k: 20, sharedB: true, transposeA: true, pre: true, activation: kernels.GELUErf},
		{batch: []int{2}, m: 3, n: 20, k: 30, gap: 2},
		{m: 1, n: 1, k: 1}, {m: 2, n: 3, k: 5}, {m: 0, n: 3, k: 5}, {m: 4, n: 0, k: 7}, {m: 4, n: 7, k: 0, bias: true},
	}
	var all []productCase
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		for _, c := range cases {
			c.weights = dtype
			all = append(all, c)
		}
	}
	return all
}

func TestMatMul(t *testing.T) {
	slow.Emulated(t)
	for i, c := range productCases() {
		if !leftOut(i) {
			checkProduct[float32](t, c, uint64(i))
		}
		if !leftOut(i + 3) {
			checkProduct[float64](t, c, uint64(i))
		}
	}
	for i, c := range weightCases() {
		if !leftOut(i) {
			checkProduct[float32](t, c, uint64(i))
		}
	}
}

func TestMatMulPacked(t *testing.T) {
	slow.Emulated(t)
	for i, c := range packedCases() {
		if !leftOut(i) {
			checkProduct[float32](t, c, uint64(i))
		}
	}
}

// checkProduct compares one product at every level of vector instructions with the reference.
func checkProduct[T kernels.Float](t *testing.T, c productCase, seed uint64) {
	t.Helper()
	p := newProduct[T](c, seed)
	initial := make([]float64, len(p.initial))
	for i, x := range p.initial {
		initial[i] = float64(x)
	}
	refC, refPre := reference.MatMul(&p.problem, initial)
	var naiveC, naivePre []T
	if kernels.DTypeOf[T]() == kernels.F32 {
		naiveC, naivePre = reference.MatMul(&p.problem, p.initial)
	}
	for _, level := range levels() {
		for _, digits := range []bool{false, true} {
			if digits && (!c.weights.IsPacked() || c.m > 13) {
				continue // 12 rows have them at most
			}
			func() {
				defer simd.SetLevel(level)()
				defer simd.SetDigits(digits)()
				p := newProduct[T](c, seed)
				p.run(t, 2)
				p.compare(t, "c", p.out.C, p.c, refC, naiveC)
				if c.pre {
					p.compare(t, "pre", p.epilogue.Pre, p.pre, refPre, naivePre)
				}
			}()
		}
	}
}

// Rows of A that digits do not hold are multiplied as float32, and no others.
func TestMatMulPackedOutsideOfDigits(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, weights := range []kernels.DType{kernels.Int8, kernels.Int4} {
		for _, x := range []float32{0, 1, inf, -inf, float32(math.NaN()), 1e30, 1e-30} {
			run := func(digits bool) []float32 {
				defer simd.SetDigits(digits)()
				p := newProduct[float32](productCase{m: 2, n: 33, k: 320, transposeB: true, weights: weights}, 1)
				row := kernels.Host[float32](p.problem.A)[320:][:32]
				for i := range row {
					row[i] = 0
				}
				row[7] = x
				p.run(t, 2)
				return p.c
			}
			plain, digits := run(false), run(true)
			same := func(from, to int) bool {
				return slices.EqualFunc(plain[from:to], digits[from:to], func(x, y float32) bool { return x == y || x != x && y != y })
			}
			if held := x == 0 || x == 1; same(0, 33) || same(33, 66) == held {
				t.Errorf("%v, with %g in row 1: digits leave row 0 alone: %v, row 1: %v", weights, x, same(0, 33), same(33, 66))
			}
		}
	}
}

// product is a problem with its tensors, and what C and Pre held before.
type product[T kernels.Float] struct {
	productCase
	seed        uint64
	problem     kernels.MatMul
	out         kernels.MatMulOutputs
	epilogue    kernels.Activate
	c, pre      []T // the memory of the outputs
	initial     []T // of C, row-major
	untouchable T   // what lies between the rows of outputs
}

func newProduct[T kernels.Float](c productCase, seed uint64) *product[T] {
	random := rand.New(rand.NewPCG(seed, 1))
	p := &product[T]{productCase: c, seed: seed, untouchable: 12345}
	tensor := func(batch []int, rows, columns int, transposed bool) (kernels.Tensor, []T) {
		if transposed {
			rows, columns = columns, rows
		}
		wide := append(slices.Clone(batch), rows, columns+c.gap)
		data := make([]T, max(1, kernels.Contiguous(nil, kernels.F32, wide...).Elements()))
		for i := range data {
			data[i] = T(random.NormFloat64())
		}
		view := kernels.Of(data, wide...).Slice(len(wide)-1, 0, columns)
		if transposed {
			order := make([]int, len(wide))
			for i := range order {
				order[i] = i
			}
			slices.Reverse(order[len(order)-2:])
			view = view.Permute(order...)
		}
		return view, data
	}
	batchB := c.batch
	if c.sharedB {
		batchB = nil
	}
	p.problem.A, _ = tensor(c.batch, c.m, c.k, c.transposeA)
	for _, depth := range c.plus {
		var f kernels.Factors
		f.A, _ = tensor(c.batch, c.m, depth, c.transposeA)
		f.B, _ = tensor(nil, depth, c.n, c.transposeB)
		p.problem.Plus = append(p.problem.Plus, f)
	}
	var memory []T
	if p.problem.B, memory = tensor(batchB, c.k, c.n, c.transposeB); c.weights.IsPacked() {
		p.problem.B = packedTensor(c.weights, rowMajorValues[float32](p.problem.B), c.k, c.n, c.transposeB)
	} else if c.weights != kernels.NoDType {
		// What lies between the rows is NaN.
		kept := slices.Repeat([]kernels.BFloat16{0x7fff}, len(memory))
		half := kernels.Tensor{Data: unsafe.Pointer(&kept[0]), DType: c.weights, Shape: p.problem.B.Shape, Strides: p.problem.B.Strides}
		kernels.CopyHost(half, p.problem.B)
		p.problem.B = half
	}
	p.problem.Accumulate, p.problem.Precision, p.epilogue.Activation = c.accumulate, c.precision, c.activation
	if c.bias {
		p.problem.Bias, _ = tensor(nil, 1, c.n, false)
		p.problem.Bias = kernels.Tensor{Data: p.problem.Bias.Data, DType: p.problem.Bias.DType, Shape: []int{c.n}, Strides: []int{1}}
	}
	p.out.C, p.c = tensor(c.batch, c.m, c.n, false)
	p.initial = rowMajorValues[T](p.out.C)
	p.fence(p.out.C, p.c)
	if c.pre {
		p.epilogue.Pre, p.pre = tensor(c.batch, c.m, c.n, false)
		p.fence(p.epilogue.Pre, p.pre)
	}
	p.problem.Epilogue = p.epilogue
	return p
}

// fence marks the memory between the rows of an output.
func (p *product[T]) fence(t kernels.Tensor, data []T) {
	inside := p.inside(t, len(data))
	for i := range data {
		if !inside[i] {
			data[i] = p.untouchable
		}
	}
}

// inside tells which elements of the memory of a tensor are the tensor's.
func (p *product[T]) inside(t kernels.Tensor, n int) []bool {
	list := make([]bool, n)
	for i := range t.Elements() {
		offset, rest := 0, i
		for axis := len(t.Shape) - 1; axis >= 0; axis-- {
			offset += rest % t.Shape[axis] * t.Strides[axis]
			rest /= t.Shape[axis]
		}
		list[offset] = true
	}
	return list
}

// rowMajorValues copies a tensor's elements.
func rowMajorValues[T kernels.Float](t kernels.Tensor) []T {
	host, list := kernels.Host[T](t), make([]T, t.Elements())
	for i := range list {
		offset, rest := 0, i
		for axis := len(t.Shape) - 1; axis >= 0; axis-- {
			offset += rest % t.Shape[axis] * t.Strides[axis]
			rest /= t.Shape[axis]
		}
		list[i] = host[offset]
	}
	return list
}

func (p *product[T]) String() string {
	return fmt.Sprintf("%v %v %+v seed %d", kernels.DTypeOf[T](), simd.Active(), p.productCase, p.seed)
}

func (p *product[T]) run(t *testing.T, threads int) {
	t.Helper()
	backend := &cpu.Backend{Threads: threads}
	if err := backend.MatMul(&p.problem, p.out); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
}

// compare holds an output against the reference: in float32 by the criterion that package reference
// states, with naive what plain loops in float32 give, in float64 by a relative error.
func (p *product[T]) compare(t *testing.T, name string, out kernels.Tensor, memory []T, ref []float64, naive []T) {
	t.Helper()
	var worst, worstNaive, largest float64
	for i, x := range rowMajorValues[T](out) {
		e := math.Abs(float64(x) - ref[i])
		if math.IsNaN(e) {
			e = math.Inf(1)
		}
		worst, largest = max(worst, e), max(largest, math.Abs(ref[i]))
		if naive != nil {
			worstNaive = max(worstNaive, math.Abs(float64(naive[i])-ref[i]))
		}
	}
	bound := 2*worstNaive + float32Step*largest
	if kernels.DTypeOf[T]() == kernels.F64 {
		bound = 1e-13 * max(1, largest)
	}
	if !(worst <= bound) {
		t.Errorf("%v: %s has an error of %.3g, bound %.3g (plain loops %.3g, largest %.3g)", p, name, worst, bound, worstNaive, largest)
	}
	inside := p.inside(out, len(memory))
	for i, x := range memory {
		if !inside[i] && x != p.untouchable {
			t.Fatalf("%v: element %d of %s's memory lies between its rows and became %v", p, i, name, x)
		}
	}
}

// A product may be the gradient of what an activation was applied to, and have the sums of its
// columns or those of B's.
func TestMatMulGradient(t *testing.T) {
	bothTypes(t, testMatMulGradient[float32], testMatMulGradient[float64])
}

func testMatMulGradient[T kernels.Float](t *testing.T) {
	for i, s := range [][3]int{{1, 1, 1}, {5, 7, 3}, {40, 33, 17}, {130, 70, 65}} {
		r := newRandom()
		a, b, z := newField[T](r, i, s[0], s[2]), newField[T](r, 0, s[2], s[1]), newField[T](r, 2*i, s[0], s[1])
		c, sums := newField[T](r, i, s[0], s[1]), newField[T](r, 0, s[1])
		for _, act := range kernels.Activations() {
			m := &kernels.MatMul{A: a.Tensor, B: b.Tensor, Epilogue: kernels.TimesSlope{Activation: act, Z: z.Tensor}}
			product, _ := reference.MatMul[float64](&kernels.MatMul{A: a.Tensor, B: b.Tensor}, nil)
			plain, _ := reference.MatMul[T](&kernels.MatMul{A: a.Tensor, B: b.Tensor}, nil)
			_, ref := reference.Activation(act, z.values(), product)
			_, pt := reference.Activation(act, z.typed(), plain)
			refSums, ptSums := reference.SumRows[float64](kernels.Of(ref, s[0], s[1])), reference.SumRows[T](kernels.Of(pt, s[0], s[1]))
			verify[T](t, fmt.Sprint(s, act), func(backend *cpu.Backend) ([]result, error) {
				err := backend.MatMul(m, kernels.MatMulOutputs{C: c.Tensor, ColumnSums: sums.Tensor})
				return []result{resultOf("c", c, ref, pt), resultOf("column sums", sums, refSums, ptSums)}, err
			})
			sumsOfB := newField[T](r, 0, s[1])
			refSums, ptSums = reference.SumRows[float64](b.Tensor), reference.SumRows[T](b.Tensor)
			verify[T](t, fmt.Sprint(s, act, " and sums of b"), func(backend *cpu.Backend) ([]result, error) {
				err := backend.MatMul(m, kernels.MatMulOutputs{C: c.Tensor, SumsOfB: sumsOfB.Tensor})
				return []result{resultOf("c", c, ref, pt), resultOf("sums of b", sumsOfB, refSums, ptSums)}, err
			})
			if act != kernels.SiLU {
				continue
			}
			up, dUp := newField[T](r, i, s[0], s[1]), newField[T](r, i, s[0], s[1])
			m.Epilogue = kernels.GateGradient{Z: z.Tensor, Up: up.Tensor, DUp: dUp.Tensor}
			_, ref, refUp := reference.SwiGLU(z.values(), up.values(), product)
			_, pt, ptUp := reference.SwiGLU(z.typed(), up.typed(), plain)
			verify[T](t, fmt.Sprint(s, " gated"), func(backend *cpu.Backend) ([]result, error) {
				err := backend.MatMul(m, kernels.MatMulOutputs{C: c.Tensor})
				return []result{resultOf("c", c, ref, pt), resultOf("dUp", dUp, refUp, ptUp)}, err
			})
			bUp, pre, upOut := newField[T](r, 0, s[2], s[1]), newField[T](r, i, s[0], s[1]), newField[T](r, 2*i, s[0], s[1])
			gate := kernels.Gate{BUp: bUp.Tensor, Pre: pre.Tensor, Up: upOut.Tensor}
			m = &kernels.MatMul{A: a.Tensor, B: b.Tensor, Epilogue: gate}
			productUp, _ := reference.MatMul[float64](&kernels.MatMul{A: a.Tensor, B: bUp.Tensor}, nil)
			plainUp, _ := reference.MatMul[T](&kernels.MatMul{A: a.Tensor, B: bUp.Tensor}, nil)
			ref, _, _ = reference.SwiGLU(product, productUp, product)
			pt, _, _ = reference.SwiGLU(plain, plainUp, plain)
			verify[T](t, fmt.Sprint(s, " gates"), func(backend *cpu.Backend) ([]result, error) {
				err := backend.MatMul(m, kernels.MatMulOutputs{C: c.Tensor})
				return []result{resultOf("c", c, ref, pt), resultOf("pre", pre, product, plain), resultOf("up", upOut, productUp, plainUp)}, err
			})
		}
	}
}

// A symmetric product may have a number on its diagonal, beside the product without it.
func TestMatMulSymmetric(t *testing.T) {
	bothTypes(t, testMatMulSymmetric[float32], testMatMulSymmetric[float64])
}

func testMatMulSymmetric[T kernels.Float](t *testing.T) {
	for i, s := range [][3]int{{1, 1, 1}, {2, 5, 3}, {3, 40, 17}, {1, 130, 70}} {
		r := newRandom()
		a, c, pre := newField[T](r, i, s[:]...), newField[T](r, i, s[0], s[1], s[1]), newField[T](r, 2*i, s[0], s[1], s[1])
		plain := kernels.MatMul{A: a.Tensor, B: a.Permute(0, 2, 1)}
		refPre, _ := reference.MatMul[float64](&plain, nil)
		ptPre, _ := reference.MatMul[T](&plain, nil)
		ref, pt := slices.Clone(refPre), slices.Clone(ptPre)
		for k := range s[0] * s[1] {
			ref[k*s[1]+k%s[1]] += 1.5
			pt[k*s[1]+k%s[1]] += 1.5
		}
		both, alone := plain, plain
		both.Epilogue, alone.Epilogue = kernels.Symmetric{Diagonal: 1.5, Pre: pre.Tensor}, kernels.Symmetric{}
		verify[T](t, fmt.Sprint(s, " with a diagonal"), func(backend *cpu.Backend) ([]result, error) {
			err := backend.MatMul(&both, kernels.MatMulOutputs{C: c.Tensor})
			return []result{resultOf("c", c, ref, pt), resultOf("pre", pre, refPre, ptPre)}, err
		})
		verify[T](t, fmt.Sprint(s), func(backend *cpu.Backend) ([]result, error) {
			err := backend.MatMul(&alone, kernels.MatMulOutputs{C: c.Tensor})
			return []result{resultOf("c", c, refPre, ptPre)}, err
		})
	}
}

func TestMatMulThreadsAreBitEqual(t *testing.T) {
	slow.Emulated(t)
	for _, level := range levels() {
		defer simd.SetLevel(level)()
		for i, c := range []productCase{
			{m: 256, n: 129, k: 300},
			{m: 256, n: 700, k: 65, transposeA: true, bias: true, activation: kernels.SiLU},
			{m: 2, n: 900, k: 300, transposeB: true},
			{m: 1, n: 2100, k: 300},
			{m: 2, n: 300, k: 768, bias: true},
			{m: 700, n: 2, k: 300},
			{m: 700, n: 35, k: 500},
			{m: 101, n: 700, k: 300, transposeA: true},
			{m: 301, n: 1111, k: 140, transposeA: true, accumulate: true},
			{m: 127, n: 141, k: 300},
			{m: 509, n: 515, k: 70},
			{m: 13, n: 1500, k: 100},
			{m: 253, n: 1999, k: 400},
			{m: 130, n: 300, k: 900, transposeA: true, accumulate: true},
			{batch: []int{5}, m: 100, n: 65, k: 64, sharedB: true, gap: 3},
			{batch: []int{7}, m: 65, n: 100, k: 64, accumulate: true},
			{m: 1, n: 2100, k: 300, weights: kernels.BF16},
			{m: 2, n: 900, k: 300, transposeB: true, weights: kernels.F16},
			{m: 3, n: 4500, k: 768, bias: true, weights: kernels.BF16},
			{m: 1, n: 4500, k: 448, transposeB: true, weights: kernels.Int4},
			{m: 3, n: 2500, k: 800, transposeB: true, bias: true, weights: kernels.Int8},
			{m: 13, n: 1500, k: 448, transposeB: true, weights: kernels.NF4},
			{m: 101, n: 704, k: 300, accumulate: true, weights: kernels.Int8},
		} {
			if leftOut(i) {
				continue
			}
			one, seed := newProduct[float32](c, uint64(i)), uint64(i)
			one.run(t, 1)
			for _, threads := range []int{2, 3, 16, 33} {
				more := newProduct[float32](c, seed)
				more.run(t, threads)
				if !slices.Equal(more.c, one.c) {
					t.Errorf("%v: %d threads give other bits than one", more, threads)
				}
			}
		}
	}
}

// A value that is not finite reaches the row or column that it belongs to, and nothing else.
func TestMatMulSpreadsNaN(t *testing.T) {
	for _, level := range levels() {
		defer simd.SetLevel(level)()
		for i, c := range []productCase{
			{m: 50, n: 67, k: 33}, {m: 50, n: 67, k: 33, transposeA: true, transposeB: true}, {m: 2, n: 67, k: 50, transposeB: true},
			{m: 2, n: 67, k: 50}, {m: 67, n: 2, k: 50}, {m: 60, n: 70, k: 300},
		} {
			for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
				p := newProduct[float32](c, uint64(i))
				kernels.Host[float32](p.problem.A)[p.problem.A.Offset(1, 2)] = bad
				kernels.Host[float32](p.problem.B)[p.problem.B.Offset(5, 1)] = bad
				p.run(t, 2)
				ref, _ := reference.MatMul[float64](&p.problem, nil)
				for j, x := range rowMajorValues[float32](p.out.C) {
					if finite(float64(x)) != finite(ref[j]) || finite(ref[j]) == (j/c.n == 1 || j%c.n == 1) {
						t.Fatalf("%v: with %v in row 1 of A and column 1 of B, c[%d %d] is %v, the reference has %v", p, bad, j/c.n, j%c.n, x, ref[j])
					}
				}
			}
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Operands may be broadcast along any axis by a stride of 0.
func TestMatMulBroadcastStrides(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	data := make([]float64, 4096)
	for i := range data {
		data[i] = random.NormFloat64()
	}
	const m, n, k = 50, 40, 30
	for name, strides := range map[string][4]int{
		"A's rows": {0, 1, n, 1}, "A's columns": {1, 0, n, 1}, "all of A": {0, 0, n, 1}, "B's rows": {k, 1, 0, 1}, "B's columns": {k, 1, 1, 0},
		"all of B": {k, 1, 0, 0}, "none, both at odd strides": {2, 101, 3, 90},
	} {
		p := &kernels.MatMul{
			A: kernels.Tensor{Data: kernels.Of(data).Data, DType: kernels.F64, Shape: []int{m, k}, Strides: strides[:2]},
			B: kernels.Tensor{Data: kernels.Of(data).Data, DType: kernels.F64, Shape: []int{k, n}, Strides: strides[2:]},
		}
		c := make([]float64, m*n)
		if err := cpu.New().MatMul(p, kernels.MatMulOutputs{C: kernels.Of(c, m, n)}); err != nil {
			t.Fatal(err)
		}
		ref, _ := reference.MatMul[float64](p, nil)
		for i := range ref {
			if !(math.Abs(c[i]-ref[i]) <= 1e-12) {
				t.Fatalf("broadcasting %s: c[%d %d] is %v instead of %v", name, i/n, i%n, c[i], ref[i])
			}
		}
	}
}

func TestMatMulErrors(t *testing.T) {
	tensor := func(shape ...int) kernels.Tensor {
		return kernels.Of(make([]float32, kernels.Contiguous(nil, kernels.F32, shape...).Elements()), shape...)
	}
	for want, change := range map[string]func(p *kernels.MatMul, out *kernels.MatMulOutputs){
		"a is missing":                         func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.A = kernels.Tensor{} },
		"c is missing, it needs shape [2 3 5]": func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C = kernels.Tensor{} },
		"c has shape [2 3 6] and strides [18 6 1], it needs shape [2 3 5]":                            func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C = tensor(2, 3, 6) },
		"c has strides [3 1 6] for shape [2 3 5], it needs a stride of 1 on axis 2":                   func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C.Strides = []int{3, 1, 6} },
		"c has strides [0 5 1] for shape [2 3 5], so that elements of it would lie in the same place": func(_ *kernels.MatMul, out *kernels.MatMulOutputs) { out.C.Strides[0] = 0 },
		"pre is float64, it needs to be float32": func(p *kernels.MatMul, out *kernels.MatMulOutputs) {
			pre := out.C
			pre.DType = kernels.F64
			p.Epilogue = kernels.Activate{Pre: pre}
		},
		"b has shape [4 5] but no data":                                                             func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.B.Data = nil },
		"a is int32, it needs to be of floats":                                                      func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.A.DType, p.B.DType = kernels.I32, kernels.I32 },
		"b has 3 rows, it needs a's 4 columns: a is [2 3 4], b is [3 5]":                            func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.B = tensor(3, 5) },
		"b is int8 in blocks and has shape [4 5], its rows need to be of a multiple of 32 elements": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.B.DType = kernels.Int8 },
		"b is NF4 in blocks and has strides [96 1] for shape [4 64], its rows need to lie end to end": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) {
			p.B = kernels.Tensor{DType: kernels.NF4, Shape: []int{4, 64}, Strides: []int{96, 1}}
		},
		"b is int4 in blocks and has shape [2 4 64], it needs two axes": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) {
			p.B = kernels.Contiguous(nil, kernels.Int4, 2, 4, 64)
		},
		"b is int4 in blocks, beside an a of float64 it needs to be float64": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) {
			p.A.DType, p.B = kernels.F64, kernels.Contiguous(nil, kernels.Int4, 4, 64)
		},
		"activation is SiLU, it needs to be NoActivation to accumulate": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) {
			p.Accumulate, p.Epilogue = true, kernels.Activate{Activation: kernels.SiLU}
		},
		"bias has shape [4], it needs one value for each of b's 5 columns": func(p *kernels.MatMul, _ *kernels.MatMulOutputs) { p.Bias = tensor(4) },
	} {
		p, out := &kernels.MatMul{A: tensor(2, 3, 4), B: tensor(4, 5)}, kernels.MatMulOutputs{C: tensor(2, 3, 5)}
		change(p, &out)
		if err := cpu.New().MatMul(p, out); err == nil || err.Error() != "cpu: matmul: "+want {
			t.Errorf("the error is %q, it needs to be %q", err, "cpu: matmul: "+want)
		}
	}
}

func TestMatMulDoesNotAllocate(t *testing.T) {
	p := newProduct[float32](productCase{m: 100, n: 100, k: 100, transposeB: true, bias: true, activation: kernels.GELUTanh}, 1)
	backend := &cpu.Backend{Threads: 1}
	run := func() {
		if err := backend.MatMul(&p.problem, p.out); err != nil {
			t.Fatal(err)
		}
	}
	run()
	// The shapes and closures of a call are small, a workspace has 60 KB. Under the race detector a
	// pool loses a quarter of what it is given.
	if bytes := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			run()
		}
	}).AllocedBytesPerOp(); bytes > 30<<10 {
		t.Errorf("a call allocates %d bytes, its workspaces need to be reused", bytes)
	}
}

func TestSumRows(t *testing.T) {
	for _, level := range levels() {
		defer simd.SetLevel(level)()
		for i, shape := range [][]int{{1}, {7}, {1, 5}, {3, 0}, {0, 3}, {2, 3, 17}, {300, 1}, {1000, 65}, {4, 129, 33}, {5000, 20}} {
			for _, gap := range []int{0, 3} {
				for _, accumulate := range []bool{false, true} {
					checkSumRows[float32](t, shape, gap, accumulate, uint64(i))
					checkSumRows[float64](t, shape, gap, accumulate, uint64(i))
				}
			}
		}
	}
}

func checkSumRows[T kernels.Float](t *testing.T, shape []int, gap int, accumulate bool, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	last := len(shape) - 1
	n := shape[last]
	wide := slices.Clone(shape)
	wide[last] += gap
	data := make([]T, max(1, kernels.Contiguous(nil, kernels.F32, wide...).Elements()))
	for i := range data {
		data[i] = T(random.NormFloat64() + 1)
	}
	x := kernels.Of(data, wide...).Slice(last, 0, n)
	ref := make([]float64, n)
	for i, v := range rowMajorValues[T](x) {
		ref[i%n] += float64(v)
	}
	var first []T
	for _, threads := range []int{1, 2, 3} {
		sums := make([]T, n+1)
		for i := range sums {
			sums[i] = 7
		}
		backend := &cpu.Backend{Threads: threads}
		if err := backend.SumRows(x, kernels.Of(sums, n), accumulate); err != nil {
			t.Fatal(err)
		}
		for j, want := range ref {
			if accumulate {
				want += 7
			}
			bound := 3 * float32Step
			if kernels.DTypeOf[T]() == kernels.F64 {
				bound = 1e-14
			}
			if e := math.Abs(float64(sums[j]) - want); !(e <= bound*(1+math.Abs(want))) {
				t.Fatalf("%v %v shape %v gap %d accumulate %v seed %d: sum %d is %v instead of %v", kernels.DTypeOf[T](), simd.Active(), shape, gap, accumulate, seed, j, sums[j], want)
			}
		}
		if sums[n] != 7 {
			t.Fatalf("shape %v gap %d: the element behind the sums became %v", shape, gap, sums[n])
		}
		if first == nil {
			first = sums
		} else if !slices.Equal(first, sums) {
			t.Fatalf("shape %v gap %d: %d threads give other bits than one", shape, gap, threads)
		}
	}
}

func TestSumRowsErrors(t *testing.T) {
	x, sums := kernels.Of(make([]float32, 6), 2, 3), kernels.Of(make([]float32, 3), 3)
	for want, call := range map[string]func(b *cpu.Backend) error{
		"x has shape [], it needs at least one axis":                func(b *cpu.Backend) error { return b.SumRows(kernels.Of(make([]float32, 1)), sums, false) },
		"out has shape [2 3] and strides [3 1], it needs shape [3]": func(b *cpu.Backend) error { return b.SumRows(x, x, false) },
		"it needs a stride of 1 on axis 1": func(b *cpu.Backend) error {
			return b.SumRows(x.Permute(1, 0), kernels.Of(make([]float32, 2), 2), false)
		},
	} {
		if err := call(cpu.New()); err == nil || !strings.HasPrefix(err.Error(), "cpu: sum rows: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, it needs %q", err, want)
		}
	}
}
