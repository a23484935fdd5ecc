package simd

import (
	"math"
	"os"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Some processors multiply matrices of bfloat16 at several times the rate of vectors. Their
// operands are blocks of 32 rows of A and 32 columns of B: steps of 32 numbers of each, 2 KiB, one
// behind the other along the depth. How a step lies depends on the processor:
//
//	AMX     two tiles side by side: of A 16 rows of 32 numbers, of B 16 pairs of numbers of 16 columns
//	BFMMLA  four groups of 8 lines, A and B alike: two lines side by side, four numbers each; then so the other lines; then the next four
const (
	// TileLines is the number of rows or columns of a block.
	TileLines = 32
	// TileDepth is the numbers of a row or column that a step holds.
	TileDepth = 32
	// TileStep is the numbers of a step.
	TileStep = TileLines * TileDepth

	tileSide   = TileLines / 2 // of AMX
	groupLines = 8             // of BFMMLA
)

// units says what multiplies tiles.
type units int

const (
	noUnits    units = iota
	matrixUnit       // of the processor
	emulation        // of AMX in plain Go, for tests where there is none
)

// On processors with AMX, STHENO_SIMD asks for vectors alone, whatever it says.
var multiplier = func() units {
	if (active == BFMMLA || active == AVX512 && os.Getenv(environment) == "") && haveTiles() {
		return matrixUnit
	}
	return noUnits
}()

// HasTiles reports whether products may use tiles: at the level AVX512, on processors with AMX, and
// at the level BFMMLA.
func HasTiles() bool { return multiplier != noUnits && (active == AVX512 || active == BFMMLA) }

// SetTiles turns tiles on or off for tests; restore undoes it. At the level AVX512, plain Go takes
// the place of a matrix unit that there is not. No kernel may be running.
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

// TileProduct multiplies blocks of A with blocks of B, over some steps of the depth: C, 32 rows for
// each block of A, whose first elements are ldc apart, and 32 columns for each block of B, is A·B
// or, with accumulate, has it added. After the steps of a block of A, skipA numbers are left out,
// and skipB after those of a block of B.
//
// The sums are in float32, each in one order whatever the blocks: AMX and plain Go round them to
// nearest, BFMMLA to the odd one of the two numbers around them, or to nearest where the processor
// rounds once a pair of products (FPCR.EBF). What is below the smallest normal number may be zero.
func TileProduct(rows, blocks, steps int, a *uint16, skipA int, b *uint16, skipB int, c *float32, ldc int, accumulate bool) {
	if rows <= 0 || blocks <= 0 || steps <= 0 {
		return
	}
	if multiplier == emulation {
		emulateTiles(rows, blocks, steps, a, skipA, b, skipB, c, ldc, accumulate)
		return
	}
	mostRows, mostBlocks := rows, blocks
	if active == BFMMLA {
		mostBlocks = min(blocks, max(1, longestTileProduct/steps))
		mostRows = max(1, longestTileProduct/(steps*mostBlocks))
	}
	for row := 0; row < rows; row += mostRows {
		left := wordsBehind(a, row*(steps*TileStep+skipA))
		for block := 0; block < blocks; block += mostBlocks {
			tileProductVector(min(mostRows, rows-row), min(mostBlocks, blocks-block), steps, left, skipA, wordsBehind(b, block*(steps*TileStep+skipB)), skipB,
				at(c, row*TileLines*ldc+block*TileLines), ldc, accumulate)
		}
	}
}

// longestTileProduct is how many steps of all blocks BFMMLA multiplies in one go: 20 to 60 µs, as
// nothing can preempt them.
const longestTileProduct = 64

func wordsBehind(p *uint16, n int) *uint16 { return (*uint16)(unsafe.Add(unsafe.Pointer(p), 2*n)) }

// emulateTiles is TileProduct of tiles as AMX has them.
func emulateTiles(rows, blocks, steps int, a *uint16, skipA int, b *uint16, skipB int, c *float32, ldc int, accumulate bool) {
	const tileWords = tileSide * TileDepth
	depth := steps * TileDepth
	lines, columns := make([]float32, TileLines*depth), make([]float32, TileLines*depth)
	for block := range rows * blocks {
		left, right := block/blocks, block%blocks
		for at, x := range unsafe.Slice(wordsBehind(a, left*(steps*TileStep+skipA)), steps*TileStep) {
			step, half, word := at/TileStep, at/tileWords%2, at%tileWords
			lines[(half*tileSide+word/TileDepth)*depth+step*TileDepth+word%TileDepth] = fromBFloat16(x)
		}
		for at, x := range unsafe.Slice(wordsBehind(b, right*(steps*TileStep+skipB)), steps*TileStep) {
			step, half, word := at/TileStep, at/tileWords%2, at%tileWords
			columns[(half*tileSide+word%TileLines/2)*depth+step*TileDepth+word/TileLines*2+word%2] = fromBFloat16(x)
		}
		for i := range TileLines {
			row, out := lines[i*depth:][:depth], unsafe.Slice(at(c, (left*TileLines+i)*ldc+right*TileLines), TileLines)
			for j := range out {
				sum := float32(0)
				for k, y := range columns[j*depth:][:depth] {
					sum += row[k] * y
				}
				if accumulate {
					sum += out[j]
				}
				out[j] = sum
			}
		}
	}
}

func fromBFloat16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// Tiled is a matrix of bfloat16 or float32, which is rounded, that tiles are made of: lines, which
// are rows of A or columns of B, of depth numbers. One of the two steps is 1.
type Tiled struct {
	Data                unsafe.Pointer
	Float32             bool
	LineStep, DepthStep int
	Lines, Depth        int
}

// PackTiles writes a block of up to 32 lines, zeros for those that it lacks and for what the depth
// lacks of a whole step. pairs says that it is a block of B.
func PackTiles(dst []uint16, m Tiled, pairs bool) {
	steps := (m.Depth + TileDepth - 1) / TileDepth
	dst = dst[:steps*TileStep]
	from := 0
	if whole := m.Depth / TileDepth; pairs && !m.Float32 && m.DepthStep != 1 && m.Lines == TileLines && whole > 0 {
		if packBlockOfPairs(whole, (*uint16)(m.Data), m.DepthStep, &dst[0]) {
			from = whole
		}
	}
	side := tileSide
	if active == BFMMLA {
		side = groupLines
	}
	for first := 0; first < TileLines; first += side {
		part := m
		part.Lines = min(side, m.Lines-first)
		to := dst[first*TileDepth:]
		if part.Lines <= 0 {
			for s := range steps {
				clear(to[s*TileStep:][:side*TileDepth])
			}
			continue
		}
		part.Data = m.at(first, 0)
		part.pack(to, from, steps, side)
		if alongDepth := m.DepthStep == 1; active != BFMMLA && alongDepth == pairs {
			for s := range steps {
				transposeTile(to[s*TileStep:][:side*TileDepth])
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

// pack writes the parts of the steps from one on that hold up to side lines. For AMX these are rows
// where numbers of a line lie end to end, otherwise pairs.
func (m Tiled) pack(dst []uint16, from, steps, side int) {
	if whole := m.Depth / TileDepth; m.Lines == side && from < whole {
		m.packWhole(dst, whole) // of which none was done
		from = whole
	}
	for s := from; s < steps; s++ {
		m.packEdge(dst[s*TileStep:], s*TileDepth, side)
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

// packEdge is the part of a step from some depth on of which not all is there.
func (m Tiled) packEdge(dst []uint16, from, side int) {
	depth := min(TileDepth, m.Depth-from)
	var words [tileSide * TileDepth]uint16
	var numbers [tileSide * TileDepth]float32
	edge := Tiled{Data: unsafe.Pointer(&words), LineStep: TileDepth, DepthStep: 1, Lines: side, Depth: TileDepth}
	if m.Float32 {
		edge.Data, edge.Float32 = unsafe.Pointer(&numbers), true
	}
	if m.DepthStep != 1 {
		edge.LineStep, edge.DepthStep = 1, side
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
	var turned [tileSide * TileDepth]uint16
	const blocks = tileSide / 8
	transposeVector(blocks, blocks, (*float32)(unsafe.Pointer(&tile[0])), tileSide, (*float32)(unsafe.Pointer(&turned)), tileSide)
	copy(tile, turned[:])
}

// RoundRow writes n numbers as bfloat16, rounded to nearest, NaN to a quiet NaN.
func RoundRow(n int, dst *kernels.BFloat16, src *float32) {
	whole := 0
	if active != Generic {
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
	if active != Generic {
		if whole = n &^ 15; whole > 0 {
			widenRowVector(whole/16, dst, (*uint16)(src))
		}
	}
	out, in := unsafe.Slice(dst, n), unsafe.Slice(src, n)
	for i := whole; i < n; i++ {
		out[i] = in[i].Float32()
	}
}
