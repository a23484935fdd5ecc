//go:build gpu

package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// BenchmarkDecoding measures what a model computes for its next token, in bfloat16: products of few
// rows, by the bytes of B, and attention with a cache, by those of its keys and values. Calls go
// through so many tensors that none is in a cache when it is read; a recording holds one call of
// each. Copies beside them count what is read and what is written.
func BenchmarkDecoding(b *testing.B) {
	d := device(b)
	const beyondCaches = 512 << 20
	made := func(shape ...int) kernels.Tensor {
		t, err := d.Alloc(kernels.BF16, shape...)
		if err == nil {
			err = d.Fill(t, 0.5)
		}
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	run := func(name string, bytes int, call func(n int) func() error) {
		b.Run(name, func(b *testing.B) {
			calls := make([]func() error, max(1, beyondCaches/bytes))
			for n := range calls {
				calls[n] = call(n)
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
	run("copy", 2*256<<20, func(int) func() error {
		x, y := made(128<<20), made(128<<20)
		return func() error { return d.Copy(y, x) }
	})
	for _, rows := range []int{1, 4, 16} {
		for _, shape := range [][2]int{{2048, 2560}, {2048, 2048}, {2048, 11264}, {5632, 2048}, {2048, 32000}, {4096, 6144}, {4096, 28672}, {14336, 4096}, {4096, 128256}} {
			for _, transposed := range []bool{false, true} {
				depth, columns := shape[0], shape[1]
				name := fmt.Sprintf("rows=%d/%dx%d", rows, depth, columns)
				if transposed {
					name += "T"
				}
				run(name, depth*columns*2, func(int) func() error {
					m := kernels.MatMul{A: made(rows, depth), B: made(depth, columns)}
					if transposed {
						m.B = made(columns, depth).Permute(1, 0)
					}
					c := made(rows, columns)
					return func() error { return d.MatMul(&m, kernels.MatMulOutputs{C: c}) }
				})
			}
		}
	}
	benchmarkPackedRows(b, run, made)
	for _, c := range []struct{ batch, heads, keyHeads, rows, size, keys int }{
		{1, 32, 4, 1, 64, 1024}, {16, 32, 4, 1, 64, 1024}, {1, 12, 12, 1, 64, 1024}, {1, 32, 8, 1, 64, 131072},
		{1, 32, 8, 1, 128, 1024}, {1, 32, 8, 1, 128, 8192}, {32, 32, 8, 1, 128, 8192}, {1, 32, 8, 1, 128, 32768},
		{1, 32, 8, 1, 128, 131072}, {1, 32, 8, 4, 128, 131072}, {32, 32, 8, 1, 128, 131072}, {1, 16, 4, 1, 256, 131072},
	} {
		name := fmt.Sprintf("attention/B=%d-heads=%d-%d-rows=%d-D=%d-keys=%d", c.batch, c.heads, c.keyHeads, c.rows, c.size, c.keys)
		run(name, 2*c.batch*c.keyHeads*c.keys*c.size*2, func(int) func() error {
			a := kernels.Attention{Q: made(c.batch, c.heads, c.rows, c.size), Causal: kernels.CausalBottomRight}
			a.K, a.V = made(c.batch, c.keys, c.keyHeads, c.size).Permute(0, 2, 1, 3), made(c.batch, c.keys, c.keyHeads, c.size).Permute(0, 2, 1, 3)
			o := made(c.batch, c.heads, c.rows, c.size)
			return func() error { return d.AttentionForward(&a, kernels.AttentionOutputs{O: o}) }
		})
	}
	for _, c := range []struct{ batch, keys int }{{1, 8192}, {32, 8192}, {1, 131072}, {32, 65536}} {
		run(fmt.Sprintf("latents/B=%d-heads=16-D=576-512-keys=%d", c.batch, c.keys), c.batch*c.keys*576*2, func(int) func() error {
			a := kernels.Attention{Q: made(c.batch, 16, 1, 576), Causal: kernels.CausalBottomRight, K: made(c.batch, 1, c.keys, 576)}
			a.V = a.K.Slice(3, 0, 512)
			o := made(c.batch, 16, 1, 512)
			return func() error { return d.AttentionForward(&a, kernels.AttentionOutputs{O: o}) }
		})
	}
}

// ofRecording is the seconds that each of the calls takes, recorded together.
func ofRecording(b *testing.B, d *cuda.Device, calls []func() error) (float64, error) {
	if err := calls[0](); err != nil { // it loads the module
		return 0, err
	}
	recording, err := d.Capture(func() error {
		for _, call := range calls {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if err := recording.Launch(); err != nil {
		return 0, err
	}
	from, err := d.Record()
	if err != nil {
		return 0, err
	}
	for range b.N {
		if err := recording.Launch(); err != nil {
			return 0, err
		}
	}
	to, err := d.Record()
	if err != nil {
		return 0, err
	}
	passed, err := to.Since(from)
	return passed.Seconds() / float64(b.N*len(calls)), err
}

// benchmarkPackedRows measures a layer's products as a model asks for them, by weights of 16 bits
// and by packed ones, by the bytes of the weights.
func benchmarkPackedRows(b *testing.B, run func(name string, bytes int, call func(n int) func() error), made func(shape ...int) kernels.Tensor) {
	d := device(b)
	for _, weights := range []kernels.DType{kernels.BF16, kernels.Int8, kernels.Int4, kernels.NF4} {
		for _, rows := range []int{2, 8, 16} {
			for _, c := range []struct {
				name        string
				depth       int
				columns     []int
				gated, norm bool
			}{
				{"qkv", 4096, []int{4096, 1024, 1024}, false, true}, {"o", 4096, []int{4096}, false, false},
				{"gate", 4096, []int{14336, 14336}, true, true}, {"down", 14336, []int{4096}, false, false},
			} {
				matrix := func(columns int) kernels.Tensor {
					bytes := 2 * c.depth
					if weights.IsPacked() {
						row, err := packed.RowOf(weights, c.depth)
						if err != nil {
							b.Fatal(err)
						}
						bytes = row.Bytes
					}
					memory := made(columns, bytes/2)
					t := kernels.Contiguous(memory.Data, weights, columns, c.depth)
					t.Owner = memory.Owner
					return t.Permute(1, 0)
				}
				columns := 0
				for _, n := range c.columns {
					columns += n
				}
				bytes := columns * 2 * c.depth
				if weights.IsPacked() {
					row, _ := packed.RowOf(weights, c.depth)
					bytes = columns * row.Bytes
				}
				run(fmt.Sprintf("packed/%v/rows=%d/%s", weights, rows, c.name), bytes, func(int) func() error {
					p := kernels.RowsProduct{X: made(rows, c.depth), Gated: c.gated}
					for _, n := range c.columns {
						p.Weights = append(p.Weights, matrix(n))
					}
					if c.norm {
						p.Norm = &kernels.RowNorm{Gamma: made(c.depth), Eps: 1e-5}
					} else {
						p.Residual = made(rows, p.Columns())
					}
					to := made(rows, p.Columns())
					return func() error { return d.RowsProductForward(&p, to) }
				})
			}
		}
	}
}
