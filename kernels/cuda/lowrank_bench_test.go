//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// BenchmarkLowRank measures the products of a change of low rank, in bfloat16, for 8,192 rows of a
// model of TinyLlama's shape, by the bytes of their large operand. Calls go through so many tensors
// that none is in a cache when it is read.
func BenchmarkLowRank(b *testing.B) {
	d := device(b)
	const rows, beyondCaches = 8192, 256 << 20
	made := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		t, err := d.Alloc(dtype, shape...)
		if err == nil {
			err = d.Fill(t, 0.5)
		}
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	run := func(name string, bytes int, call func() func() error) {
		b.Run(name, func(b *testing.B) {
			calls := make([]func() error, max(2, beyondCaches/bytes))
			for n := range calls {
				calls[n] = call()
			}
			one, err := ofRecording(b, d, calls)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(one*1e6, "µs")
			b.ReportMetric(float64(bytes)/one/1e9, "GB/s")
		})
	}
	for _, c := range []struct{ features, rank int }{
		{2048, 8}, {2048, 16}, {2048, 24}, {2560, 24}, {5632, 8}, {11264, 16}, {2048, 64}, {11264, 64}, {4096, 8}, {6144, 24}, {14336, 8}, {28672, 16},
	} {
		product := func(m kernels.MatMul, c kernels.Tensor) func() error {
			return func() error { return d.MatMul(&m, kernels.MatMulOutputs{C: c}) }
		}
		bytes := rows * c.features * 2
		name := func(what string) string { return fmt.Sprintf("%s/%dx%d", what, c.features, c.rank) }
		run(name("t=x·A"), bytes, func() func() error {
			return product(kernels.MatMul{A: made(kernels.BF16, rows, c.features), B: made(kernels.BF16, c.features, c.rank)}, made(kernels.BF16, rows, c.rank))
		})
		run(name("dt=dy·Bᵀ"), bytes, func() func() error {
			m := kernels.MatMul{A: made(kernels.BF16, rows, c.features), B: made(kernels.BF16, c.rank, c.features).Permute(1, 0)}
			return product(m, made(kernels.BF16, rows, c.rank))
		})
		run(name("dA=xᵀ·dt"), bytes, func() func() error {
			m := kernels.MatMul{A: made(kernels.BF16, rows, c.features).Permute(1, 0), B: made(kernels.BF16, rows, c.rank)}
			return product(m, made(kernels.F32, c.features, c.rank))
		})
		run(name("dB=tᵀ·dy"), bytes, func() func() error {
			m := kernels.MatMul{A: made(kernels.BF16, rows, c.rank).Permute(1, 0), B: made(kernels.BF16, rows, c.features)}
			return product(m, made(kernels.F32, c.rank, c.features))
		})
		thin := func(p kernels.ThinProducts, out kernels.ThinOutputs) func() error {
			return func() error { return d.ThinProducts(&p, out) }
		}
		if c.rank <= 32 {
			run(name("t at once"), bytes, func() func() error {
				p := kernels.ThinProducts{X: made(kernels.BF16, rows, c.features), Right: made(kernels.BF16, c.features, c.rank), Scale: 2}
				return thin(p, kernels.ThinOutputs{Across: made(kernels.BF16, rows, c.rank)})
			})
		}
		run(name("dA at once"), bytes, func() func() error {
			p := kernels.ThinProducts{X: made(kernels.BF16, rows, c.features), Left: made(kernels.BF16, rows, c.rank)}
			return thin(p, kernels.ThinOutputs{Down: []kernels.ThinPart{{Out: made(kernels.F32, c.features, c.rank).Permute(1, 0)}}})
		})
		run(name("dt and dB at once"), bytes, func() func() error {
			p := kernels.ThinProducts{
				X: made(kernels.BF16, rows, c.features), Right: made(kernels.BF16, c.rank, c.features).Permute(1, 0),
				Left: made(kernels.BF16, rows, c.rank), Scale: 2,
			}
			return thin(p, kernels.ThinOutputs{Across: made(kernels.BF16, rows, c.rank), Down: []kernels.ThinPart{{Out: made(kernels.F32, c.rank, c.features)}}})
		})
	}
}

// BenchmarkPackedRows measures products of few rows by packed matrices, by the bytes of those, and
// what widening one takes.
func BenchmarkPackedRows(b *testing.B) {
	d := device(b)
	const beyondCaches = 256 << 20
	for _, shape := range [][2]int{{2048, 2560}, {2048, 11264}, {5632, 2048}, {4096, 6144}, {4096, 28672}, {14336, 4096}} {
		depth, columns := shape[0], shape[1]
		for _, dtype := range packedTypes {
			r, err := packed.RowOf(dtype, depth)
			if err != nil {
				b.Fatal(err)
			}
			bytes := columns * r.Bytes
			made := func() kernels.Tensor {
				memory, err := d.Alloc(kernels.I32, bytes/4)
				if err == nil {
					err = d.Fill(memory, 0x11111111)
				}
				if err != nil {
					b.Fatal(err)
				}
				t := kernels.Contiguous(memory.Data, dtype, columns, depth)
				t.Owner = memory.Owner
				return t.Permute(1, 0)
			}
			for _, rows := range []int{1, 4, 16, 17} {
				b.Run(fmt.Sprintf("%v/%dx%d/rows=%d", dtype, depth, columns, rows), func(b *testing.B) {
					calls := make([]func() error, max(2, beyondCaches/bytes))
					for n := range calls {
						a, err1 := d.Alloc(kernels.BF16, rows, depth)
						c, err2 := d.Alloc(kernels.BF16, rows, columns)
						if err := errors.Join(err1, err2); err != nil {
							b.Fatal(err)
						}
						m := kernels.MatMul{A: a, B: made()}
						calls[n] = func() error { return d.MatMul(&m, kernels.MatMulOutputs{C: c}) }
					}
					one, err := ofRecording(b, d, calls)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(one*1e6, "µs")
					b.ReportMetric(float64(bytes)/one/1e9, "GB/s")
				})
			}
		}
	}
}

// BenchmarkWidening measures how packed matrices become bfloat16, by the bytes that are written.
func BenchmarkWidening(b *testing.B) {
	d := device(b)
	for _, shape := range [][2]int{{2560, 2048}, {11264, 2048}, {4096, 4096}, {14336, 4096}, {4096, 14336}} {
		for _, dtype := range packedTypes {
			r, err := packed.RowOf(dtype, shape[1])
			if err != nil {
				b.Fatal(err)
			}
			memory, err := d.Alloc(kernels.I32, shape[0]*r.Bytes/4)
			if err == nil {
				err = d.Fill(memory, 0x11111111)
			}
			if err != nil {
				b.Fatal(err)
			}
			x := kernels.Contiguous(memory.Data, dtype, shape[0], shape[1])
			x.Owner = memory.Owner
			to, err := d.Alloc(kernels.BF16, shape[0], shape[1])
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%v/%dx%d", dtype, shape[0], shape[1]), func(b *testing.B) {
				call := func() error { return d.Widen(x, to) }
				one, err := ofRecording(b, d, []func() error{call, call, call, call})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(one*1e6, "µs")
				b.ReportMetric(float64(2*x.Elements())/one/1e9, "GB/s")
			})
		}
	}
}
