package safetensors

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// Elements reads elements of a tensor, from the given one on in the order of the rows, as many as
// into has bytes for. They come as this machine has such numbers in memory: a part of a tensor
// costs nothing beside what it is read into, and what is done with it is the caller's.
func (f *File) Elements(name string, from int, into []byte) error {
	e, ok := f.byName[name]
	if !ok {
		return f.errorf("has no tensor %q", name)
	}
	if e.dtype == "C64" || elementSizes[e.dtype] == 0 {
		return f.errorf("tensor %q is %s, whose elements are not read one by one", name, e.dtype)
	}
	size := int(elementSizes[e.dtype])
	if len(into)%size != 0 {
		return f.errorf("tensor %q has elements of %d bytes, %d bytes are asked for", name, size, len(into))
	}
	if count := (e.end - e.begin) / int64(size); from < 0 || int64(from) > count || int64(len(into)/size) > count-int64(from) {
		return f.errorf("tensor %q has %d elements, %d are asked for from number %d on", name, count, len(into)/size, from)
	}
	if err := f.readElements(into, size, e.begin+int64(from)*int64(size)); err != nil {
		return f.errorf("reading tensor %q: %w", name, err)
	}
	return nil
}

// readElements reads elements of so many bytes, which begin at a byte of the data, as this machine
// has them in memory.
func (f *File) readElements(into []byte, size int, at int64) error {
	if err := readFull(f.reader, into, f.header.data+at); err != nil {
		return err
	}
	if !isLittleEndian {
		for element := range slices.Chunk(into, size) {
			slices.Reverse(element)
		}
	}
	return nil
}

// bytesOf is the memory of a list, and how many bytes an element has.
func bytesOf[T any](data []T) (memory []byte, size int) {
	var element T
	size = int(unsafe.Sizeof(element))
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), size*len(data)), size
}

var isLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1
