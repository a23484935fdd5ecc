// Package packed says how weights of eight and of four bits lie in memory, and makes them of
// float32.
//
// A packed matrix is a row-major one whose rows lie end to end, each of a whole number of blocks. A
// row is its codes, then what their scales are read from, then zeros up to a multiple of 16 bytes:
// codes lie side by side and begin where any processor loads them well, and some rows of a matrix
// are a packed matrix too.
//
//	Int8    a code is a number from −127 to 127; a scale is a float16 for each 32
//	Int4    a code is a number from −8 to 7, of which 8 is added; a scale is a float16 for each 32
//	NF4     a code is one of sixteen numbers, NF4Table; a scale for each 64, itself of eight bits
//
// The first two are what GGUF calls Q8_0 and Q4_0, the last what bitsandbytes calls NF4 with double
// quantisation: only the order of the bytes is another. Each 16 bytes of codes of four bits are 32
// elements, byte j having element j in its low half and j+16 in the other.
//
// An element is its number times its scale, rounded once to float32. That is what products of
// packed matrices multiply by, to the rounding of their sums.
package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
)

// Int8, Int4 and NF4 are a byte of a matrix of that type: where a matrix is known by the type of
// its elements, they are these, and its shape is that of the bytes, (rows, bytes of a row).
type (
	Int8 byte
	Int4 byte
	NF4  byte
)

// Row is how the rows of a packed matrix lie.
type Row struct {
	DType   kernels.DType
	Columns int
	Scales  int // where the scales begin
	Bytes   int // of a row
}

// Group is how many elements of a row [Row.ReadScales] gives a scale for.
const Group = 32

// align is what the bytes of a row are a multiple of.
const align = 16

// RowOf is the layout of rows of so many columns.
func RowOf(d kernels.DType, columns int) (Row, error) {
	if !d.IsPacked() {
		return Row{}, fmt.Errorf("%v is not a type of packed matrices", d)
	}
	if columns < 1 || columns%d.Block() != 0 {
		return Row{}, fmt.Errorf("%d columns cannot be %v, they need to be a multiple of %d", columns, d, d.Block())
	}
	blocks := columns / d.Block()
	r := Row{DType: d, Columns: columns, Scales: columns / 2}
	var scales int
	switch d {
	case kernels.Int8:
		r.Scales, scales = columns, 2*blocks
	case kernels.Int4:
		scales = 2 * blocks
	default:
		scales = 4*nf4Floats(blocks) + blocks
	}
	r.Bytes = (r.Scales + scales + align - 1) &^ (align - 1)
	return r, nil
}

// RowOfBytes is the layout of rows of so many bytes, which say how many columns they have.
func RowOfBytes(d kernels.DType, bytes int) (Row, error) {
	if d.IsPacked() && bytes > 0 {
		// The bytes of a block are more than those that a row is rounded up by.
		perBlock := d.Block() / 2
		if d == kernels.Int8 {
			perBlock *= 2
		}
		for blocks := bytes / perBlock; blocks > 0; blocks-- {
			r, err := RowOf(d, blocks*d.Block())
			if err != nil || r.Bytes < bytes {
				break
			}
			if r.Bytes == bytes {
				return r, nil
			}
		}
	}
	return Row{}, fmt.Errorf("rows of %d bytes are no rows of %v", bytes, d)
}

// Table is the sixteen numbers of codes of four bits, false for codes that are numbers.
func (r Row) Table() (numbers [16]float32, found bool) {
	switch r.DType {
	case kernels.NF4:
		return NF4Table, true
	case kernels.Int4:
		for i := range numbers {
			numbers[i] = float32(i - 8)
		}
		return numbers, true
	}
	return numbers, false
}

// ReadScales gives the scale of each [Group] elements from one group on.
func (r Row) ReadScales(dst []float32, row []byte, from int) {
	if r.DType == kernels.NF4 {
		r.nf4Scales(dst, row, from)
		return
	}
	for i := range dst {
		dst[i] = kernels.Float16(binary.LittleEndian.Uint16(row[r.Scales+2*(from+i):])).Float32()
	}
}

// Widen writes the elements of a row.
func (r Row) Widen(dst []float32, row []byte) {
	table, hasTable := r.Table()
	var scale [1]float32
	for g := range r.Columns / Group {
		r.ReadScales(scale[:], row, g)
		to := dst[g*Group:][:Group]
		if !hasTable {
			for j, c := range row[g*Group:][:Group] {
				to[j] = float32(int8(c)) * scale[0]
			}
			continue
		}
		for j, c := range row[g*Group/2:][:Group/2] {
			to[j], to[j+Group/2] = table[c&15]*scale[0], table[c>>4]*scale[0]
		}
	}
}

// Widen gives the elements of a matrix, row by row, by all processors.
func Widen(d kernels.DType, matrix []byte, rows, columns int) ([]float32, error) {
	r, err := RowOf(d, columns)
	if err == nil && rows*r.Bytes != len(matrix) {
		err = fmt.Errorf("%d rows of %d columns of %v take %d bytes, there are %d", rows, columns, d, rows*r.Bytes, len(matrix))
	}
	if err != nil {
		return nil, err
	}
	wide := make([]float32, rows*columns)
	_ = eachRow(rows, func(i int) error {
		r.Widen(wide[i*columns:][:columns], matrix[i*r.Bytes:][:r.Bytes])
		return nil
	})
	return wide, nil
}

// Pack makes a packed matrix of a row-major one of float32, by all processors. An element that is
// not finite is an error.
func Pack(d kernels.DType, matrix []float32, rows, columns int) ([]byte, error) {
	r, err := RowOf(d, columns)
	if err == nil && rows*columns != len(matrix) {
		err = fmt.Errorf("%d rows of %d columns are %d elements, there are %d", rows, columns, rows*columns, len(matrix))
	}
	if err != nil {
		return nil, err
	}
	bytes := make([]byte, rows*r.Bytes)
	one := map[kernels.DType]func(row []byte, x []float32) error{kernels.Int8: r.packInt8, kernels.Int4: r.packInt4}[d]
	if d == kernels.NF4 {
		return bytes, r.packNF4(bytes, matrix, rows)
	}
	return bytes, eachRow(rows, func(i int) error {
		if err := one(bytes[i*r.Bytes:][:r.Bytes], matrix[i*columns:][:columns]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		return nil
	})
}

var errNotFinite = errors.New("an element is not finite")

// greatest is the element of largest magnitude, the first of several.
func greatest(x []float32) (float32, error) {
	most, size := float32(0), float32(0)
	for _, v := range x {
		a := float32(math.Abs(float64(v)))
		if !(a <= math.MaxFloat32) {
			return 0, errNotFinite
		}
		if a > size {
			most, size = v, a
		}
	}
	return most, nil
}

// eachRow does something for each row, by all processors. The error is that of the first row that
// has one.
func eachRow(rows int, do func(row int) error) error {
	const together = 16
	var (
		next    atomic.Int64
		workers sync.WaitGroup
		mu      sync.Mutex
		first   = rows
		failed  error
	)
	for range min(runtime.GOMAXPROCS(0), (rows+together-1)/together) {
		workers.Go(func() {
			for {
				from := int(next.Add(together)) - together
				if from >= rows {
					return
				}
				for i := from; i < min(rows, from+together); i++ {
					if err := guard.Call("a row", func() error { return do(i) }); err != nil {
						mu.Lock()
						if i < first {
							first, failed = i, err
						}
						mu.Unlock()
					}
				}
			}
		})
	}
	workers.Wait()
	return failed
}
