package packed

import (
	"encoding/binary"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// The scale of integers is rounded to float16 after the codes were chosen, as others do who write
// such numbers.

// packInt8 makes a row of Int8: in each block, the largest magnitude becomes 127.
func (r Row) packInt8(row []byte, x []float32) error {
	for b := range len(x) / Group {
		block := x[b*Group:][:Group]
		most, err := greatest(block)
		if err != nil {
			return err
		}
		scale := float32(math.Abs(float64(most))) / 127
		inverse := float32(0)
		if scale != 0 {
			inverse = 1 / scale
		}
		for j, v := range block {
			row[b*Group+j] = byte(int8(math.Round(float64(v * inverse))))
		}
		r.setScale(row, b, scale)
	}
	return nil
}

// packInt4 makes a row of Int4: in each block, the number of largest magnitude becomes −8.
func (r Row) packInt4(row []byte, x []float32) error {
	for b := range len(x) / Group {
		block := x[b*Group:][:Group]
		most, err := greatest(block)
		if err != nil {
			return err
		}
		scale := most / -8
		inverse := float32(0)
		if scale != 0 {
			inverse = 1 / scale
		}
		code := func(v float32) byte { return byte(min(15, max(0, int(float64(v)*float64(inverse)+8.5)))) }
		for j := range Group / 2 {
			row[b*Group/2+j] = code(block[j]) | code(block[j+Group/2])<<4
		}
		r.setScale(row, b, scale)
	}
	return nil
}

func (r Row) setScale(row []byte, block int, scale float32) {
	binary.LittleEndian.PutUint16(row[r.Scales+2*block:], uint16(kernels.ToFloat16(scale)))
}

// FromBlocks makes a row of Int8 or Int4 of blocks as GGUF has them, each a scale and its codes.
func (r Row) FromBlocks(row, blocks []byte) {
	codes := r.Scales * Group / r.Columns // of a block
	for b := range r.Columns / Group {
		block := blocks[b*(2+codes):][:2+codes]
		copy(row[r.Scales+2*b:], block[:2])
		copy(row[b*codes:], block[2:])
	}
}

// ToBlocks makes blocks of a row of Int8 or Int4, as GGUF has them.
func (r Row) ToBlocks(blocks, row []byte) {
	codes := r.Scales * Group / r.Columns
	for b := range r.Columns / Group {
		block := blocks[b*(2+codes):][:2+codes]
		copy(block, row[r.Scales+2*b:][:2])
		copy(block[2:], row[b*codes:][:codes])
	}
}
