package simd

import (
	"fmt"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

func benchmarkEverywhere(b *testing.B, single, double func(*testing.B)) {
	for _, level := range Levels() {
		b.Run(level.String(), func(b *testing.B) {
			defer SetLevel(level)()
			b.Run("float32", single)
			b.Run("float64", double)
		})
	}
}

// perElement reports what the fastest call costs for each element of a tile.
func perElement(b *testing.B, elements int, call func()) {
	b.Helper()
	best := math.Inf(1)
	b.ReportAllocs()
	for b.Loop() {
		best = min(best, seconds(call))
	}
	b.ReportMetric(best*1e9/float64(elements), "ns/element")
}

// seconds is how long a call takes.
func seconds(call func()) float64 {
	start := time.Now()
	call()
	return time.Since(start).Seconds()
}

// BenchmarkTile is each kernel that works element by element, on a tile as attention has it.
func BenchmarkTile(b *testing.B) {
	benchmarkEverywhere(b, benchmarkTile[float32], benchmarkTile[float64])
}

func benchmarkTile[T kernels.Float](b *testing.B) {
	const rows, n, d = 64, 128, 64
	var (
		s, other, o = make([]T, rows*n), make([]T, rows*n), make([]T, rows*d)
		m, l, f     = make([]T, rows), make([]T, rows), make([]T, rows)
	)
	for _, k := range []struct {
		name string
		call func()
	}{
		{"Softmax", func() { Softmax(rows, n, &s[0], n, &m[0], &l[0], &o[0], d, d, 0.1, -n, n) }},
		{"SoftmaxCausal", func() { Softmax(rows, n, &s[0], n, &m[0], &l[0], &o[0], d, d, 0.1, -n, n-rows) }},
		{"SoftmaxGrad", func() { SoftmaxGrad(rows, n, &s[0], &other[0], n, &m[0], &l[0], 0.1, -n, n) }},
		{"SoftCap", func() { SoftCap(rows, n, &s[0], &other[0], n, 0.1, 30) }},
		{"ALiBi", func() { ALiBi(rows, n, &s[0], n, 0.1, 0.1, 3) }},
		{"AddBias", func() { AddBias(rows, n, &s[0], n, 0.1, &other[0], n) }},
		{"MulTile", func() { MulTile(rows, n, &s[0], &other[0], n) }},
		{"AddTile", func() { AddTile(rows, n, &s[0], n, &other[0], n) }},
		{"ScaleRows", func() { ScaleRows(rows, n, &s[0], n, &other[0], n, f) }},
		{"Dots", func() { Dots(rows, n, &s[0], n, &other[0], n, f) }},
		{"Finite", func() { Finite(rows, n, &s[0], n) }},
		{"Dropout", func() { Dropout(rows, n, &s[0], &s[0], n, kernels.Dropout{P: 0.1}, 1, 2, 0, 1) }},
	} {
		for _, data := range [][]T{s, other, o, m, l, f} {
			for i := range data {
				data[i] = T(i%13) / 13
			}
		}
		b.Run(k.name, func(b *testing.B) { perElement(b, rows*n, k.call) })
	}
}

// BenchmarkTileProduct is the rate of a block of A against blocks of B, from the caches.
func BenchmarkTileProduct(b *testing.B) {
	if !HasTiles() {
		b.Skip("this processor multiplies no tiles")
	}
	for _, shape := range [][2]int{{1, 12}, {4, 8}, {16, 8}, {4, 16}, {16, 16}, {16, 32}} {
		blocks, steps := shape[0], shape[1]
		b.Run(fmt.Sprintf("blocks=%d,steps=%d", blocks, steps), func(b *testing.B) {
			left, right, c := make([]uint16, steps*TileStep), make([]uint16, blocks*steps*TileStep), make([]float32, TileLines*(blocks*TileLines+16))
			for b.Loop() {
				TileProduct(1, blocks, steps, &left[0], 0, &right[0], 0, &c[0], blocks*TileLines+16, false)
			}
			b.ReportMetric(2*float64(TileLines*TileLines*TileDepth*blocks*steps)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// BenchmarkPackTiles is the rate at which a matrix that is in the caches becomes tiles.
func BenchmarkPackTiles(b *testing.B) {
	if !HasTiles() {
		b.Skip("this processor multiplies no tiles")
	}
	const depth = 512
	source := make([]float32, depth*TileLines)
	dst := make([]uint16, depth*TileLines)
	for _, single := range []bool{false, true} {
		for _, along := range []bool{false, true} {
			for _, pairs := range []bool{false, true} {
				b.Run(fmt.Sprintf("float32=%v,alongDepth=%v,pairs=%v", single, along, pairs), func(b *testing.B) {
					m := Tiled{Data: unsafe.Pointer(&source[0]), Float32: single, LineStep: 1, DepthStep: TileLines, Lines: TileLines, Depth: depth}
					if along {
						m.LineStep, m.DepthStep = depth, 1
					}
					for b.Loop() {
						PackTiles(dst, m, pairs)
					}
					b.ReportMetric(depth*TileLines*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gnumbers/s")
				})
			}
		}
	}
}
