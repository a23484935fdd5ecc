package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// PackedBlock is how many packed numbers have one scale.
const PackedBlock = 32

// PackedTable says what codes of four bits mean: first the sixteen numbers, and behind them their
// first bytes, their second ones, and so on, as some processors look them up.
type PackedTable [32]float32

// NewPackedTable makes the table of sixteen numbers.
func NewPackedTable(numbers [16]float32) *PackedTable {
	var t PackedTable
	copy(t[:], numbers[:])
	planes := unsafe.Slice((*byte)(unsafe.Pointer(&t[16])), 64)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&t[0])), 64)
	for i, b := range bytes {
		planes[i%4*16+i/4] = b
	}
	return &t
}

// PackedDots multiplies rows of packed numbers by one of float32, each row being some blocks:
//
//	out_i = Σ_b scale_ib·(Σ_j number_ibj·x_bj)
//
// With a table the codes have four bits: byte j of a block has number j in its low half and j+16 in
// the other. Without one they are numbers of eight bits, with signs. The codes of rows are ldc
// bytes apart, their scales lds numbers. rows is len(out), and there is at least one block.
func PackedDots(blocks int, codes *byte, ldc int, table *PackedTable, scales *float32, lds int, x *float32, out []float32) {
	rows := len(out)
	switch {
	case rows == 0:
	case active != Generic && table != nil:
		dotsNibblesVector(rows, blocks, codes, ldc, &table[0], scales, lds, x, &out[0])
	case active != Generic:
		dotsBytesVector(rows, blocks, codes, ldc, scales, lds, x, &out[0])
	default:
		right := row(x, 0, 0, blocks*PackedBlock)
		for i := range out {
			sum := float32(0)
			for b, scale := range row(scales, i, lds, blocks) {
				total := float32(0)
				for j, y := range packedNumbers(codes, i*ldc, b, table) {
					total += y * right[b*PackedBlock+j]
				}
				sum += scale * total
			}
			out[i] = sum
		}
	}
}

// ScalesTogether is how many scales PackedScales widens at a time.
const ScalesTogether = 8

// PackedScales widens n scales of float16 in each of some rows, which are ld bytes apart, to rows
// of n numbers. n is a multiple of [ScalesTogether], and there is at least one row.
func PackedScales(rows, n int, from *byte, ld int, dst *float32) {
	if active != Generic {
		scalesOfRowsVector(rows, n, from, ld, dst)
		return
	}
	for i := range rows {
		scales := unsafe.Slice((*kernels.Float16)(unsafe.Add(unsafe.Pointer(from), i*ld)), n)
		for j, to := 0, row(dst, i, n, n); j < n; j++ {
			to[j] = scales[j].Float32()
		}
	}
}

// PackedWiden writes the numbers of some blocks, each times its scale, rounded once. There is at
// least one block.
func PackedWiden(blocks int, dst *float32, codes *byte, table *PackedTable, scales *float32) {
	switch {
	case active != Generic && table != nil:
		widenNibblesVector(blocks, dst, codes, &table[0], scales)
	case active != Generic:
		widenBytesVector(blocks, dst, codes, scales)
	default:
		for b, scale := range row(scales, 0, 0, blocks) {
			to := row(dst, b, PackedBlock, PackedBlock)
			for j, y := range packedNumbers(codes, 0, b, table) {
				to[j] = y * scale
			}
		}
	}
}

// packedNumbers are the numbers of block b of the codes that begin at a byte.
func packedNumbers(codes *byte, from, b int, table *PackedTable) (numbers [PackedBlock]float32) {
	if table == nil {
		for j, c := range unsafe.Slice((*int8)(unsafe.Add(unsafe.Pointer(codes), from+b*PackedBlock)), PackedBlock) {
			numbers[j] = float32(c)
		}
		return numbers
	}
	for j, c := range unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(codes), from+b*PackedBlock/2)), PackedBlock/2) {
		numbers[j], numbers[j+PackedBlock/2] = table[c&15], table[c>>4]
	}
	return numbers
}
