package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/internal/memory"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"gorgonia.org/tensor"
)

// File is a file whose header was read and found valid. Its methods, except Close, may be called at
// the same time.
type File struct {
	path   string // for errors; empty if it is not known
	reader io.ReaderAt
	closer io.Closer // nil if there is nothing to close
	header header
	byName map[string]entry
}

// Info is what a file's header says about a tensor.
type Info struct {
	Name  string
	Type  string // the format's name for it, such as "F32" or "BF16"
	Shape []int
	Bytes int64
}

// Open opens a file and reads its header. The file must not change until it is closed.
func Open(path string) (*File, error) {
	file, size, err := plainfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	f, err := read(file, size, path)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.closer = file
	return f, nil
}

// Read reads the header of a file of that size, which may lie anywhere: in memory, in an archive,
// behind a network.
func Read(r io.ReaderAt, size int64) (*File, error) {
	if r == nil {
		return nil, errors.New("safetensors: r is nil, it needs to be a reader")
	}
	return read(r, size, "")
}

func read(r io.ReaderAt, size int64, path string) (*File, error) {
	f := &File{path: path, reader: r, byName: map[string]entry{}}
	var err error
	if f.header, err = readHeader(r, size); err != nil {
		return nil, f.errorf("%w", err)
	}
	for _, e := range f.header.entries {
		f.byName[e.name] = e
	}
	return f, nil
}

// Close closes the file, if Open made it.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Names is the tensors' names, in the order of their data.
func (f *File) Names() []string {
	names := make([]string, len(f.header.entries))
	for i, e := range f.header.entries {
		names[i] = e.name
	}
	return names
}

// Metadata is the strings that the file has beside its tensors.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.metadata) }

// Info is a tensor's type and shape, whether or not it is one that Tensor can read.
func (f *File) Info(name string) (Info, error) {
	e, ok := f.byName[name]
	if !ok {
		return Info{}, f.errorf("has no tensor %q", name)
	}
	return Info{e.name, e.dtype, slices.Clone(e.shape), e.end - e.begin}, nil
}

// Tensor reads a tensor into memory of its own.
func (f *File) Tensor(name string) (*tensor.Dense, error) {
	e, ok := f.byName[name]
	if !ok {
		return nil, f.errorf("has no tensor %q", name)
	}
	if e.begin == e.end {
		return nil, f.errorf("tensor %q has shape %v: Gorgonia's tensors have no empty axis", name, e.shape)
	}
	var backing any
	var err error
	switch e.dtype {
	case "F32":
		backing, err = plain[float32](f, e)
	case "F64":
		backing, err = plain[float64](f, e)
	case "I32":
		backing, err = plain[int32](f, e)
	case "I64":
		backing, err = plain[int64](f, e)
	case "U8":
		backing, err = plain[uint8](f, e)
	case "BF16":
		backing, err = decode(f, e, 2, func(b []byte) float32 { return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16) })
	case "F16":
		backing, err = decode(f, e, 2, func(b []byte) float32 { return float32FromHalf(binary.LittleEndian.Uint16(b)) })
	default:
		return nil, f.errorf("tensor %q is %s; only F32, F64, F16, BF16, I32, I64 and U8 can be read", name, e.dtype)
	}
	if err != nil {
		return nil, f.errorf("reading tensor %q: %w", name, err)
	}
	return tensor.New(tensor.WithShape(e.shape...), tensor.WithBacking(backing)), nil
}

// Tensors reads all tensors.
func (f *File) Tensors() (Tensors, error) {
	var list Tensors
	if n := len(f.header.entries); n > 0 {
		if err := checkMemory(f.header.entries[n-1].end); err != nil {
			return nil, f.errorf("its tensors: %w", err)
		}
	}
	for _, name := range f.Names() {
		value, err := f.Tensor(name)
		if err != nil {
			return nil, err
		}
		list = append(list, Tensor{name, value})
	}
	return list, nil
}

// plain reads the elements of a tensor whose type Go has.
func plain[T any](f *File, e entry) ([]T, error) {
	if err := checkMemory(e.end - e.begin); err != nil {
		return nil, err
	}
	data := make([]T, (e.end-e.begin)/int64(elementSizes[e.dtype]))
	memory, size := bytesOf(data)
	return data, f.readElements(memory, size, e.begin)
}

// decode reads the elements of a tensor, each of that many bytes.
func decode[T any](f *File, e entry, size int, get func([]byte) T) ([]T, error) {
	bytes := e.end - e.begin
	if err := checkMemory(bytes); err != nil {
		return nil, err
	}
	data := make([]T, bytes/int64(size))
	buffer := make([]byte, min(bytes, bufferSize))
	at := f.header.data + e.begin
	for rest := data; len(rest) > 0; {
		n := min(len(rest), len(buffer)/size)
		if err := readFull(f.reader, buffer[:n*size], at); err != nil {
			return nil, err
		}
		for i := range n {
			rest[i] = get(buffer[i*size:])
		}
		rest, at = rest[n:], at+int64(n*size)
	}
	return data, nil
}

// checkMemory refuses what this machine cannot hold, such as a file that is larger than its disk.
func checkMemory(bytes int64) error {
	if total, known := memory.Total(); known && uint64(bytes) > total || uint64(bytes) > math.MaxInt/8 {
		return fmt.Errorf("%d bytes do not fit into the memory of this machine", bytes)
	}
	return nil
}

// float32FromHalf is the number that half precision has with those bits: 1 of sign, 5 of exponent,
// 10 of fraction.
func float32FromHalf(half uint16) float32 {
	sign, exponent, fraction := uint32(half>>15)<<31, uint32(half>>10&31), uint32(half&1023)
	switch exponent {
	case 0: // zero, and numbers below the normal ones
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*(1.0/(1<<24))))
	case 31: // infinity and NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// errorf is an error about the file.
func (f *File) errorf(format string, args ...any) error {
	if f.path == "" {
		return fmt.Errorf("safetensors: "+format, args...)
	}
	return fmt.Errorf("safetensors: %s: "+format, append([]any{f.path}, args...)...)
}
