package safetensors

import (
	"encoding/binary"
	"math"
	"sync"
)

// Float32s reads as many elements of a tensor of F32, F16 or BF16 as into holds, those from the given one on, in the order of
// the rows: a part of a tensor costs no memory beside what it is read into.
func (f *File) Float32s(name string, from int, into []float32) error {
	e, ok := f.byName[name]
	if !ok {
		return f.errorf("has no tensor %q", name)
	}
	size := int64(2)
	var convert func([]byte, []float32)
	switch e.dtype {
	case "F32":
		size, convert = 4, float32sOfSingle
	case "BF16":
		convert = float32sOfBrain
	case "F16":
		convert = float32sOfHalf
	default:
		return f.errorf("tensor %q is %s, it needs to be F32, F16 or BF16", name, e.dtype)
	}
	if count := (e.end - e.begin) / size; from < 0 || int64(from) > count || int64(len(into)) > count-int64(from) {
		return f.errorf("tensor %q has %d elements, %d are asked for from number %d on", name, count, len(into), from)
	}
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	at := f.header.data + e.begin + int64(from)*size
	for len(into) > 0 {
		n := min(len(into), bufferSize/int(size))
		bytes := buffer[:n*int(size)]
		if err := readFull(f.reader, bytes, at); err != nil {
			return f.errorf("reading tensor %q: %w", name, err)
		}
		convert(bytes, into[:n])
		into, at = into[n:], at+int64(len(bytes))
	}
	return nil
}

// buffers hold what was read and is not converted yet.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func float32sOfSingle(bytes []byte, to []float32) {
	for i := range to {
		to[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
}

func float32sOfBrain(bytes []byte, to []float32) {
	for i := range to {
		to[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(bytes[2*i:])) << 16)
	}
}

func float32sOfHalf(bytes []byte, to []float32) {
	for i := range to {
		to[i] = float32FromHalf(binary.LittleEndian.Uint16(bytes[2*i:]))
	}
}
