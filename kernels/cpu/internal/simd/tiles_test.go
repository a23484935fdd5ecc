package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// withTiles makes TileProduct run: on the processor's units, or in plain Go where it has none.
func withTiles(t *testing.T) {
	t.Helper()
	t.Cleanup(SetTiles(true))
	if !HasTiles() {
		t.Skip("tiles need AVX-512 or BFMMLA")
	}
}

// packed is a matrix of random lines, and its blocks.
type packed struct {
	lines  [][]float64 // as rounded to bfloat16
	blocks []uint16
	steps  int
}

// packLines makes lines of some depth that next draws, in either type and either order in memory,
// with gaps, and packs them.
func packLines(lines, depth int, single, alongDepth, pairs bool, next func() float64) packed {
	m := Tiled{Float32: single, LineStep: depth + 3, DepthStep: 1, Depth: depth}
	if !alongDepth {
		m.LineStep, m.DepthStep = 1, lines+5
	}
	cells := (lines+5)*(depth+3) + 1
	words, floats := make([]kernels.BFloat16, cells), make([]float32, cells)
	m.Data = unsafe.Pointer(&words[0])
	if single {
		m.Data = unsafe.Pointer(&floats[0])
	}
	for i := range words { // of the gaps
		words[i], floats[i] = kernels.ToBFloat16(float32(math.NaN())), float32(math.NaN())
	}
	p := packed{steps: (depth + TileDepth - 1) / TileDepth}
	for i := range lines {
		line := make([]float64, depth)
		for k := range line {
			x := float32(next())
			at := i*m.LineStep + k*m.DepthStep
			words[at], floats[at] = kernels.ToBFloat16(x), x
			line[k] = float64(words[at].Float32())
		}
		p.lines = append(p.lines, line)
	}
	for first := 0; first < lines; first += TileLines {
		block := m
		block.Data, block.Lines = m.at(first, 0), min(TileLines, lines-first)
		to := slices.Repeat([]uint16{0x7fc0}, p.steps*TileStep)
		PackTiles(to, block, pairs)
		p.blocks = append(p.blocks, to...)
	}
	return p
}

// multiplyPacked is the product of some rows and some columns, one call for the first steps of the
// depth and, with accumulate, one for the others.
func multiplyPacked(a, b packed, first int) (c []float32, stride int) {
	rows, blocks := len(a.blocks)/(a.steps*TileStep), len(b.blocks)/(b.steps*TileStep)
	stride = blocks*TileLines + 5
	c = slices.Repeat([]float32{canary}, rows*TileLines*stride)
	rest := b.steps - first
	TileProduct(rows, blocks, first, &a.blocks[0], rest*TileStep, &b.blocks[0], rest*TileStep, &c[0], stride, false)
	if rest > 0 {
		TileProduct(rows, blocks, rest, &a.blocks[first*TileStep], first*TileStep, &b.blocks[first*TileStep], first*TileStep, &c[0], stride, true)
	}
	return c, stride
}

// Products of small whole numbers are exact, whatever the order of the sums: each number must be
// where it belongs.
func TestTileProductOfWholeNumbers(t *testing.T) {
	withTiles(t)
	for _, s := range []struct{ rows, columns, depth, first int }{{32, 32, 32, 1}, {32, 96, 160, 2}, {7, 33, 45, 1}, {17, 70, 31, 1}, {25, 64, 256, 5}, {75, 70, 160, 3}} {
		for way := range 16 {
			t.Run(fmt.Sprintf("%+v/%d", s, way), func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(way)))
				whole := func() float64 { return float64(r.IntN(33) - 16) }
				a := packLines(s.rows, s.depth, way&1 != 0, way&2 != 0, false, whole)
				b := packLines(s.columns, s.depth, way&4 != 0, way&8 != 0, true, whole)
				c, stride := multiplyPacked(a, b, s.first)
				for i := range len(c) / stride {
					for j := range stride {
						want := 0.0
						switch {
						case j >= stride-5:
							want = canary
						case i < s.rows && j < s.columns:
							for k, x := range a.lines[i] {
								want += x * b.lines[j][k]
							}
						}
						if got := float64(c[i*stride+j]); got != want {
							t.Fatalf("c[%d][%d] is %v, want %v", i, j, got, want)
						}
					}
				}
			})
		}
	}
}

// Rounding each of a sum's additions, in float32, leaves a mean error that is a share of 2⁻²⁴ of
// the sum times the root of the depth: seen are 0.10 to 0.13 where they are rounded to nearest, and
// 0.14 to 0.18 by BFMMLA. Ten times that fails.
func TestTileProductRounding(t *testing.T) {
	withTiles(t)
	for _, depth := range []int{64, 256, 1024} {
		r := rand.New(rand.NewPCG(2, uint64(depth)))
		a, b := packLines(TileLines, depth, true, true, false, r.NormFloat64), packLines(2*TileLines, depth, true, true, true, r.NormFloat64)
		c, stride := multiplyPacked(a, b, a.steps)
		var lost, size float64
		for i, row := range a.lines {
			for j, column := range b.lines {
				want := 0.0
				for k, x := range row {
					want += x * column[k]
				}
				lost += (float64(c[i*stride+j]) - want) * (float64(c[i*stride+j]) - want)
				size += want * want
			}
		}
		share := math.Sqrt(lost/size) / (0x1p-24 * math.Sqrt(float64(depth)))
		t.Logf("depth %d: %.3f", depth, share)
		if !(share < 1) {
			t.Errorf("depth %d: the mean error is %.3g of 2⁻²⁴√depth", depth, share)
		}
	}
}

// Rows of bfloat16 and float32 become each other as single numbers do, whatever their length.
func TestConvertRows(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 0))
		for _, n := range []int{1, 15, 16, 17, 64, 100} {
			wide, half := make([]float32, n+1), make([]kernels.BFloat16, n+1)
			for i := range wide {
				wide[i] = math.Float32frombits(r.Uint32()) // of any kind, NaN too
			}
			if n > 20 {
				copy(wide, []float32{0, 0x1p-140, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32, 1 + 0x1p-8, 1 + 0x3p-8})
			}
			half[n] = 0x1234
			RoundRow(n, &half[0], &wide[0])
			back := slices.Repeat([]float32{canary}, n+1)
			WidenRow(n, &back[0], &half[0])
			for i, x := range wide[:n] {
				if half[i] != kernels.ToBFloat16(x) {
					t.Fatalf("%v becomes %#x, want %#x", x, half[i], kernels.ToBFloat16(x))
				}
				if math.Float32bits(back[i]) != math.Float32bits(half[i].Float32()) {
					t.Fatalf("%#x becomes %v, want %v", half[i], back[i], half[i].Float32())
				}
			}
			if half[n] != 0x1234 || back[n] != canary {
				t.Fatalf("%d numbers: what follows them was written", n)
			}
		}
	}, func(t *testing.T) { t.Skip("there is one type") })
}
