package simd

import (
	"math"
	"os"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Some processors multiply whole tiles of bfloat16 numbers in matrix units, at several times the rate of vectors. A tile of A is 16
// rows of 32 numbers, a tile of B 16 pairs of numbers of 16 columns, so that both are 1 KiB of memory. Two tiles side by side, of
// 32 rows or of 32 columns, are a step of the depth; all steps one behind the other a block.
const (
	// TileLines is the number of rows or columns of a block.
	TileLines = 32
	// TileDepth is the numbers of a row or column that a step holds.
	TileDepth = 32
	// TileStep is the numbers of a step.
	TileStep = TileLines * TileDepth

	tileSide  = TileLines / 2
	tileWords = TileStep / 2
)

// units says what multiplies tiles.
type units int

const (
	noUnits    units = iota
	matrixUnit       // of the processor
	emulation        // plain Go, for tests where there is none
)

// STHENO_SIMD asks for vectors alone, whatever it says.
var multiplier = func() units {
	if active == AVX512 && os.Getenv(environment) == "" && haveTiles() {
		return matrixUnit
	}
	return noUnits
}()

// HasTiles reports whether products may use tiles: at the level AVX512 alone, on processors with matrix units.
func HasTiles() bool { return multiplier != noUnits && active == AVX512 }

// SetTiles turns tiles on or off for tests; restore undoes it. Where there is no matrix unit, plain Go takes its place. No kernel may be
// running.
func SetTiles(on bool) (restore func()) {
	before := multiplier
	switch {
	case !on:
		multiplier = noUnits
	case haveTiles():
		multiplier = matrixUnit
	default:
		multiplier = emulation
	}
	return func() { multiplier = before }
}

// TileProduct multiplies a block of A with several of B, over some steps of the depth: C, 32 rows whose first elements are ldc apart and
// 32 columns for each block of B, is A·B or, with accumulate, has it added. After the steps of a block of B, skip numbers are left
// out. The sums are in float32; what is below the smallest normal number is zero.
func TileProduct(blocks, steps int, a, b *uint16, skip int, c *float32, ldc int, accumulate bool) {
	if blocks <= 0 || steps <= 0 {
		return
	}
	if multiplier == matrixUnit {
		tileProductVector(blocks, steps, a, b, skip, c, ldc, accumulate)
		return
	}
	left := unsafe.Slice(a, steps*TileStep)
	for block := range blocks {
		right := unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(b), 2*block*(steps*TileStep+skip))), steps*TileStep)
		for i := range TileLines {
			for j := range TileLines {
				sum := float32(0)
				for k := range steps * TileDepth {
					step := k / TileDepth * TileStep
					x := left[step+i/tileSide*tileWords+i%tileSide*TileDepth+k%TileDepth]
					y := right[step+j/tileSide*tileWords+k%TileDepth/2*TileLines+j%tileSide*2+k%2]
					sum += fromBFloat16(x) * fromBFloat16(y)
				}
				to := at(c, i*ldc+block*TileLines+j)
				if accumulate {
					sum += *to
				}
				*to = sum
			}
		}
	}
}

func fromBFloat16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// Tiled is a matrix of bfloat16 or float32, which is rounded, that tiles are made of: lines, which are rows of A or columns of B, of
// depth numbers. One of the two steps is 1.
type Tiled struct {
	Data                unsafe.Pointer
	Float32             bool
	LineStep, DepthStep int
	Lines, Depth        int
}

// PackTiles writes a block of up to 32 lines, zeros for those that it lacks and for what the depth lacks of a whole step. pairs says that it
// is a block of B.
func PackTiles(dst []uint16, m Tiled, pairs bool) {
	steps := (m.Depth + TileDepth - 1) / TileDepth
	dst = dst[:steps*TileStep]
	for half := range 2 {
		part := m
		part.Lines = min(tileSide, m.Lines-half*tileSide)
		to := dst[half*tileWords:]
		if part.Lines <= 0 {
			for s := range steps {
				clear(to[s*TileStep:][:tileWords])
			}
			continue
		}
		part.Data = m.at(half*tileSide, 0)
		part.pack(to, steps)
		if alongDepth := m.DepthStep == 1; alongDepth == pairs {
			for s := range steps {
				transposeTile(to[s*TileStep:][:tileWords])
			}
		}
	}
}

func (m Tiled) at(line, depth int) unsafe.Pointer {
	size := 2
	if m.Float32 {
		size = 4
	}
	return unsafe.Add(m.Data, (line*m.LineStep+depth*m.DepthStep)*size)
}

// pack writes tiles of up to 16 lines, a step apart: as rows where numbers of a line lie end to end, otherwise as pairs.
func (m Tiled) pack(dst []uint16, steps int) {
	whole := m.Depth / TileDepth
	if m.Lines < tileSide {
		whole = 0
	}
	if whole > 0 {
		m.packWhole(dst, whole)
	}
	for s := whole; s < steps; s++ {
		m.packEdge(dst[s*TileStep:], s*TileDepth)
	}
}

func (m Tiled) packWhole(dst []uint16, steps int) {
	switch {
	case m.DepthStep == 1 && m.Float32:
		tileRowsRoundedVector(steps, (*float32)(m.Data), m.LineStep, &dst[0])
	case m.DepthStep == 1:
		tileRowsVector(steps, (*uint16)(m.Data), m.LineStep, &dst[0])
	case m.Float32:
		tilePairsRoundedVector(steps, (*float32)(m.Data), m.DepthStep, &dst[0])
	default:
		tilePairsVector(steps, (*uint16)(m.Data), m.DepthStep, &dst[0])
	}
}

// packEdge is a tile from some depth on of which not all is there.
func (m Tiled) packEdge(dst []uint16, from int) {
	depth := min(TileDepth, m.Depth-from)
	var words [tileWords]uint16
	var numbers [tileWords]float32
	edge := Tiled{Data: unsafe.Pointer(&words), LineStep: TileDepth, DepthStep: 1, Lines: tileSide, Depth: TileDepth}
	if m.Float32 {
		edge.Data, edge.Float32 = unsafe.Pointer(&numbers), true
	}
	if m.DepthStep != 1 {
		edge.LineStep, edge.DepthStep = 1, tileSide
	}
	for line := range m.Lines {
		for k := range depth {
			if to, number := edge.at(line, k), m.at(line, from+k); m.Float32 {
				*(*float32)(to) = *(*float32)(number)
			} else {
				*(*uint16)(to) = *(*uint16)(number)
			}
		}
	}
	edge.packWhole(dst, 1)
}

// transposeTile swaps the rows and columns of pairs of a tile.
func transposeTile(tile []uint16) {
	var turned [tileWords]uint16
	const blocks = tileSide / 8
	transposeVector(blocks, blocks, (*float32)(unsafe.Pointer(&tile[0])), tileSide, (*float32)(unsafe.Pointer(&turned)), tileSide)
	copy(tile, turned[:])
}

// RoundRow writes n numbers as bfloat16, rounded to nearest, NaN to a quiet NaN.
func RoundRow(n int, dst *kernels.BFloat16, src *float32) {
	whole := 0
	if active == AVX512 {
		if whole = n &^ 15; whole > 0 {
			roundRowVector(whole/16, (*uint16)(dst), src)
		}
	}
	out, in := unsafe.Slice(dst, n), unsafe.Slice(src, n)
	for i := whole; i < n; i++ {
		out[i] = kernels.ToBFloat16(in[i])
	}
}

// WidenRow writes n numbers of bfloat16 as float32.
func WidenRow(n int, dst *float32, src *kernels.BFloat16) {
	whole := 0
	if active == AVX512 {
		if whole = n &^ 15; whole > 0 {
			widenRowVector(whole/16, dst, (*uint16)(src))
		}
	}
	out, in := unsafe.Slice(dst, n), unsafe.Slice(src, n)
	for i := whole; i < n; i++ {
		out[i] = in[i].Float32()
	}
}
