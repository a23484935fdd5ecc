package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// BenchmarkMatMul measures float32 products beside the machine's peak, as BenchmarkAttention does.
// The shapes are squares, the products of a GPT-2 block and of a small character model, and the
// thin ones of decoding and of gradients.
func BenchmarkMatMul(b *testing.B) {
	for _, c := range []struct {
		m, n, k                int
		transposeA, transposeB bool
	}{
		{m: 64, n: 64, k: 64}, {m: 128, n: 128, k: 128}, {m: 256, n: 256, k: 256}, {m: 512, n: 512, k: 512},
		{m: 1024, n: 1024, k: 1024}, {m: 1000, n: 1000, k: 1000},
		{m: 768, n: 3072, k: 768}, {m: 768, n: 768, k: 3072}, {m: 768, n: 3072, k: 768, transposeB: true},
		{m: 768, n: 768, k: 3072, transposeA: true},
		{m: 768, n: 384, k: 128}, {m: 768, n: 512, k: 128}, {m: 768, n: 128, k: 512}, {m: 512, n: 65, k: 128},
		{m: 128, n: 512, k: 768, transposeA: true},
		{m: 1, n: 3072, k: 768}, {m: 1, n: 3072, k: 768, transposeB: true}, {m: 8, n: 3072, k: 768}, {m: 3072, n: 1, k: 768},
	} {
		for _, threads := range []int{1, 2} {
			name := fmt.Sprintf("m=%d,n=%d,k=%d", c.m, c.n, c.k)
			if c.transposeA {
				name += ",Aᵀ"
			}
			if c.transposeB {
				name += ",Bᵀ"
			}
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				p := &kernels.MatMul{A: randomMatrix(c.m, c.k, c.transposeA), B: randomMatrix(c.k, c.n, c.transposeB)}
				benchmarkMatMul(b, p, c.m, c.n, threads)
			})
		}
	}
}

// BenchmarkMatMulInTiles measures products of bfloat16 as BenchmarkMatMul does, %peak being that of
// float32 vectors.
func BenchmarkMatMulInTiles(b *testing.B) {
	if !simd.HasTiles() {
		b.Skip("this processor multiplies no tiles")
	}
	for _, c := range []struct {
		m, n, k                int
		transposeA, transposeB bool
	}{
		{m: 256, n: 256, k: 256}, {m: 1024, n: 1024, k: 1024}, {m: 768, n: 3072, k: 768}, {m: 2048, n: 1536, k: 384}, {m: 2048, n: 1536, k: 384, transposeB: true},
		{m: 384, n: 1536, k: 2048, transposeA: true}, {m: 768, n: 512, k: 128},
	} {
		for _, threads := range []int{1, 2, 16} {
			b.Run(fmt.Sprintf("m=%d,n=%d,k=%d,Aᵀ=%v,Bᵀ=%v/threads=%d", c.m, c.n, c.k, c.transposeA, c.transposeB, threads), func(b *testing.B) {
				matrix := func(rows, columns int, transposed bool) kernels.Tensor {
					t := randomMatrix(rows, columns, transposed)
					half := kernels.Tensor{DType: kernels.BF16, Shape: t.Shape, Strides: t.Strides}
					half.Data = unsafe.Pointer(unsafe.SliceData(make([]kernels.BFloat16, rows*columns)))
					kernels.CopyHost(half, t)
					return half
				}
				p := &kernels.MatMul{A: matrix(c.m, c.k, c.transposeA), B: matrix(c.k, c.n, c.transposeB)}
				benchmarkMatMulInto(b, p, matrix(c.m, c.n, false), threads)
			})
		}
	}
}

// BenchmarkMatMulLevels is one product at every level of vector instructions.
func BenchmarkMatMulLevels(b *testing.B) {
	for _, level := range simd.Levels() {
		b.Run(level.String(), func(b *testing.B) {
			defer simd.SetLevel(level)()
			benchmarkMatMul(b, &kernels.MatMul{A: randomMatrix(256, 256, false), B: randomMatrix(256, 256, false)}, 256, 256, 1)
		})
	}
}

// BenchmarkMatMulEpilogue is what bias and activation add to the first product of a feed-forward
// layer.
func BenchmarkMatMulEpilogue(b *testing.B) {
	bias := randomMatrix(1, 3072, false)
	bias.Shape, bias.Strides = []int{3072}, []int{1}
	for _, p := range []kernels.MatMul{{}, {Bias: bias}, {Bias: bias, Epilogue: kernels.Activate{Activation: kernels.GELUTanh}}} {
		p.A, p.B = randomMatrix(768, 768, false), randomMatrix(768, 3072, false)
		b.Run(fmt.Sprintf("bias=%v,activated=%v", p.Bias.IsSet(), p.Epilogue != nil), func(b *testing.B) { benchmarkMatMul(b, &p, 768, 3072, 1) })
	}
}

func benchmarkMatMul(b *testing.B, p *kernels.MatMul, m, n, threads int) {
	benchmarkMatMulInto(b, p, randomMatrix(m, n, false), threads)
}

func benchmarkMatMulInto(b *testing.B, p *kernels.MatMul, c kernels.Tensor, threads int) {
	out := kernels.MatMulOutputs{C: c}
	backend := &cpu.Backend{Threads: threads}
	do := func() error { return backend.MatMul(p, out) }
	calls := 0
	for start := time.Now(); time.Since(start) < 5*time.Millisecond; calls++ { // products follow each other, as in a training step
		if err := do(); err != nil {
			b.Fatal(err)
		}
	}
	measureBesidePeak(b, threads, p.FLOPs(), calls, do)
}

func randomMatrix(rows, columns int, transposed bool) kernels.Tensor {
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]float32, rows*columns)
	for i := range data {
		data[i] = float32(random.NormFloat64())
	}
	if transposed {
		return kernels.Of(data, columns, rows).Permute(1, 0)
	}
	return kernels.Of(data, rows, columns)
}
