package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Attention in bfloat16 has its products made of tiles, on processors with matrix units: queries,
// keys, values and their gradients are packed once a head, probabilities and their gradients block
// by block, rounded to bfloat16. Scores, softmax and all sums are in float32. Heads that a mask may
// not let meet each other's NaN or Inf keep to vectors.

// tilesSuit reports whether the products of an attention problem may be rounded to bfloat16, and
// there are units for that.
func tilesSuit[T kernels.Float](a *kernels.Attention) bool {
	return simd.HasTiles() && kernels.DTypeOf[T]() == kernels.F32 && a.Precision == kernels.PrecisionBFloat16 && a.Mask == nil
}

// tiles is a matrix as blocks of 32 lines, all of so many steps along the other axis.
type tiles struct {
	data  []uint16
	steps int
}

func tilesFor(lines, depth int) (words, steps int) {
	steps = ceilDiv(depth, simd.TileDepth)
	return ceilDiv(lines, simd.TileLines) * steps * simd.TileStep, steps
}

// tileBytes is what tiles take of a workspace.
func tileBytes(lines, depth int) int {
	words, _ := tilesFor(lines, depth)
	return bytesFor[kernels.BFloat16](words)
}

func takeTiles(w *workspace, lines, depth int) tiles {
	words, steps := tilesFor(lines, depth)
	return tiles{takeWords(w, words), steps}
}

// at is where the tiles of some line and place along the depth begin, both the first of a block.
func (t tiles) at(line, depth int) *uint16 {
	return &t.data[(line/simd.TileLines*t.steps+depth/simd.TileDepth)*simd.TileStep]
}

// packRows makes tiles of the rows of a matrix, packColumns of its columns: as blocks of A or, in
// pairs, of B. It returns what of the memory they fill.
func packRows[T kernels.Float](t tiles, m rows[T], n, depth int, pairs bool) tiles {
	return t.pack(simd.Tiled{Data: unsafe.Pointer(m.at(0)), Float32: true, LineStep: m.stride, DepthStep: 1, Lines: n, Depth: depth}, pairs)
}

func packColumns[T kernels.Float](t tiles, m rows[T], n, depth int, pairs bool) tiles {
	return t.pack(simd.Tiled{Data: unsafe.Pointer(m.at(0)), Float32: true, LineStep: 1, DepthStep: m.stride, Lines: n, Depth: depth}, pairs)
}

func (t tiles) pack(m simd.Tiled, pairs bool) tiles {
	t.steps = ceilDiv(m.Depth, simd.TileDepth)
	block := m
	for line := 0; line < m.Lines; line += simd.TileLines {
		block.Data = unsafe.Add(m.Data, line*m.LineStep*kernels.F32.Size())
		block.Lines = min(simd.TileLines, m.Lines-line)
		simd.PackTiles(t.data[line/simd.TileLines*t.steps*simd.TileStep:], block, pairs)
	}
	return t
}

// multiply computes C of n rows of A, from one on, and of so many columns of B, from one on, or
// adds to it. Each begins at a place along the depth, and the product is as deep as the one that
// has less of it. C has room for whole blocks, at the rows of a stride.
func (t tiles) multiply(row, n, from int, b tiles, column, columns, fromB int, c unsafe.Pointer, stride int, accumulate bool) {
	steps := min(t.steps, b.steps)
	simd.TileProduct(ceilDiv(n, simd.TileLines), ceilDiv(columns, simd.TileLines), steps, t.at(row, from), (t.steps-steps)*simd.TileStep,
		b.at(column, fromB), (b.steps-steps)*simd.TileStep, (*float32)(c), stride, accumulate)
}
