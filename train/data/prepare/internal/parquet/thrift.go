package parquet

import (
	"encoding/binary"
	"errors"
)

// thrift reads values in Thrift's compact protocol. Its first error ends it: what is read after
// that is zero.
type thrift struct {
	rest  []byte
	depth int
	err   error
}

// The types of values.
const (
	boolTrue  = 1
	boolFalse = 2
	int8Type  = 3
	int64Type = 6
	double    = 7
	binaryOf  = 8
	listOf    = 9
	setOf     = 10
	mapOf     = 11
	structOf  = 12
	uuid      = 13
)

// errShort says that values go on behind the end of what there is.
var (
	errShort = errors.New("it ends within a value")
	errDeep  = errors.New("its values are nested more than 32 deep")
	errType  = errors.New("it has a value of another type than Parquet's")
)

func (t *thrift) fail(err error) {
	if t.err == nil {
		t.err = err
	}
	t.rest = nil
}

func (t *thrift) take(n int) []byte {
	if n < 0 || n > len(t.rest) {
		t.fail(errShort)
		return nil
	}
	taken := t.rest[:n]
	t.rest = t.rest[n:]
	return taken
}

func (t *thrift) byte() byte {
	if b := t.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (t *thrift) unsigned() uint64 {
	x, n := binary.Uvarint(t.rest)
	if n <= 0 {
		t.fail(errShort)
		return 0
	}
	t.rest = t.rest[n:]
	return x
}

// signed is a number in zigzag order.
func (t *thrift) signed() int64 {
	x := t.unsigned()
	return int64(x>>1) ^ -int64(x&1)
}

// length is one that needs as many bytes at least.
func (t *thrift) length() int {
	n := t.unsigned()
	if n > uint64(len(t.rest)) {
		t.fail(errShort)
		return 0
	}
	return int(n)
}

// fields calls take with each field of a struct; it reads the value.
func (t *thrift) fields(take func(id int64, kind byte)) {
	if t.depth++; t.depth > 32 {
		t.fail(errDeep)
	}
	defer func() { t.depth-- }()
	for id := int64(0); t.err == nil; {
		head := t.byte()
		if head == 0 {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int64(delta)
		} else {
			id = t.signed()
		}
		take(id, head&15)
	}
}

// list calls take for each element of a list.
func (t *thrift) list(kind byte, take func(kind byte)) {
	if kind != listOf && kind != setOf {
		t.fail(errType)
		return
	}
	head := t.byte()
	n := int(head >> 4)
	if n == 15 {
		n = t.length()
	}
	for i := 0; i < n && t.err == nil; i++ {
		take(head & 15)
	}
}

// number is a value of a number.
func (t *thrift) number(kind byte) int64 {
	switch {
	case kind == int8Type:
		return int64(int8(t.byte()))
	case kind > int8Type && kind <= int64Type:
		return t.signed()
	}
	t.fail(errType)
	return 0
}

// text is a value of bytes.
func (t *thrift) text(kind byte) string {
	if kind != binaryOf {
		t.fail(errType)
		return ""
	}
	return string(t.take(t.length()))
}

// structure is a value of a struct.
func (t *thrift) structure(kind byte, take func(id int64, kind byte)) {
	if kind != structOf {
		t.fail(errType)
		return
	}
	t.fields(take)
}

// skip leaves out a value.
func (t *thrift) skip(kind byte) {
	switch kind {
	case boolTrue, boolFalse: // the type is the value
	case double:
		t.take(8)
	case uuid:
		t.take(16)
	case binaryOf:
		t.take(t.length())
	case listOf, setOf:
		t.list(kind, t.skipElement)
	case mapOf:
		n := t.length()
		if n == 0 {
			return
		}
		kinds := t.byte()
		for i := 0; i < n && t.err == nil; i++ {
			t.skipElement(kinds >> 4)
			t.skipElement(kinds & 15)
		}
	case structOf:
		t.fields(func(_ int64, kind byte) { t.skip(kind) })
	default:
		t.number(kind)
	}
}

// skipElement leaves out an element of a list or a map, whose truths have a byte.
func (t *thrift) skipElement(kind byte) {
	switch kind {
	case boolTrue, boolFalse:
		t.byte()
	case listOf, setOf, mapOf: // of lists of lists
		if t.depth++; t.depth > 32 {
			t.fail(errDeep)
		}
		t.skip(kind)
		t.depth--
	default:
		t.skip(kind)
	}
}
