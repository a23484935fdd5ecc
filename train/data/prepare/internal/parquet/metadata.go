package parquet

import (
	"errors"
	"fmt"
)

// metadata is what a footer says that matters here.
type metadata struct {
	schema []element // the root first, and behind each its children
	rows   int64
}

// element is a column, or a group of columns.
type element struct {
	name       string
	physical   int64 // type, −1 for a group's
	repetition int64
	children   int64
}

// chunk is the part of a column that belongs to one row group.
type chunk struct {
	codec, values          int64
	bytes                  int64
	dataPage, dictionary   int64
	elsewhere, isEncrypted bool
}

// Numbers of the format.
const (
	byteArrayType = 6
	optional      = 1
	repeated      = 2
)

// These bound what a footer takes in memory: an element of it can be a byte long.
const (
	maxColumns = 1 << 16
	maxGroups  = 1 << 20
)

func readMetadata(content []byte) (*metadata, error) {
	m, t := &metadata{}, &thrift{rest: content}
	t.fields(func(id int64, kind byte) {
		switch id {
		case 2:
			t.list(kind, func(kind byte) {
				if m.schema = append(m.schema, readElement(t, kind)); len(m.schema) > maxColumns {
					t.fail(fmt.Errorf("it has more than %d columns", maxColumns))
				}
			})
		case 3:
			m.rows = t.number(kind)
		default:
			t.skip(kind)
		}
	})
	if t.err == nil && m.rows < 0 {
		t.err = fmt.Errorf("the number of rows is %d", m.rows)
	}
	return m, t.err
}

// readChunks reads a column's parts, one of each row group.
func readChunks(content []byte, column int) (list []chunk, err error) {
	t := &thrift{rest: content}
	t.fields(func(id int64, kind byte) {
		if id != 4 {
			t.skip(kind)
			return
		}
		t.list(kind, func(kind byte) {
			c, columns := readGroup(t, kind, column)
			switch {
			case t.err != nil:
			case column >= columns:
				t.fail(fmt.Errorf("row group %d has %d columns, the file says %d or more", len(list), columns, column+1))
			case len(list) == maxGroups:
				t.fail(fmt.Errorf("it has more than %d row groups", maxGroups))
			default:
				list = append(list, c)
			}
		})
	})
	return list, t.err
}

func readElement(t *thrift, kind byte) element {
	e := element{physical: -1}
	t.structure(kind, func(id int64, kind byte) {
		switch id {
		case 1:
			e.physical = t.number(kind)
		case 3:
			e.repetition = t.number(kind)
		case 4:
			e.name = t.text(kind)
		case 5:
			e.children = t.number(kind)
		default:
			t.skip(kind)
		}
	})
	return e
}

// readGroup reads one column's part of a row group, and how many columns the group has.
func readGroup(t *thrift, kind byte, column int) (own chunk, columns int) {
	t.structure(kind, func(id int64, kind byte) {
		if id != 1 {
			t.skip(kind)
			return
		}
		t.list(kind, func(kind byte) {
			if c := readChunk(t, kind); columns == column {
				own = c
			}
			columns++
		})
	})
	return own, columns
}

func readChunk(t *thrift, kind byte) (c chunk) {
	t.structure(kind, func(id int64, kind byte) {
		switch id {
		case 1:
			c.elsewhere = t.text(kind) != ""
		case 3:
			t.structure(kind, func(id int64, kind byte) {
				switch id {
				case 4:
					c.codec = t.number(kind)
				case 5:
					c.values = t.number(kind)
				case 7:
					c.bytes = t.number(kind)
				case 9:
					c.dataPage = t.number(kind)
				case 11:
					c.dictionary = t.number(kind)
				default:
					t.skip(kind)
				}
			})
		case 8:
			c.isEncrypted = true
			t.skip(kind)
		default:
			t.skip(kind)
		}
	})
	return c
}

// find is which of the file's columns has a name, and whether its texts may be null.
func (m *metadata) find(name string) (at int, canBeNull bool, err error) {
	if len(m.schema) == 0 {
		return 0, false, errors.New("its footer has no schema")
	}
	left := []int64{m.schema[0].children} // of the groups that are open
	for _, e := range m.schema[1:] {
		for len(left) > 0 && left[len(left)-1] <= 0 {
			left = left[:len(left)-1]
		}
		if len(left) == 0 {
			break
		}
		left[len(left)-1]--
		if len(left) == 1 && e.name == name {
			if e.children > 0 || e.physical != byteArrayType || e.repetition == repeated {
				return 0, false, fmt.Errorf("column %q is %s, it needs to be of texts", name, e)
			}
			return at, e.repetition == optional, nil
		}
		if e.children > 0 {
			left = append(left, e.children)
		} else {
			at++
		}
	}
	return 0, false, fmt.Errorf("it has no column %q, it has %q", name, m.names())
}

// names are those of the columns and groups of the first level, as far as a message has room for
// them.
func (m *metadata) names() (list []string) {
	var left []int64
	for _, e := range m.schema[1:] {
		for len(left) > 0 && left[len(left)-1] <= 0 {
			left = left[:len(left)-1]
		}
		if len(left) > 0 {
			left[len(left)-1]--
		} else if list = append(list, fmt.Sprintf("%.60s", e.name)); len(list) == 12 {
			return list
		}
		if e.children > 0 {
			left = append(left, e.children)
		}
	}
	return list
}

// String says what an element is.
func (e element) String() string {
	types := []string{"boolean", "int32", "int64", "int96", "float", "double", "bytes", "bytes of one length"}
	switch {
	case e.children > 0:
		return "a group of columns"
	case e.physical < 0 || e.physical >= int64(len(types)):
		return "of an unknown type"
	case e.repetition == repeated:
		return "a list of " + types[e.physical]
	}
	return types[e.physical]
}
