//go:build gpu

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/packed"
	"github.com/stheno-ml/stheno/kernels/reference"
)

var packedTypes = []kernels.DType{kernels.Int8, kernels.Int4, kernels.NF4}

// packedMatrix is random numbers, packed on the device, and what the host widens them to.
func packedMatrix(t *testing.T, d *cuda.Device, dtype kernels.DType, rows, columns int, seed uint64) (on kernels.Tensor, wide []float32) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 2))
	list := make([]float32, rows*columns)
	for i := range list {
		list[i] = float32(random.NormFloat64()) * 0.05
	}
	clear(list[:min(len(list), 64)]) // a block of zeros
	bytes, err := packed.Pack(dtype, list, rows, columns)
	if err != nil {
		t.Fatal(err)
	}
	if wide, err = packed.Widen(dtype, bytes, rows, columns); err != nil {
		t.Fatal(err)
	}
	words := kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(bytes)), kernels.I32, len(bytes)/4)
	memory, err := d.Upload(words)
	if err != nil {
		t.Fatal(err)
	}
	on = kernels.Contiguous(memory.Data, dtype, rows, columns)
	on.Owner = memory.Owner
	return on, wide
}

// What a device widens has the bits of what the host does, rounded to the type.
func TestWidened(t *testing.T) {
	d := device(t)
	for _, dtype := range packedTypes {
		for i, shape := range [][2]int{{1, 64}, {3, 128}, {65, 64}, {100, 448}, {33, 16384}, {300, 2048}, {5, 20480}} {
			rows, columns := shape[0], shape[1]
			on, wide := packedMatrix(t, d, dtype, rows, columns, uint64(i))
			for _, to := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
				for way, transposed := range []bool{false, true} {
					x, got := on, alloc(t, d, to, rows, columns)
					if transposed {
						x, got = x.Permute(1, 0), got.Permute(1, 0)
					}
					if err := d.Widen(x, got); err != nil {
						t.Fatal(err)
					}
					list := download(t, d, got)
					for n, have := range list {
						i, j := n/columns, n%columns
						if transposed {
							i, j = n%rows, n/rows
						}
						if want := roundedTo(to, float64(wide[i*columns+j])); have != want {
							t.Fatalf("%v of %v in %v, way %d: element %d, %d is %v, want %v", dtype, shape, to, way, i, j, have, want)
						}
					}
				}
			}
		}
	}
}

// A product of a packed matrix is that of what it is widened to, in the type of A.
func TestMatMulPacked(t *testing.T) {
	d := device(t)
	for _, weights := range packedTypes {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
			for i, c := range []productCase{
				{m: 1, n: 96, k: 64, transposeB: true}, {m: 3, n: 1000, k: 1024, transposeB: true, bias: true}, {m: 16, n: 520, k: 2048, transposeB: true, wideC: true},
				{m: 17, n: 70, k: 192, transposeB: true}, {m: 300, n: 1032, k: 512, transposeB: true, plus: []int{8}}, {m: 1, n: 1024, k: 520},
				{m: 300, n: 512, k: 1030, gap: 8}, {batch: []int{2, 3}, m: 2, n: 640, k: 128, sharedB: true, transposeB: true, activation: kernels.SiLU},
			} {
				p := newProductTest(t, dtype, c, uint64(i))
				rows, columns := c.k, c.n
				if c.transposeB {
					rows, columns = columns, rows
				}
				b, wide := packedMatrix(t, d, weights, rows, columns, uint64(i))
				list := make([]float64, len(wide))
				for j, x := range wide {
					list[j] = roundedTo(dtype, float64(x))
				}
				p.problem.B, p.exact.B = b, kernels.Of(list, rows, columns)
				if c.transposeB {
					p.problem.B, p.exact.B = b.Permute(1, 0), p.exact.B.Permute(1, 0)
				}
				p.check(p.expect(same))
			}
		}
	}
}

// A packed gated product is that of what both factors are widened to.
func TestMatMulPackedGate(t *testing.T) {
	d := device(t)
	const rows, depth, hidden = 1030, 512, 1056
	for i, weights := range packedTypes {
		p := newProductTest(t, kernels.BF16, productCase{m: rows, n: hidden, k: depth}, uint64(i))
		var wide [2]kernels.Tensor
		var on [2]kernels.Tensor
		for n := range wide {
			var list []float32
			on[n], list = packedMatrix(t, d, weights, hidden, depth, uint64(2*i+n))
			both := make([]float64, len(list))
			for j, x := range list {
				both[j] = roundedTo(kernels.BF16, float64(x))
			}
			on[n], wide[n] = on[n].Permute(1, 0), kernels.Of(both, hidden, depth).Permute(1, 0)
		}
		z := p.tensor(kernels.BF16, nil, 2*rows, hidden, false).device
		epilogue := kernels.Gate{BUp: on[1], Pre: z.Slice(0, 0, rows), Up: z.Slice(0, rows, 2*rows)}
		p.problem.B, p.problem.Epilogue = on[0], epilogue
		p.run()
		for n, out := range []kernels.Tensor{epilogue.Pre, epilogue.Up} {
			exact, _ := reference.MatMul[float64](&kernels.MatMul{A: p.exact.A, B: wide[n]}, nil)
			plain := make([]float64, len(exact))
			for j, x := range exact {
				plain[j] = roundedTo(kernels.BF16, x)
			}
			p.compare(fmt.Sprint("product ", n), allRows(rows), out, exact, plain)
		}
	}
}

// Kernels borrow what they tell.
func TestBorrowed(t *testing.T) {
	d := device(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing else comes back meanwhile
	const rows, depth, columns = 1000, 1024, 8192
	x, c, both := alloc(t, d, kernels.BF16, rows, depth), alloc(t, d, kernels.BF16, rows, columns), alloc(t, d, kernels.BF16, 2*rows, columns)
	loss, dx := alloc(t, d, kernels.F32), alloc(t, d, kernels.BF16, rows, depth)
	targets, err := d.Upload(kernels.Of(make([]int32, rows), rows))
	if err == nil {
		err = d.Fill(x, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, borrows, most int, run func() error) {
		t.Helper()
		if err := d.Trim(); err != nil {
			t.Fatal(err)
		}
		before := d.Memory()
		if err := run(); err != nil {
			t.Fatal(err)
		}
		const small = 1 << 18 // what else may come back or be taken
		if borrowed := d.Memory().Cached - before.Cached; borrowed < borrows-small || borrowed > most+small {
			t.Errorf("%s: %d bytes were borrowed, %d are told", name, borrowed, borrows)
		}
	}
	for _, weights := range packedTypes {
		gate, _ := packedMatrix(t, d, weights, columns, depth, 1)
		up, _ := packedMatrix(t, d, weights, columns, depth, 2)
		product := &kernels.MatMul{A: x, B: gate.Permute(1, 0)}
		few := &kernels.MatMul{A: x.Slice(0, 0, 4), B: gate.Permute(1, 0)}
		gated := &kernels.MatMul{A: x, B: gate.Permute(1, 0), Epilogue: kernels.Gate{BUp: up.Permute(1, 0), Pre: both.Slice(0, 0, rows), Up: both.Slice(0, rows, 2*rows)}}
		for name, m := range map[string]*kernels.MatMul{"product": product, "few rows": few, "gated product": gated} {
			borrows := d.MatMulBorrows(m)
			check(fmt.Sprint(weights, " ", name), borrows, borrows*3/2, func() error {
				return d.MatMul(m, kernels.MatMulOutputs{C: c.Slice(0, 0, m.A.Shape[0])})
			})
		}
	}
	head := alloc(t, d, kernels.BF16, 32768, depth)
	if err := d.Fill(head, 0); err != nil {
		t.Fatal(err)
	}
	problem := &kernels.LinearCrossEntropy{Hidden: x, Weight: head, Targets: targets}
	out := kernels.LinearCrossEntropyOutputs{Loss: loss, DHidden: dx}
	borrows := d.LinearCrossEntropyBorrows(problem, out)
	check("loss", borrows, 4*borrows, func() error { // sums of parts of the second product are not told
		return d.LinearCrossEntropy(problem, out)
	})
}
