package gguf

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// Info describes a tensor of a file.
type Info struct {
	Name  string
	Type  Type
	Shape []int // row-major: the last axis is that whose elements lie side by side

	at    int64 // its first byte in the file
	bytes int64
}

// Elements is how many elements a tensor has.
func (i Info) Elements() int {
	n := 1
	for _, d := range i.Shape {
		n *= d
	}
	return n
}

// File is an open file. Its methods may be called from several goroutines at once.
type File struct {
	metadata map[string]any
	tensors  []Info
	byName   map[string]int
	data     io.ReaderAt
	path     string
	close    func() error
}

const (
	magic      = "GGUF"
	version    = 3
	alignment  = 32
	alignedKey = "general.alignment"

	maxEntries  = 1 << 16 // of metadata, and of tensors
	maxName     = 1 << 16 // bytes of a name
	maxMetadata = 1 << 30 // bytes of everything before the data
	maxAxes     = 4
)

// Open opens a file and reads all but the data of its tensors. Close closes it.
func Open(path string) (*File, error) {
	file, size, err := plainfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f, err := read(file, size, path)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.close = file.Close
	return f, nil
}

// Read reads all but the data of the tensors from a file of that size, which needs to stay open.
func Read(r io.ReaderAt, size int64) (*File, error) { return read(r, size, "the file") }

func read(r io.ReaderAt, size int64, path string) (*File, error) {
	f := &File{metadata: map[string]any{}, byName: map[string]int{}, data: r, path: path, close: func() error { return nil }}
	p := &parser{in: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), left: min(size, maxMetadata)}
	if err := f.parse(p, size); err != nil {
		return nil, fmt.Errorf("gguf: %s %w", path, err)
	}
	return f, nil
}

// Close closes a file that Open opened.
func (f *File) Close() error { return f.close() }

// Metadata is what the file says beside its tensors, by key. A value is a uint8, int8, uint16,
// int16, uint32, int32, uint64, int64, float32, float64, bool or string, or a slice of one of
// these. It belongs to the file.
func (f *File) Metadata() map[string]any { return f.metadata }

// Tensors lists the tensors in the order of the file.
func (f *File) Tensors() []Info { return slices.Clone(f.tensors) }

// Info describes a tensor.
func (f *File) Info(name string) (Info, error) {
	i, found := f.byName[name]
	if !found {
		return Info{}, fmt.Errorf("gguf: %s has no tensor %q", f.path, name)
	}
	return f.tensors[i], nil
}

// Bytes reads as many bytes of a tensor as they fit into, from the element on, which begins a
// block.
func (f *File) Bytes(name string, element int, to []byte) error {
	info, err := f.Info(name)
	if err != nil {
		return err
	}
	block := info.Type.Block()
	if block == 0 || element < 0 || element%block != 0 || int64(info.Type.Bytes(element))+int64(len(to)) > info.bytes {
		return fmt.Errorf("gguf: %d bytes from element %d on are not in tensor %q of %s", len(to), element, name, f.path)
	}
	_, err = io.ReadFull(io.NewSectionReader(f.data, info.at+int64(info.Type.Bytes(element)), int64(len(to))), to)
	if err != nil {
		return fmt.Errorf("gguf: %s: tensor %q: %w", f.path, name, noEOF(err))
	}
	return nil
}

// Elements reads elements of a tensor as float32, from one on: whole blocks.
func (f *File) Elements(name string, first int, to []float32) error {
	info, err := f.Info(name)
	if err != nil {
		return err
	}
	buffer := make([]byte, info.Type.Bytes(len(to)))
	if err := f.Bytes(name, first, buffer); err != nil {
		return err
	}
	return info.Type.Decode(to, buffer)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parser reads what comes before the data, and no more bytes than there are.
type parser struct {
	in   io.Reader
	left int64 // bytes that may still be read
	read int64
}

func (p *parser) bytes(n uint64) ([]byte, error) {
	if n > uint64(p.left) {
		return nil, fmt.Errorf("claims %d bytes where %d are left", n, p.left)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(p.in, b)
	p.left -= int64(n)
	p.read += int64(n)
	return b, noEOF(err)
}

func number[T any](p *parser) (x T, err error) {
	b, err := p.bytes(uint64(binary.Size(x)))
	if err == nil {
		_, err = binary.Decode(b, binary.LittleEndian, &x)
	}
	return x, err
}

func (p *parser) string() (string, error) {
	n, err := number[uint64](p)
	if err != nil {
		return "", err
	}
	b, err := p.bytes(n)
	return string(b), err
}

// name is a string that is a key or a tensor's.
func (p *parser) name() (string, error) {
	n, err := number[uint64](p)
	if err != nil {
		return "", err
	}
	if n == 0 || n > maxName {
		return "", fmt.Errorf("has a name of %d bytes, it needs 1 to %d", n, maxName)
	}
	b, err := p.bytes(n)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("has a name that is not UTF-8, %.200q", b)
	}
	return string(b), err
}

// The types of metadata, by their numbers. readers has one for each but arrays, which are 9.
const arrayKind, stringKind, boolKind = 9, 8, 7

type valueReader struct {
	one  func(p *parser) (any, error)
	many func(p *parser, n uint64) (any, error)
}

func numbers[T any]() valueReader {
	return valueReader{
		func(p *parser) (any, error) { return number[T](p) },
		func(p *parser, n uint64) (any, error) {
			var zero T
			size := uint64(binary.Size(zero))
			if high, low := bits.Mul64(n, size); high != 0 || low > uint64(p.left) {
				return nil, fmt.Errorf("claims an array of %d numbers where %d bytes are left", n, p.left)
			}
			b, err := p.bytes(n * size)
			if err != nil {
				return nil, err
			}
			list := make([]T, n)
			_, err = binary.Decode(b, binary.LittleEndian, list)
			return list, err
		},
	}
}

var readers = map[uint32]valueReader{
	0: numbers[uint8](), 1: numbers[int8](), 2: numbers[uint16](), 3: numbers[int16](), 4: numbers[uint32](), 5: numbers[int32](),
	6: numbers[float32](), 10: numbers[uint64](), 11: numbers[int64](), 12: numbers[float64](),
	boolKind: {
		func(p *parser) (any, error) {
			x, err := number[uint8](p)
			if x > 1 && err == nil {
				err = fmt.Errorf("has a bool that is %d", x)
			}
			return x == 1, err
		},
		func(p *parser, n uint64) (any, error) {
			b, err := p.bytes(n)
			list := make([]bool, len(b))
			for i, x := range b {
				list[i] = x != 0
			}
			return list, err
		},
	},
	stringKind: {
		func(p *parser) (any, error) { return p.string() },
		func(p *parser, n uint64) (any, error) {
			if n > uint64(p.left)/8 {
				return nil, fmt.Errorf("claims an array of %d strings where %d bytes are left", n, p.left)
			}
			list := make([]string, n)
			for i := range list {
				var err error
				if list[i], err = p.string(); err != nil {
					return nil, err
				}
			}
			return list, nil
		},
	},
}

// value reads a value of metadata.
func (p *parser) value() (any, error) {
	kind, err := number[uint32](p)
	if err != nil {
		return nil, err
	}
	if r, known := readers[kind]; known {
		return r.one(p)
	}
	if kind != arrayKind {
		return nil, fmt.Errorf("is of type %d, which the format does not have", kind)
	}
	if kind, err = number[uint32](p); err != nil {
		return nil, err
	}
	n, err := number[uint64](p)
	if err != nil {
		return nil, err
	}
	r, known := readers[kind]
	if !known {
		return nil, fmt.Errorf("is an array of type %d, which is not read", kind)
	}
	return r.many(p, n)
}

// parse reads everything but the data.
func (f *File) parse(p *parser, size int64) error {
	start, err := p.bytes(4)
	if err != nil || string(start) != magic {
		return errors.New("does not begin with GGUF, it needs to be a GGUF file")
	}
	v, err := number[uint32](p)
	if err != nil {
		return err
	}
	if v != 2 && v != version {
		return fmt.Errorf("is of version %d, it needs to be 2 or %d, with numbers whose first byte is the lowest", v, version)
	}
	tensors, err := number[uint64](p)
	if err != nil {
		return err
	}
	entries, err := number[uint64](p)
	if err != nil {
		return err
	}
	if tensors > maxEntries || entries > maxEntries {
		return fmt.Errorf("claims %d tensors and %d entries of metadata, it may have %d of each", tensors, entries, maxEntries)
	}
	for range entries {
		key, err := p.name()
		if err != nil {
			return err
		}
		if _, found := f.metadata[key]; found {
			return fmt.Errorf("has metadata %.200q twice", key)
		}
		if f.metadata[key], err = p.value(); err != nil {
			return fmt.Errorf("has metadata %.200q that %w", key, err)
		}
	}
	for range tensors {
		if err := f.parseTensor(p); err != nil {
			return err
		}
	}
	return f.place(p.read, size)
}

func (f *File) parseTensor(p *parser) error {
	name, err := p.name()
	if err != nil {
		return err
	}
	if _, found := f.byName[name]; found {
		return fmt.Errorf("has tensor %.200q twice", name)
	}
	axes, err := number[uint32](p)
	if err != nil {
		return err
	}
	if axes > maxAxes {
		return fmt.Errorf("has tensor %.200q of %d axes, it may have %d", name, axes, maxAxes)
	}
	t := Info{Name: name, Shape: make([]int, axes)}
	elements := uint64(1)
	for axis := int(axes) - 1; axis >= 0; axis-- {
		d, err := number[uint64](p)
		if err != nil {
			return err
		}
		high, low := bits.Mul64(elements, d)
		if d == 0 || d > math.MaxInt32 || high != 0 || low > math.MaxInt64/8 {
			return fmt.Errorf("has tensor %.200q with an axis of %d, which is none or too long", name, d)
		}
		t.Shape[axis], elements = int(d), low
	}
	kind, err := number[uint32](p)
	if err != nil {
		return err
	}
	t.Type = Type(kind)
	offset, err := number[uint64](p)
	if err != nil {
		return err
	}
	if offset > math.MaxInt64/2 {
		return fmt.Errorf("has tensor %.200q at %d, which is beyond any file", name, offset)
	}
	t.at = int64(offset)
	if block := t.Type.Block(); block > 0 {
		if row := t.Shape; len(row) > 0 && row[len(row)-1]%block != 0 || len(row) == 0 && block > 1 {
			return fmt.Errorf("has tensor %.200q of shape %v, rows of %v need a multiple of %d elements", name, t.Shape, t.Type, block)
		}
		t.bytes = int64(t.Type.Bytes(int(elements)))
	}
	f.byName[name] = len(f.tensors)
	f.tensors = append(f.tensors, t)
	return nil
}

// place turns offsets into places of the file, and makes sure that all data is there.
func (f *File) place(header, size int64) error {
	align := int64(alignment)
	if given, found := f.metadata[alignedKey]; found {
		n, ok := given.(uint32)
		if !ok {
			return fmt.Errorf("has metadata %s that is a %T, it needs to be a uint32", alignedKey, given)
		}
		if n == 0 || n > 1<<20 || bits.OnesCount32(n) != 1 {
			return fmt.Errorf("has metadata %s of %d, it needs to be a power of two up to %d", alignedKey, n, 1<<20)
		}
		align = int64(n)
	}
	data := (header + align - 1) / align * align
	inOrder := make([]*Info, len(f.tensors))
	for i := range f.tensors {
		t := &f.tensors[i]
		if t.at%align != 0 {
			return fmt.Errorf("has tensor %.200q at %d, which is no multiple of %d", t.Name, t.at, align)
		}
		if t.at += data; t.at > size || t.bytes > size-t.at {
			return fmt.Errorf("has tensor %.200q of %d bytes at %d, the file has %d: it is cut short", t.Name, t.bytes, t.at, size)
		}
		inOrder[i] = t
	}
	// Data that belongs to many tensors would have a small file make a large model.
	slices.SortStableFunc(inOrder, func(a, b *Info) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.bytes, b.bytes)) })
	for i, t := range inOrder[min(1, len(inOrder)):] {
		if before := inOrder[i]; before.bytes > t.at-before.at {
			return fmt.Errorf("has tensor %.200q at %d, where tensor %.200q has %d bytes from %d on", t.Name, t.at, before.Name, before.bytes, before.at)
		}
	}
	return nil
}
