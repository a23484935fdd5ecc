package safetensors

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/stheno-ml/stheno/internal/transpose"
)

// Transposed reads rows of a tensor of F32, F16 or BF16, which have columns elements each, from the given row on, as columns of a
// matrix: element j of row i goes to into[j·stride + i−from]. A large tensor is best read by some hundred kilobytes at a time.
func (f *File) Transposed(name string, columns, from, rows int, into []float32, stride int) error {
	e, kind, err := f.floats(name)
	if err != nil {
		return err
	}
	count := e.elements(kind)
	if columns < 1 || from < 0 || rows < 0 || int64(from) > count/int64(columns)-int64(rows) {
		return f.errorf("tensor %q has %d elements, %d rows of %d are asked for from row %d on", name, count, rows, columns, from)
	}
	if rows == 0 {
		return nil
	}
	if stride < rows || rows > len(into) || columns-1 > (len(into)-rows)/stride {
		return f.errorf("tensor %q: %d rows of %d are asked for into %d elements at a stride of %d", name, rows, columns, len(into), stride)
	}
	buffer := strips.Get().(*[]byte)
	defer strips.Put(buffer)
	if size := rows * columns * kind.size; size > len(*buffer) {
		*buffer = make([]byte, size)
	}
	bytes := (*buffer)[:rows*columns*kind.size]
	if err := readFull(f.reader, bytes, f.header.data+e.begin+int64(from)*int64(columns*kind.size)); err != nil {
		return f.errorf("reading tensor %q: %w", name, err)
	}
	transpose.Into(into, stride, rows, columns, func(s *transpose.Square, top, left, high, wide int) {
		for i := range high {
			kind.turn(s, i, bytes[((top+i)*columns+left)*kind.size:][:wide*kind.size])
		}
	})
	return nil
}

// strips hold rows that were read and are not turned yet.
var strips = sync.Pool{New: func() any { return new([]byte) }}

const lastOfSquare = transpose.Side*transpose.Side - 1 // a mask that tells the compiler that an index is inside

func turnSingle(s *transpose.Square, i int, row []byte) {
	for ; len(row) >= 4; row = row[4:] {
		s[i&lastOfSquare] = math.Float32frombits(binary.LittleEndian.Uint32(row))
		i += transpose.Side
	}
}

func turnBrain(s *transpose.Square, i int, row []byte) {
	for ; len(row) >= 8; row = row[8:] { // four at a time
		x := binary.LittleEndian.Uint64(row)
		s[i&lastOfSquare] = math.Float32frombits(uint32(x) << 16)
		s[(i+transpose.Side)&lastOfSquare] = math.Float32frombits(uint32(x) &^ 0xffff)
		s[(i+2*transpose.Side)&lastOfSquare] = math.Float32frombits(uint32(x>>32) << 16)
		s[(i+3*transpose.Side)&lastOfSquare] = math.Float32frombits(uint32(x>>32) &^ 0xffff)
		i += 4 * transpose.Side
	}
	for ; len(row) >= 2; row = row[2:] {
		s[i&lastOfSquare] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(row)) << 16)
		i += transpose.Side
	}
}

func turnHalf(s *transpose.Square, i int, row []byte) {
	for ; len(row) >= 2; row = row[2:] {
		s[i&lastOfSquare] = float32FromHalf(binary.LittleEndian.Uint16(row))
		i += transpose.Side
	}
}
