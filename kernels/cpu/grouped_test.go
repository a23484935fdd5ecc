package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// groupedCase is products of groups of so many rows.
type groupedCase struct {
	sizes            []int
	k, n, gap        int
	transposed       bool // the matrices lie as (n, k)
	bias, accumulate bool
}

func groupedCases() []groupedCase {
	return []groupedCase{
		{sizes: []int{1}, k: 1, n: 1},
		{sizes: []int{0, 3, 0, 1}, k: 5, n: 7, bias: true},
		{sizes: []int{2, 0, 1, 5}, k: 40, n: 33, transposed: true, gap: 3},
		{sizes: []int{17, 1, 30, 0, 64}, k: 64, n: 100, bias: true, accumulate: true, gap: 5},
		{sizes: []int{200, 3, 90}, k: 129, n: 65, transposed: true},
		{sizes: []int{1, 1, 1, 1, 1, 1}, k: 300, n: 1100, bias: true},
		{sizes: []int{1, 0, 2, 1}, k: 300, n: 520, transposed: true, accumulate: true},
		{sizes: []int{300, 0}, k: 1300, n: 300},
		{sizes: []int{0, 0}, k: 3, n: 4},
	}
}

func (c groupedCase) String() string {
	return fmt.Sprintf("%v k=%d n=%d gap=%d transposed=%t bias=%t accumulate=%t", c.sizes, c.k, c.n, c.gap, c.transposed, c.bias, c.accumulate)
}

// offsetsOf is where groups of some sizes begin.
func offsetsOf(sizes []int) (t kernels.Tensor, rows int) {
	list := []int32{0}
	for _, n := range sizes {
		rows += n
		list = append(list, int32(rows))
	}
	return kernels.Of(list, len(list)), rows
}

func TestGroupedMatMul(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testGroupedMatMul[float32], testGroupedMatMul[float64])
}

func testGroupedMatMul[T kernels.Float](t *testing.T) {
	for _, c := range groupedCases() {
		r := newRandom()
		offsets, rows := offsetsOf(c.sizes)
		if slow.Racing() && rows*c.k*c.n > 10e6 { // the reference's
			continue
		}
		a, dC := newField[T](r, c.gap, rows, c.k), newField[T](r, c.gap, rows, c.n)
		b := newField[T](r, c.gap, len(c.sizes), c.k, c.n)
		matrices := b.Tensor
		if c.transposed {
			b = newField[T](r, c.gap, len(c.sizes), c.n, c.k)
			matrices = b.Permute(0, 2, 1)
		}
		m := &kernels.GroupedMatMul{A: a.Tensor, B: matrices, Offsets: offsets, Accumulate: c.accumulate}
		if c.bias {
			m.Bias = newField[T](r, c.gap, len(c.sizes), c.n).Tensor
		}
		initial := newField[T](r, c.gap, rows, c.n)
		want, typed := reference.GroupedMatMul[float64](m, initial.values()), reference.GroupedMatMul[T](m, initial.typed())
		wantD, typedD := reference.GroupedMatMulGradient(m, dC.values()), reference.GroupedMatMulGradient(m, dC.typed())
		wantS, typedS := reference.GroupedSumRows[float64](dC.Tensor, offsets), reference.GroupedSumRows[T](dC.Tensor, offsets)
		verify[T](t, c.String(), func(backend *cpu.Backend) ([]result, error) {
			out := field[T]{initial.Tensor, slices.Clone(initial.memory)}
			out.Data = kernels.Of(out.memory, len(out.memory)).Data
			dB, sums := newField[T](r, 0, len(c.sizes), c.k, c.n), newField[T](r, 0, len(c.sizes), c.n)
			err := backend.GroupedMatMul(m, out.Tensor)
			if err == nil {
				err = backend.GroupedMatMulGradient(m, dC.Tensor, dB.Tensor)
			}
			if err == nil {
				err = backend.GroupedSumRows(dC.Tensor, offsets, sums.Tensor)
			}
			return []result{resultOf("c", out, want, typed), resultOf("dB", dB, wantD, typedD), resultOf("sums", sums, wantS, typedS)}, err
		})
	}
}

// Of 16-bit operands, each group is what MatMul gives of its rows, bit by bit.
func TestGroupedMatMulIsMatMul(t *testing.T) {
	backend, r := &cpu.Backend{Threads: 3}, rand.New(rand.NewPCG(1, 2))
	for _, types := range [][2]kernels.DType{{kernels.F32, kernels.BF16}, {kernels.F32, kernels.F16}, {kernels.BF16, kernels.BF16}, {kernels.F16, kernels.F16}} {
		m := memory{rng: r}
		offsets, rows := offsetsOf([]int{3, 0, 41, 1})
		g := &kernels.GroupedMatMul{A: m.tensor(types[0], rows, 70), B: m.tensor(types[1], 4, 70, 90), Offsets: offsets}
		got, want := m.tensor(types[0], rows, 90), m.tensor(types[0], rows, 90)
		if err := backend.GroupedMatMul(g, got); err != nil {
			t.Fatal(err)
		}
		from := kernels.Host[int32](offsets)
		for i := range 4 {
			one := func(t kernels.Tensor) kernels.Tensor { return t.Slice(0, int(from[i]), int(from[i+1])) }
			matrix := g.B.Slice(0, i, i+1).Reshape(70, 90)
			if err := backend.MatMul(&kernels.MatMul{A: one(g.A), B: matrix}, kernels.MatMulOutputs{C: one(want)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range got.Elements() {
			if kernels.HostElement(got, i) != kernels.HostElement(want, i) {
				t.Fatalf("%v: element %d is %v, MatMul gives %v", types, i, kernels.HostElement(got, i), kernels.HostElement(want, i))
			}
		}
	}
}

func TestGroupedErrors(t *testing.T) {
	b := cpu.New()
	a, c := kernels.Of(make([]float32, 6), 3, 2), kernels.Of(make([]float32, 12), 3, 4)
	matrices, bias := kernels.Of(make([]float32, 16), 2, 2, 4), kernels.Of(make([]float32, 8), 2, 4)
	with := func(offsets ...int32) *kernels.GroupedMatMul {
		return &kernels.GroupedMatMul{A: a, B: matrices, Bias: bias, Offsets: kernels.Of(offsets, len(offsets))}
	}
	checkErrors(t, []errorCase{
		{"cpu: grouped matmul: offsets go from 0 to 2, they need to go from 0 to the 3 rows", b.GroupedMatMul(with(0, 1, 2), c)},
		{"cpu: grouped matmul: offsets are [0 4 3], they need to ascend", b.GroupedMatMul(with(0, 4, 3), c)},
		{"cpu: grouped matmul gradient: offsets are [0 -1 3], they need to ascend", b.GroupedMatMulGradient(with(0, -1, 3), c, matrices)},
		{"cpu: grouped matmul: offsets is int32 of shape [2], it needs to be int32 of shape [3]: one more than groups", b.GroupedMatMul(with(0, 3), c)},
		{"cpu: grouped sum of rows: offsets go from 1 to 3, they need to go from 0 to the 3 rows", b.GroupedSumRows(c, with(1, 2, 3).Offsets, bias)},
		{"cpu: grouped matmul: b has shape [2 4], it needs three axes (groups, depth, columns)",
			b.GroupedMatMul(&kernels.GroupedMatMul{A: a, B: bias, Offsets: with(0, 3, 3).Offsets}, c)},
		{"cpu: grouped matmul: c is missing, it needs shape [3 4]", b.GroupedMatMul(with(0, 3, 3), kernels.Tensor{})},
	})
}
