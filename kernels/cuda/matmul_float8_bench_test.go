//go:build gpu

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// normalBFloat16 are random numbers, which take more power to multiply than equal ones, and so more
// time.
var normalBFloat16 = sync.OnceValue(func() []kernels.BFloat16 {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]kernels.BFloat16, 1<<20+7)
	for i := range list {
		list[i] = kernels.ToBFloat16(float32(r.NormFloat64()))
	}
	return list
})

func normalMatrix(b *testing.B, d *cuda.Device, rows, columns int) kernels.Tensor {
	x, err := d.Alloc(kernels.BF16, rows, columns)
	if err != nil {
		b.Fatal(err)
	}
	list := make([]kernels.BFloat16, rows*columns)
	for at := 0; at < len(list); {
		at += copy(list[at:], normalBFloat16())
	}
	if err := d.UploadBytes(x, unsafe.Pointer(unsafe.SliceData(list))); err != nil {
		b.Fatal(err)
	}
	return x
}

// BenchmarkFloat8 measures the products of linear layers of Llama-1.1B and of Llama-8B: in
// bfloat16, in 8 bits with the rounding of both operands, and without.
func BenchmarkFloat8(b *testing.B) {
	d := device(b)
	for _, s := range [][3]int{{32768, 2048, 2560}, {32768, 2048, 11264}, {32768, 5632, 2048}, {8192, 4096, 6144}, {8192, 4096, 28672}, {8192, 14336, 4096}} {
		rows, in, out := s[0], s[1], s[2]
		b.Run(fmt.Sprintf("%dx%dx%d", rows, in, out), func(b *testing.B) {
			x, w, dy := normalMatrix(b, d, rows, in), normalMatrix(b, d, in, out), normalMatrix(b, d, rows, out)
			output := func(dtype kernels.DType, shape ...int) kernels.Tensor {
				c, err := d.Alloc(dtype, shape...)
				if err != nil {
					b.Fatal(err)
				}
				return c
			}
			b.Run("forward", func(b *testing.B) { float8Product(b, d, x, w, output(kernels.BF16, rows, out)) })
			b.Run("dx", func(b *testing.B) { float8Product(b, d, dy, w.Permute(1, 0), output(kernels.BF16, rows, in)) })
			b.Run("dw", func(b *testing.B) { float8Product(b, d, x.Permute(1, 0), dy, output(kernels.F32, in, out)) })
		})
	}
}

func float8Product(b *testing.B, d *cuda.Device, left, right, c kernels.Tensor) {
	m := kernels.MatMul{A: left, B: right}
	eight := m
	eight.Precision = kernels.PrecisionFloat8
	run := func(name string, call func() error) {
		b.Run(name, func(b *testing.B) {
			one, err := ofRecording(b, d, []func() error{call, call})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(one*1e6, "µs")
			b.ReportMetric(m.FLOPs()/one/1e12, "TFLOP/s")
		})
	}
	run("bfloat16", func() error { return d.MatMul(&m, kernels.MatMulOutputs{C: c}) })
	run("rounding", func() error { return d.MatMul(&eight, kernels.MatMulOutputs{C: c}) })
	product, release, err := d.Float8Product(&eight, c)
	if err != nil {
		b.Fatal(err)
	}
	defer release()
	run("rounded", product)
}

// BenchmarkRoundFloat8 measures the rounding of a matrix: of its rows, of these and what its
// columns are rounded by, and of its columns from the rows.
func BenchmarkRoundFloat8(b *testing.B) {
	d := device(b)
	for _, s := range [][2]int{{8192, 2048}, {8192, 2560}, {8192, 5632}, {8192, 11264}, {32768, 2048}, {32768, 11264}, {8192, 4096}, {8192, 14336}, {8192, 28672}, {2048, 11264}, {5632, 2048}} {
		b.Run(fmt.Sprintf("%dx%d", s[0], s[1]), func(b *testing.B) {
			x, y := normalMatrix(b, d, s[0], s[1]), normalMatrix(b, d, s[0], s[1])
			rows, err := kernels.NewFloat8Sides(s[0], s[1], d.Alloc)
			if err != nil {
				b.Fatal(err)
			}
			columns, err := kernels.NewFloat8Sides(s[1], s[0], d.Alloc)
			if err != nil {
				b.Fatal(err)
			}
			for _, c := range []struct {
				name  string
				bytes float64 // an element
				round func(x kernels.Tensor) error
			}{
				{"rows", 3, func(x kernels.Tensor) error { return d.RoundFloat8(x, kernels.Float8Rounding{Rows: rows}) }},
				{"rows and magnitudes", 3, func(x kernels.Tensor) error {
					return d.RoundFloat8(x, kernels.Float8Rounding{Rows: rows, ColumnMost: columns.Most})
				}},
				{"columns", 2, func(kernels.Tensor) error { return d.TurnFloat8(rows, columns) }},
			} {
				b.Run(c.name, func(b *testing.B) {
					one, err := ofRecording(b, d, []func() error{
						func() error { return c.round(x) }, func() error { return c.round(y) },
					})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(one*1e6, "µs")
					b.ReportMetric(c.bytes*float64(s[0]*s[1])/one/1e12, "TB/s")
				})
			}
		})
	}
}
