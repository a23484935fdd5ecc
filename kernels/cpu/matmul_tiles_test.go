package cpu_test

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// withTiles makes products use tiles: those of the processor, or, where it has none, of plain Go.
func withTiles(t *testing.T) {
	t.Helper()
	t.Cleanup(simd.SetTiles(true))
	if !simd.HasTiles() {
		t.Skip("tiles need AVX-512 or BFMMLA")
	}
}

// tiledCase is a product of bfloat16, or of float32 that is to be rounded to it.
type tiledCase struct {
	m, n, k                int
	batch                  []int
	transposeA, transposeB bool
	gap                    int // elements between the rows of the operands
	accumulate             bool
	out                    kernels.DType
}

func (c tiledCase) operands(h *halfTest, dtype kernels.DType) (a, b kernels.Tensor) {
	matrix := func(batch []int, rows, columns int, transposed bool) kernels.Tensor {
		if transposed {
			rows, columns = columns, rows
		}
		t := h.tensor(dtype, h.r.NormFloat64, append(slices.Clone(batch), rows, columns+c.gap)...)
		last := len(t.Shape) - 1
		t = t.Slice(last, 0, columns)
		if transposed {
			order := make([]int, last+1)
			for axis := range order {
				order[axis] = axis
			}
			order[last], order[last-1] = last-1, last
			t = t.Permute(order...)
		}
		return t
	}
	return matrix(c.batch, c.m, c.k, c.transposeA), matrix(nil, c.k, c.n, c.transposeB)
}

func TestMatMulInTiles(t *testing.T) {
	slow.Emulated(t)
	withTiles(t)
	var cases []tiledCase
	for i, s := range [][3]int{{32, 32, 32}, {64, 96, 64}, {33, 47, 65}, {100, 70, 31}, {16, 16, 640}, {1, 300, 90}, {17, 1000, 33}, {200, 40, 1100}} {
		for way := range 4 {
			cases = append(cases, tiledCase{
				m: s[0], n: s[1], k: s[2], transposeA: way%2 == 1, transposeB: way/2 == 1, gap: i % 3, accumulate: (i+way)%3 == 0,
				out: []kernels.DType{kernels.F32, kernels.BF16}[(i+way)%2],
			})
		}
	}
	cases = append(cases, tiledCase{m: 40, n: 50, k: 60, batch: []int{2, 3}, out: kernels.BF16}, tiledCase{m: 1, n: 50, k: 60, batch: []int{40}, out: kernels.F32})
	for i, c := range cases {
		for j, dtype := range []kernels.DType{kernels.BF16, kernels.F32} {
			if leftOut(i + 5*j) {
				continue
			}
			t.Run(fmt.Sprintf("%v/%+v", dtype, c), func(t *testing.T) { testTiledCase(t, c, dtype) })
		}
	}
}

func testTiledCase(t *testing.T, c tiledCase, dtype kernels.DType) {
	h := &halfTest{t, kernels.BF16, newRandom(), nil}
	if dtype == kernels.F32 {
		c.out = kernels.F32
	}
	p := &kernels.MatMul{Precision: kernels.PrecisionBFloat16, Accumulate: c.accumulate}
	p.A, p.B = c.operands(h, dtype)
	p.Bias = h.tensor(kernels.F32, h.r.NormFloat64, c.n)
	var epilogue kernels.Activate
	if !c.accumulate {
		epilogue.Activation = kernels.SiLU
	}
	shape := append(slices.Clone(c.batch), c.m, c.n)
	before := h.tensor(c.out, h.r.NormFloat64, shape...)
	rounded := *p
	rounded.Epilogue = epilogue
	rounded.A, rounded.B = roundedTo(kernels.BF16, p.A), roundedTo(kernels.BF16, p.B)
	refC, refPre := reference.MatMul(&rounded, numbers(before))
	var first []float64
	for _, threads := range []int{1, 2, 3, 16} {
		out := kernels.MatMulOutputs{C: h.out(c.out, shape...)}
		kernels.CopyHost(out.C, before)
		if !c.accumulate {
			epilogue.Pre = h.out(kernels.F32, shape...)
		}
		p.Epilogue = epilogue
		h.done((&cpu.Backend{Threads: threads}).MatMul(p, out))
		h.close("c", out.C, refC)
		if !c.accumulate {
			h.close("pre", epilogue.Pre, refPre)
		}
		if got := numbers(out.C); first == nil {
			first = got
		} else if !slices.Equal(got, first) {
			t.Errorf("%d threads give other bits than one", threads)
		}
	}
}

// roundedTo is a copy of a tensor in another type, row-major.
func roundedTo(dtype kernels.DType, t kernels.Tensor) kernels.Tensor {
	words := make([]kernels.BFloat16, t.Elements())
	to := kernels.Of(words, t.Shape...)
	kernels.CopyHost(to, t)
	return to
}

// A number that is not finite reaches the row or the column that it belongs to, and nothing else:
// not what a tile was filled up with.
func TestTilesSpreadNaN(t *testing.T) {
	withTiles(t)
	const m, n, k, row, column = 40, 50, 45, 33, 41
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		for _, transposed := range []bool{false, true} {
			h := &halfTest{t, kernels.BF16, newRandom(), &cpu.Backend{Threads: 2}}
			a, b := tiledCase{m: m, n: n, k: k, transposeA: transposed, transposeB: transposed}.operands(h, kernels.BF16)
			list := kernels.Host[kernels.BFloat16]
			list(a)[a.Offset(row, k-1)], list(b)[b.Offset(k-1, column)] = kernels.ToBFloat16(float32(bad)), kernels.ToBFloat16(float32(bad))
			c := h.out(kernels.F32, m, n)
			h.done(h.b.MatMul(&kernels.MatMul{A: a, B: b}, kernels.MatMulOutputs{C: c}))
			for i, x := range numbers(c) {
				if hit, finite := i/n == row || i%n == column, x-x == 0; hit == finite {
					t.Fatalf("%v: element %d, %d is %v", bad, i/n, i%n, x)
				}
			}
		}
	}
}

// Tiles survive what happens to a thread in the middle of a product: the signals of a profile,
// preemption, collections of garbage, and more goroutines than threads.
func TestTilesBesideSignals(t *testing.T) {
	withTiles(t)
	h := &halfTest{t, kernels.BF16, newRandom(), nil}
	const m, n, k = 64, 96, 200
	p := &kernels.MatMul{A: h.in(m, k), B: h.in(k, n)}
	want := make([]float32, m*n)
	h.done((&cpu.Backend{Threads: 1}).MatMul(p, kernels.MatMulOutputs{C: kernels.Of(want, m, n)}))
	if err := pprof.StartCPUProfile(&bytes.Buffer{}); err != nil {
		t.Logf("without the signals of a profile: %v", err)
	} else {
		defer pprof.StopCPUProfile()
	}
	var callers sync.WaitGroup
	end := time.Now().Add(300 * time.Millisecond)
	for caller := range 3 * runtime.GOMAXPROCS(0) {
		callers.Go(func() {
			backend, list := &cpu.Backend{Threads: 1 + caller%3}, make([]float32, m*n)
			c := kernels.Of(list, m, n)
			for round := 0; round == 0 || time.Now().Before(end); round++ {
				clear(list)
				if err := backend.MatMul(p, kernels.MatMulOutputs{C: c}); err != nil || !slices.Equal(list, want) {
					t.Errorf("round %d of caller %d differs, error %v", round, caller, err)
					return
				}
				if round%64 == 0 {
					runtime.GC()
				}
			}
		})
	}
	callers.Wait()
}
