package gguf

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Tensor is a tensor that is written. Data gives its bytes, row by row, in pieces that Write asks
// for one after the other, until it has as many as the tensor takes.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // row-major
	Data  func(w io.Writer) error
}

// Write writes a file: metadata of the types that [File.Metadata] has, in the order of its keys but
// for those of general, which come first, and the tensors in their order.
func Write(w io.Writer, metadata map[string]any, tensors []Tensor) error {
	out := &writer{Writer: bufio.NewWriterSize(w, 1<<16)}
	err := out.header(metadata, tensors)
	for i := 0; i < len(tensors) && err == nil; i++ {
		out.pad()
		err = out.data(&tensors[i])
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}

// writer counts what it writes. A Writer of package bufio keeps its first error until Flush.
type writer struct {
	*bufio.Writer
	n int64
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.n += int64(n)
	return n, err
}

func (w *writer) put(x any) {
	b, _ := binary.Append(nil, binary.LittleEndian, x) // knows all types that are given here
	w.Write(b)
}

func (w *writer) string(s string) {
	w.put(uint64(len(s)))
	w.Write([]byte(s))
}

// pad writes zeros up to where data may begin.
func (w *writer) pad() { w.Write(make([]byte, -w.n&(alignment-1))) }

func (w *writer) header(metadata map[string]any, tensors []Tensor) error {
	if given, found := metadata[alignedKey]; found && given != uint32(alignment) {
		return fmt.Errorf("metadata %s is %v, it needs to be %d", alignedKey, given, alignment)
	}
	w.Write([]byte(magic))
	w.put(uint32(version))
	w.put(uint64(len(tensors)))
	w.put(uint64(len(metadata)))
	general := func(key string) bool { return len(key) > 8 && key[:8] == "general." }
	keys := slices.SortedFunc(maps.Keys(metadata), func(a, b string) int {
		if general(a) != general(b) {
			if general(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	for _, key := range keys {
		w.string(key)
		if err := w.value(metadata[key]); err != nil {
			return fmt.Errorf("metadata %s %w", key, err)
		}
	}
	seen, offset := map[string]bool{}, int64(0)
	for _, t := range tensors {
		block := t.Type.Block()
		if block == 0 || len(t.Shape) == 0 || len(t.Shape) > maxAxes || t.Shape[len(t.Shape)-1]%block != 0 || slices.Min(t.Shape) < 1 || seen[t.Name] {
			return fmt.Errorf("tensor %q of shape %v cannot be written as %v, or is there twice", t.Name, t.Shape, t.Type)
		}
		seen[t.Name] = true
		w.string(t.Name)
		w.put(uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			w.put(uint64(d))
		}
		w.put(uint32(t.Type))
		w.put(uint64(offset))
		offset += (int64(t.Type.Bytes(Info{Shape: t.Shape}.Elements())) + alignment - 1) &^ (alignment - 1)
	}
	return nil
}

func (w *writer) data(t *Tensor) error {
	before, want := w.n, int64(t.Type.Bytes(Info{Shape: t.Shape}.Elements()))
	if err := t.Data(w); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if have := w.n - before; have != want {
		return fmt.Errorf("tensor %q has %d bytes, it needs %d", t.Name, have, want)
	}
	return nil
}

// kinds are the numbers of the types of metadata.
func kindOf(x any) (kind uint32, isArray bool) {
	switch x.(type) {
	case uint8, []uint8:
		kind = 0
	case int8, []int8:
		kind = 1
	case uint16, []uint16:
		kind = 2
	case int16, []int16:
		kind = 3
	case uint32, []uint32:
		kind = 4
	case int32, []int32:
		kind = 5
	case float32, []float32:
		kind = 6
	case bool, []bool:
		kind = boolKind
	case string, []string:
		kind = stringKind
	case uint64, []uint64:
		kind = 10
	case int64, []int64:
		kind = 11
	case float64, []float64:
		kind = 12
	default:
		return arrayKind, false
	}
	switch x.(type) {
	case []uint8, []int8, []uint16, []int16, []uint32, []int32, []float32, []bool, []string, []uint64, []int64, []float64:
		isArray = true
	}
	return kind, isArray
}

func (w *writer) value(x any) error {
	kind, isArray := kindOf(x)
	if kind == arrayKind {
		return fmt.Errorf("is a %T, which the format does not have", x)
	}
	if isArray {
		w.put(uint32(arrayKind))
	}
	w.put(kind)
	switch x := x.(type) {
	case string:
		w.string(x)
	case []string:
		w.put(uint64(len(x)))
		for _, s := range x {
			w.string(s)
		}
	default:
		if isArray {
			w.put(uint64(lengthOf(x)))
		}
		w.put(x)
	}
	return nil
}

func lengthOf(x any) int {
	switch x := x.(type) {
	case []uint8:
		return len(x)
	case []bool:
		return len(x)
	}
	return binary.Size(x) / elementSize(x)
}

// elementSize is the bytes of an element of a slice of numbers.
func elementSize(x any) int {
	switch x.(type) {
	case []int8:
		return 1
	case []uint16, []int16:
		return 2
	case []uint32, []int32, []float32:
		return 4
	}
	return 8
}
