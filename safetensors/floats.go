package safetensors

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/stheno-ml/stheno/internal/transpose"
)

// Float32s reads as many elements of a tensor of F32, F16 or BF16 as into holds, those from the given one on, in the order of
// the rows: a part of a tensor costs no memory beside what it is read into.
func (f *File) Float32s(name string, from int, into []float32) error {
	e, kind, err := f.floats(name)
	if err != nil {
		return err
	}
	if count := e.elements(kind); from < 0 || int64(from) > count || int64(len(into)) > count-int64(from) {
		return f.errorf("tensor %q has %d elements, %d are asked for from number %d on", name, count, len(into), from)
	}
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	at := f.header.data + e.begin + int64(from)*int64(kind.size)
	for len(into) > 0 {
		n := min(len(into), bufferSize/kind.size)
		bytes := buffer[:n*kind.size]
		if err := readFull(f.reader, bytes, at); err != nil {
			return f.errorf("reading tensor %q: %w", name, err)
		}
		kind.convert(bytes, into[:n])
		into, at = into[n:], at+int64(len(bytes))
	}
	return nil
}

// buffers hold what was read and is not converted yet.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// floatKind is a type that is read as float32.
type floatKind struct {
	size    int // of an element in the file
	convert func(bytes []byte, to []float32)
	// turn puts elements, from a number of the square on, into one below the other.
	turn func(s *transpose.Square, i int, row []byte)
}

var floatKinds = map[string]floatKind{
	"F32":  {4, float32sOfSingle, turnSingle},
	"BF16": {2, float32sOfBrain, turnBrain},
	"F16":  {2, float32sOfHalf, turnHalf},
}

// floats finds a tensor that is read as float32.
func (f *File) floats(name string) (entry, floatKind, error) {
	e, ok := f.byName[name]
	if !ok {
		return e, floatKind{}, f.errorf("has no tensor %q", name)
	}
	kind, ok := floatKinds[e.dtype]
	if !ok {
		return e, kind, f.errorf("tensor %q is %s, it needs to be F32, F16 or BF16", name, e.dtype)
	}
	return e, kind, nil
}

func (e entry) elements(kind floatKind) int64 { return (e.end - e.begin) / int64(kind.size) }

func float32sOfSingle(bytes []byte, to []float32) {
	for i := range to {
		to[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
}

func float32sOfBrain(bytes []byte, to []float32) {
	for ; len(to) >= 4 && len(bytes) >= 8; to, bytes = to[4:], bytes[8:] { // four at a time
		x := binary.LittleEndian.Uint64(bytes)
		to[0] = math.Float32frombits(uint32(x) << 16)
		to[1] = math.Float32frombits(uint32(x) &^ 0xffff)
		to[2] = math.Float32frombits(uint32(x>>32) << 16)
		to[3] = math.Float32frombits(uint32(x>>32) &^ 0xffff)
	}
	for i := range to {
		to[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(bytes[2*i:])) << 16)
	}
}

func float32sOfHalf(bytes []byte, to []float32) {
	for i := range to {
		to[i] = float32FromHalf(binary.LittleEndian.Uint16(bytes[2*i:]))
	}
}
