package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// Type is what the numbers of a tensor look like in a file, by the number that the format has for
// it.
type Type uint32

// The types that this package reads and writes; Q5_K and others it only reads. Those of packages
// kernels and ops that are the same are Int8 for Q8_0 and Int4 for Q4_0.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q8_0 Type = 8
	Q4_K Type = 12
	Q6_K Type = 14
	BF16 Type = 30
)

// layout is how many elements lie together, and in how many bytes.
type layout struct {
	name            string
	elements, bytes int
}

var layouts = map[Type]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q8_0: {"Q8_0", 32, 34}, Q4_K: {"Q4_K", 256, 144}, Q6_K: {"Q6_K", 256, 210},
	Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24}, IQ4_NL: {"IQ4_NL", 32, 18},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q5_K: {"Q5_K", 256, 176}, IQ4_XS: {"IQ4_XS", 256, 136},
}

// otherNames are types of the format that this package does not read.
var otherNames = map[Type]string{
	9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
	19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
	34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

func (t Type) String() string {
	if l, known := layouts[t]; known {
		return l.name
	}
	if name, known := otherNames[t]; known {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block is how many elements of a row lie together, 0 for a type that is not read. Rows are of a
// multiple of it.
func (t Type) Block() int { return layouts[t].elements }

// IsWritten reports whether numbers can be rounded to the type; see [Type.Encode].
func (t Type) IsWritten() bool { return t.Block() > 0 && readOnly[t] == nil }

// Bytes is how many bytes so many elements take, whole blocks.
func (t Type) Bytes(elements int) int {
	l, known := layouts[t]
	if !known {
		return 0
	}
	return elements / l.elements * l.bytes
}

// Decode widens whole blocks to float32: as many as dst has elements of.
func (t Type) Decode(dst []float32, src []byte) error {
	if err := t.check(len(dst), len(src)); err != nil {
		return err
	}
	half := func(i int) float32 { return kernels.Float16(binary.LittleEndian.Uint16(src[2*i:])).Float32() }
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = half(i)
		}
	case BF16:
		for i := range dst {
			dst[i] = kernels.BFloat16(binary.LittleEndian.Uint16(src[2*i:])).Float32()
		}
	case Q4_K, Q6_K:
		decode, bytes := decodeQ4K, layouts[t].bytes
		if t == Q6_K {
			decode = decodeQ6K
		}
		for i := 0; i*superBlock < len(dst); i++ {
			decode(dst[i*superBlock:][:superBlock], src[i*bytes:][:bytes])
		}
	default:
		if decode, l := readOnly[t], layouts[t]; decode != nil {
			for i := 0; i*l.elements < len(dst); i++ {
				decode(dst[i*l.elements:][:l.elements], src[i*l.bytes:][:l.bytes])
			}
			return nil
		}
		r, err := t.row(len(dst))
		if err != nil || len(dst) == 0 {
			return err
		}
		row := make([]byte, r.Bytes)
		r.FromBlocks(row, src)
		r.Widen(dst, row)
	}
	return nil
}

// Encode rounds float32 to whole blocks, of a type that is written.
func (t Type) Encode(dst []byte, src []float32) error {
	if err := t.check(len(src), len(dst)); err != nil {
		return err
	}
	if !t.IsWritten() {
		return fmt.Errorf("gguf: %v is read and not written", t)
	}
	switch t {
	case F32:
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	case F16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(kernels.ToFloat16(x)))
		}
	case BF16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(kernels.ToBFloat16(x)))
		}
	case Q4_K, Q6_K:
		encode, bytes := encodeQ4K, layouts[t].bytes
		if t == Q6_K {
			encode = encodeQ6K
		}
		for i := 0; i*superBlock < len(src); i++ {
			if err := encode(dst[i*bytes:][:bytes], src[i*superBlock:][:superBlock]); err != nil {
				return err
			}
		}
	default:
		r, err := t.row(len(src))
		if err != nil || len(src) == 0 {
			return err
		}
		row, err := packed.Pack(r.DType, src, 1, len(src))
		if err != nil {
			return err
		}
		r.ToBlocks(dst, row)
	}
	return nil
}

// row is the packed row of so many elements of Q8_0 or Q4_0.
func (t Type) row(elements int) (packed.Row, error) {
	if elements == 0 {
		return packed.Row{}, nil
	}
	return packed.RowOf(t.Packed(), elements)
}

// Packed is the type of packed matrices that has the same numbers, NoDType for none.
func (t Type) Packed() kernels.DType {
	switch t {
	case Q8_0:
		return kernels.Int8
	case Q4_0:
		return kernels.Int4
	}
	return kernels.NoDType
}

func (t Type) check(elements, bytes int) error {
	l, known := layouts[t]
	switch {
	case !known:
		return fmt.Errorf("gguf: %v is not read or written", t)
	case elements%l.elements != 0:
		return fmt.Errorf("gguf: %d elements are no whole blocks of %v, which have %d", elements, t, l.elements)
	case bytes != t.Bytes(elements):
		return fmt.Errorf("gguf: %d elements of %v take %d bytes, there are %d", elements, t, t.Bytes(elements), bytes)
	}
	return nil
}
