package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// header is what a file says about its data, all of it checked.
type header struct {
	metadata map[string]string
	entries  []entry // in the order of the data
	data     int64   // where the data begins in the file
}

// maxTensors is how many tensors a file may have: each takes memory and time, however short its
// entry is.
const maxTensors = 1 << 16

// entry is a tensor's part of the header.
type entry struct {
	name       string
	dtype      string
	shape      []int
	begin, end int64 // of its data, counted from where all data begins
}

// readHeader reads and checks the header of a file of that size.
func readHeader(r io.ReaderAt, size int64) (header, error) {
	if size < 8 {
		return header{}, fmt.Errorf("has %d bytes, it needs at least the 8 of its header's length", size)
	}
	var prefix [8]byte
	if err := readFull(r, prefix[:], 0); err != nil {
		return header{}, fmt.Errorf("reading the header's length: %w", err)
	}
	if kind := otherKind(prefix[:]); kind != "" {
		return header{}, fmt.Errorf("begins like %s, it needs to be a safetensors file", kind)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeader {
		return header{}, fmt.Errorf("claims a header of %d bytes, the format allows %d", length, maxHeader)
	}
	if int64(length) > size-8 {
		return header{}, fmt.Errorf("claims a header of %d bytes, only %d follow: it is cut short or no safetensors file", length, size-8)
	}
	var first [1]byte
	if err := readFull(r, first[:min(length, 1)], 8); err == nil && first[0] != '{' {
		return header{}, fmt.Errorf("has a header that is not valid: %w", errNoObject) // whose length is no reason to take memory for it
	}
	text := make([]byte, length)
	if err := readFull(r, text, 8); err != nil {
		return header{}, fmt.Errorf("reading the header: %w", err)
	}
	h, err := parseHeader(text)
	if err != nil {
		return header{}, fmt.Errorf("has a header that is not valid: %w", err)
	}
	h.data = 8 + int64(length)
	if err := h.arrange(size - h.data); err != nil {
		return header{}, err
	}
	return h, nil
}

// otherKind names what a file is that people take for one of this format, by its first eight bytes;
// as the length of a header they would be more than the format allows.
func otherKind(start []byte) string {
	for _, k := range []struct{ start, name string }{
		{"PK\x03\x04", "a zip archive, as PyTorch's .pt and .bin files are"},
		{"\x80\x02", "a Python pickle, as PyTorch's old .bin files are"},
		{"GGUF", "a GGUF file"},
		{"\x93NUMPY", "a NumPy array"},
		{"\x89HDF", "an HDF5 file"},
		{"version ", "a pointer to a file that Git LFS has not fetched"},
		{"{", "JSON"},
		{"<", "a web page"},
	} {
		if strings.HasPrefix(string(start), k.start) && binary.LittleEndian.Uint64(start) > maxHeader {
			return k.name
		}
	}
	return ""
}

// readFull fills the buffer from that place on.
func readFull(r io.ReaderAt, buffer []byte, at int64) error {
	_, err := io.ReadFull(io.NewSectionReader(r, at, int64(len(buffer))), buffer)
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

var errNoObject = errors.New("it does not begin with {")

func parseHeader(text []byte) (header, error) {
	var h header
	if len(text) == 0 || text[0] != '{' {
		return h, errNoObject
	}
	if !utf8.Valid(text) {
		return h, errors.New("it is not UTF-8")
	}
	p := parser{json.NewDecoder(bytes.NewReader(text))}
	p.UseNumber()
	err := p.object(func(key string) (err error) {
		if key == metadataName {
			h.metadata, err = p.metadata()
			return err
		}
		if len(h.entries) == maxTensors {
			return fmt.Errorf("it is one tensor more than %d, as many as a file may have here", maxTensors)
		}
		e, err := p.entry()
		e.name = key
		h.entries = append(h.entries, e)
		return err
	})
	if err != nil {
		return h, err
	}
	if rest := bytes.Trim(text[p.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return h, fmt.Errorf("%d bytes follow the object", len(rest))
	}
	return h, nil
}

// parser reads JSON token by token: what has a type of its own in Go would let duplicate names,
// nulls and names in other case pass.
type parser struct{ *json.Decoder }

// object reads an object; do is called after each key and reads the value.
func (p parser) object(do func(key string) error) error {
	if err := p.delimiter('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.More() {
		key, err := p.string()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%q is there twice", key)
		}
		seen[key] = true
		if err := do(key); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return p.delimiter('}')
}

func (p parser) next() (json.Token, error) {
	token, err := p.Token()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it ends too early")
	}
	return token, err
}

func (p parser) delimiter(want json.Delim) error {
	token, err := p.next()
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%v is where %v needs to be", token, want)
	}
	return nil
}

func (p parser) string() (string, error) {
	token, err := p.next()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("%v is where a string needs to be", token)
	}
	return s, nil
}

// integers reads a list of integers that are not negative and have at most that many bits.
func (p parser) integers(bitSize int) ([]int64, error) {
	if err := p.delimiter('['); err != nil {
		return nil, err
	}
	list := []int64{}
	for p.More() {
		token, err := p.next()
		if err != nil {
			return nil, err
		}
		number, ok := token.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%v is where a number needs to be", token)
		}
		n, err := strconv.ParseUint(number.String(), 10, bitSize)
		if err != nil {
			return nil, fmt.Errorf("%.40s is not an integer from 0 to %d", number, uint64(1)<<bitSize-1)
		}
		list = append(list, int64(n))
	}
	return list, p.delimiter(']')
}

func (p parser) metadata() (map[string]string, error) {
	values := map[string]string{}
	err := p.object(func(key string) (err error) {
		values[key], err = p.string()
		return err
	})
	return values, err
}

func (p parser) entry() (entry, error) {
	var e entry
	var offsets []int64
	err := p.object(func(key string) (err error) {
		switch key {
		case "dtype":
			e.dtype, err = p.string()
		case "shape":
			var shape []int64
			shape, err = p.integers(strconv.IntSize - 1)
			e.shape = make([]int, len(shape))
			for i, n := range shape {
				e.shape[i] = int(n)
			}
		case "data_offsets":
			offsets, err = p.integers(63)
		default:
			var ignored json.RawMessage
			err = p.Decode(&ignored)
		}
		return err
	})
	if err != nil {
		return e, err
	}
	if e.dtype == "" || e.shape == nil || len(offsets) != 2 {
		return e, errors.New("it needs a dtype, a shape and two data_offsets")
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

// arrange sorts the entries by their data, and checks that it lies end to end, fills exactly that
// many bytes, and is as long as types and shapes say.
func (h *header) arrange(size int64) error {
	slices.SortStableFunc(h.entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) })
	end, last := int64(0), -1
	for n, e := range h.entries {
		before := func() string {
			if last < 0 {
				return "the header"
			}
			return fmt.Sprintf("%q", h.entries[last].name)
		}
		switch {
		case e.end < e.begin:
			return fmt.Errorf("tensor %q ends at %d, before it begins at %d", e.name, e.end, e.begin)
		case e.begin < end:
			return fmt.Errorf("tensor %q begins at %d, before %s ends at %d", e.name, e.begin, before(), end)
		case e.begin > end:
			return fmt.Errorf("tensor %q begins at %d, but %s ends at %d: there is a hole", e.name, e.begin, before(), end)
		case e.end > size:
			return fmt.Errorf("tensor %q ends at %d, but there are %d bytes of data: the file is cut short", e.name, e.end, size)
		}
		if element, known := elementSizes[e.dtype]; known {
			if want, ok := dataSize(e.shape, element); !ok || want != uint64(e.end-e.begin) {
				return fmt.Errorf("tensor %q is %s of shape %v, which does not fill its %d bytes", e.name, e.dtype, e.shape, e.end-e.begin)
			}
		}
		end, last = e.end, n
	}
	if end != size {
		return fmt.Errorf("has %d bytes of data, its tensors have %d", size, end)
	}
	return nil
}

// dataSize is how many bytes the elements of a tensor have, unless the number is too large.
func dataSize(shape []int, elementSize uint64) (size uint64, ok bool) {
	size = elementSize
	for _, n := range shape {
		high, low := bits.Mul64(size, uint64(n))
		if high != 0 {
			return 0, false
		}
		size = low
	}
	return size, true
}
