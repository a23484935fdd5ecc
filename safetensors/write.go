package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// Write writes a file of the tensors and, unless it is empty, the metadata. Tensors may be views;
// they are written row by row as they look. They come in the order given, except that those with
// more bytes an element come first, so that all data is aligned. Everything is checked before the
// first byte is written: after that, only w can fail.
func Write(w io.Writer, tensors Tensors, metadata map[string]string) error {
	if w == nil {
		return errors.New("safetensors: w is nil, it needs to be a writer")
	}
	encoders, err := encodersOf(tensors)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	slices.SortStableFunc(encoders, func(a, b encoder) int { return b.elementSize - a.elementSize })
	header, err := headerOf(encoders, metadata)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if _, err := w.Write(header); err != nil {
		return fmt.Errorf("safetensors: writing the header: %w", err)
	}
	for _, e := range encoders {
		if err := e.write(w); err != nil {
			return fmt.Errorf("safetensors: writing %q: %w", e.name, err)
		}
	}
	return nil
}

// encoder is a tensor that was checked and can be written.
type encoder struct {
	name        string
	dtype       string // as the format calls it
	elementSize int
	shape       []int
	write       func(io.Writer) error
}

func encodersOf(tensors Tensors) ([]encoder, error) {
	if len(tensors) > maxTensors {
		return nil, fmt.Errorf("there are %d tensors, a file may have at most %d", len(tensors), maxTensors)
	}
	seen := map[string]bool{}
	var encoders []encoder
	for _, t := range tensors {
		switch {
		case !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("the name %q is not UTF-8", t.Name)
		case t.Name == metadataName:
			return nil, fmt.Errorf("a tensor is named %s, which is the metadata's name", metadataName)
		case seen[t.Name]:
			return nil, fmt.Errorf("two tensors are named %q, each needs a name of its own", t.Name)
		}
		seen[t.Name] = true
		e, err := encoderOf(t.Value)
		if err != nil {
			return nil, fmt.Errorf("tensor %q %w", t.Name, err)
		}
		e.name = t.Name
		encoders = append(encoders, e)
	}
	return encoders, nil
}

func encoderOf(t *tensor.Dense) (encoder, error) {
	switch {
	case t == nil:
		return encoder{}, fmt.Errorf("is nil, it needs to be a tensor")
	case t.Dtype() == tensor.Dtype{}:
		return encoder{}, fmt.Errorf("is a zero value, it needs to be made by tensor.New")
	case !t.IsNativelyAccessible():
		return encoder{}, fmt.Errorf("is in the memory of a device, it needs to be copied to the host first")
	case len(t.Mask()) > 0:
		return encoder{}, fmt.Errorf("has a mask, which the format cannot hold")
	}
	switch t.Dtype() {
	case tensor.Float32:
		return newEncoder(t, "F32", t.Float32s())
	case tensor.Float64:
		return newEncoder(t, "F64", t.Float64s())
	case tensor.Int32:
		return newEncoder(t, "I32", t.Int32s())
	case brainFloat:
		return newEncoder(t, "BF16", halves[kernels.BFloat16](t))
	case halfFloat:
		return newEncoder(t, "F16", halves[kernels.Float16](t))
	case tensor.Uint8:
		return newEncoder(t, "U8", t.Uint8s())
	case tensor.Int64:
		return newEncoder(t, "I64", t.Int64s())
	}
	return encoder{}, fmt.Errorf("is %v, it needs to be float32, float64, BFloat16, Float16, int32, int64 or uint8", t.Dtype())
}

var (
	brainFloat = tensor.Dtype{Type: reflect.TypeFor[kernels.BFloat16]()}
	halfFloat  = tensor.Dtype{Type: reflect.TypeFor[kernels.Float16]()}
)

// halves are the elements of a tensor of 16 bits; that of a scalar comes without a slice and its
// type.
func halves[T ~uint16](t *tensor.Dense) []T {
	switch data := t.Data().(type) {
	case []T:
		return data
	case T:
		return []T{data}
	case uint16:
		return []T{T(data)}
	}
	return nil
}

// newEncoder checks that data holds every element that t's shape and strides reach.
func newEncoder[T any](t *tensor.Dense, dtype string, data []T) (encoder, error) {
	shape, strides := slices.Clone([]int(t.Shape())), slices.Clone(t.Strides())
	if len(strides) != len(shape) && len(shape) > 0 {
		return encoder{}, fmt.Errorf("has strides %v for shape %v", strides, shape)
	}
	last := 0
	for axis, n := range shape {
		if n < 1 || strides[axis] < 0 {
			return encoder{}, fmt.Errorf("has shape %v and strides %v, no axis can be empty or run backwards", shape, strides)
		}
		last += (n - 1) * strides[axis]
	}
	if last >= len(data) {
		return encoder{}, fmt.Errorf("has %d elements, its shape %v and strides %v reach element %d", len(data), shape, strides, last)
	}
	memory, size := bytesOf(data)
	write := func(w io.Writer) error {
		starts, n, stride := rows(shape, strides)
		buffer := make([]byte, 0, bufferSize)
		for start := range starts {
			if row := memory[start*size:]; stride == 1 && isLittleEndian && n*size >= bufferSize {
				if err := writeAll(w, &buffer, row[:n*size]); err != nil {
					return err
				}
				continue
			}
			for i := range n {
				buffer = append(buffer, memory[(start+i*stride)*size:][:size]...)
				if !isLittleEndian {
					slices.Reverse(buffer[len(buffer)-size:])
				}
				if len(buffer) == cap(buffer) {
					if err := writeAll(w, &buffer, nil); err != nil {
						return err
					}
				}
			}
		}
		return writeAll(w, &buffer, nil)
	}
	return encoder{dtype: dtype, elementSize: size, shape: shape, write: write}, nil
}

// writeAll writes what is in the buffer, and more behind it, in pieces that fit into a cache.
func writeAll(w io.Writer, buffer *[]byte, more []byte) error {
	if len(*buffer) > 0 {
		if _, err := w.Write(*buffer); err != nil {
			return err
		}
		*buffer = (*buffer)[:0]
	}
	for piece := range slices.Chunk(more, bufferSize) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// rows cuts a tensor into rows of n elements that lie stride apart, as long as possible, and gives
// where each starts.
func rows(shape, strides []int) (starts iter.Seq[int], n, stride int) {
	outer := len(shape)
	n, stride = 1, 1
	for ; outer > 0 && (n == 1 || strides[outer-1] == n*stride); outer-- {
		if n == 1 {
			stride = strides[outer-1]
		}
		n *= shape[outer-1]
	}
	shape, strides = shape[:outer], strides[:outer]
	return func(yield func(int) bool) {
		at, start := make([]int, outer), 0
		for yield(start) {
			axis := outer - 1
			for ; axis >= 0; axis-- {
				at[axis]++
				start += strides[axis]
				if at[axis] < shape[axis] {
					break
				}
				start -= at[axis] * strides[axis]
				at[axis] = 0
			}
			if axis < 0 {
				return
			}
		}
	}, n, stride
}

// headerOf is the length and the header, padded as the format's own library does.
func headerOf(encoders []encoder, metadata map[string]string) ([]byte, error) {
	header := append(make([]byte, 8), '{')
	separate := func() {
		if header[len(header)-1] != '{' {
			header = append(header, ',')
		}
	}
	if len(metadata) > 0 {
		header = append(header, `"`+metadataName+`":{`...)
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return nil, fmt.Errorf("the metadata %q, %q is not UTF-8", key, metadata[key])
			}
			separate()
			header = fmt.Appendf(header, "%s:%s", quoted(key), quoted(metadata[key]))
		}
		header = append(header, '}')
	}
	end := uint64(0)
	for _, e := range encoders {
		begin := end
		size, ok := dataSize(e.shape, uint64(e.elementSize))
		if end += size; !ok || end < begin || end > math.MaxInt64 {
			return nil, fmt.Errorf("the tensors up to %q have more bytes than a file can have", e.name)
		}
		shape, err := json.Marshal(append([]int{}, e.shape...))
		if err != nil {
			return nil, err
		}
		separate()
		header = fmt.Appendf(header, `%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, quoted(e.name), e.dtype, shape, begin, end)
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	length := len(header) - 8
	if length > maxHeader {
		return nil, fmt.Errorf("the header would have %d bytes, the format allows %d: fewer tensors, shorter names or less metadata are needed",
			length, maxHeader)
	}
	binary.LittleEndian.PutUint64(header, uint64(length))
	return header, nil
}

// quoted is valid UTF-8 as a JSON string.
func quoted(s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is no string that cannot be marshalled
	}
	return q
}
