package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// everyPacked runs a test at every level of the machine, for codes of four and of eight bits, on
// random rows of random blocks.
func everyPacked(t *testing.T, test func(t *testing.T, r *rand.Rand, rows, blocks, ldc int, codes []byte, table *PackedTable, scales []float32)) {
	var numbers [16]float32
	r := rand.New(rand.NewPCG(11, 12))
	for i := range numbers {
		numbers[i] = float32(r.NormFloat64())
	}
	for _, level := range Levels() {
		for _, table := range []*PackedTable{nil, NewPackedTable(numbers)} {
			t.Run(fmt.Sprintf("%v/table=%v", level, table != nil), func(t *testing.T) {
				defer SetLevel(level)()
				for _, shape := range [][2]int{{1, 1}, {2, 3}, {3, 2}, {4, 1}, {5, 7}, {11, 4}, {16, 24}} {
					rows, blocks := shape[0], shape[1]
					ldc := blocks*PackedBlock + 16
					codes, scales := make([]byte, rows*ldc), make([]float32, rows*blocks)
					for i := range codes {
						codes[i] = byte(r.Uint32())
					}
					for i := range scales {
						scales[i] = float32(r.NormFloat64())
					}
					test(t, r, rows, blocks, ldc, codes, table, scales)
				}
			})
		}
	}
}

func TestPackedDots(t *testing.T) {
	everyPacked(t, func(t *testing.T, r *rand.Rand, rows, blocks, ldc int, codes []byte, table *PackedTable, scales []float32) {
		x, out := newFenced[float32](r, 1, blocks*PackedBlock, 0), newFenced[float32](r, 1, rows, 0)
		lds := blocks + 3
		apart := make([]float32, rows*lds)
		for i := range rows {
			copy(apart[i*lds:], scales[i*blocks:][:blocks])
		}
		PackedDots(blocks, &codes[0], ldc, table, &apart[0], lds, x.first(), out.cells[margin:margin+rows])
		sum := func(i int, term func(float64) float64) (total float64) {
			for b := range blocks {
				for j, y := range packedNumbers(&codes[0], i*ldc, b, table) {
					total += term(float64(y) * float64(scales[i*blocks+b]) * float64(*x.at(0, b*PackedBlock+j)))
				}
			}
			return total
		}
		out.check(t, "out", fmt.Sprintf("%d rows of %d blocks", rows, blocks),
			func(_, i int) float64 { return sum(i, func(x float64) float64 { return x }) },
			func(_, i int) float64 { return epsilon[float32]() * float64(16+blocks) * sum(i, math.Abs) })
	})
}

func TestPackedScales(t *testing.T) {
	for _, level := range Levels() {
		t.Run(level.String(), func(t *testing.T) {
			defer SetLevel(level)()
			r := rand.New(rand.NewPCG(13, 14))
			for _, shape := range [][2]int{{1, 8}, {3, 16}, {16, 24}} {
				rows, n := shape[0], shape[1]
				ld := 2*n + 48 // bytes
				from, to := make([]byte, rows*ld), newFenced[float32](r, 1, rows*n, 0)
				scale := func(i, j int) *kernels.Float16 { return (*kernels.Float16)(unsafe.Pointer(&from[i*ld+2*j])) }
				for i := range rows {
					for j := range n {
						*scale(i, j) = kernels.ToFloat16(float32(r.NormFloat64()))
					}
				}
				PackedScales(rows, n, &from[0], ld, to.first())
				to.check(t, "scales", fmt.Sprint(shape), func(_, j int) float64 { return float64(scale(j/n, j%n).Float32()) }, same)
			}
		})
	}
}

// What is widened is each number times its scale, rounded once.
func TestPackedWiden(t *testing.T) {
	everyPacked(t, func(t *testing.T, r *rand.Rand, rows, blocks, ldc int, codes []byte, table *PackedTable, scales []float32) {
		for i := range rows {
			to := newFenced[float32](r, 1, blocks*PackedBlock, 0)
			PackedWiden(blocks, to.first(), &codes[i*ldc], table, &scales[i*blocks])
			to.check(t, "numbers", fmt.Sprintf("row %d of %d blocks", i, blocks), func(_, j int) float64 {
				numbers := packedNumbers(&codes[0], i*ldc, j/PackedBlock, table)
				return float64(numbers[j%PackedBlock] * scales[i*blocks+j/PackedBlock])
			}, same)
		}
	})
}
