package parquet

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// reader reads a column.
type reader struct {
	file      io.ReaderAt
	end       int64 // of the file
	unread    int64 // bytes of the file that no row group has yet
	optional  bool  // texts may be null
	left      int64 // bytes that may still be decompressed, and be texts
	row, rows int64
	take      func(text []byte) error

	dictionary dictionary
	unpacker   unpacker
	memory     [2][]byte // a page as it is in the file, and decompressed
}

// pageHeader is what stands before a page.
type pageHeader struct {
	kind                       int64
	uncompressed, bytes        int64
	crc                        int64
	hasCRC, uncompressedValues bool

	values, nulls, encoding int64
	levels, repetitions     int64 // bytes, of version 2
	levelEncoding           int64
}

// The kinds of pages, and encodings.
const (
	dataPage, dictionaryPage, dataPage2 = 0, 2, 3

	plain, plainDictionary, runs            = 0, 2, 3
	deltaLength, deltaBytes, runsDictionary = 6, 7, 8
)

// chunk reads the pages of a row group.
func (r *reader) chunk(c *chunk) error {
	at := c.dataPage
	if c.dictionary > 0 && c.dictionary < at {
		at = c.dictionary
	}
	switch {
	case c.elsewhere:
		return errors.New("its column is in another file")
	case c.isEncrypted:
		return errors.New("its column is encrypted")
	case c.values < 0 || c.values > r.rows-r.row:
		return fmt.Errorf("it says that its column has %d values, %d rows are left", c.values, r.rows-r.row)
	case at < 0 || c.bytes < 0 || c.bytes > r.end || at > r.end-c.bytes:
		return fmt.Errorf("it says that its column has %d bytes from %d on, the file has %d", c.bytes, at, r.end)
	case c.values > 0 && c.bytes > r.unread:
		return fmt.Errorf("it says that its column has %d bytes, with those of the row groups before it they are more than the file has", c.bytes)
	}
	if r.dictionary = (dictionary{}); c.values > 0 {
		r.unread -= c.bytes
	}
	end, last := at+c.bytes, r.row+c.values
	for page := 0; r.row < last; page++ {
		h, length, err := r.header(at, end)
		if err != nil {
			return fmt.Errorf("page %d: %w", page, err)
		}
		at += int64(length)
		if h.bytes < 0 || h.bytes > end-at || h.bytes > maxPage {
			return fmt.Errorf("page %d says that it has %d bytes, %d are left", page, h.bytes, end-at)
		}
		if err := r.page(c, h, at, last); err != nil {
			return fmt.Errorf("page %d: %w", page, err)
		}
		at += h.bytes
	}
	return nil
}

// header reads the header of a page. Statistics in it may be long.
func (r *reader) header(at, end int64) (h *pageHeader, length int, err error) {
	const first, most = 4 << 10, 16 << 20
	if at >= end {
		return nil, 0, errors.New("it is missing")
	}
	for size := min(first, end-at); ; size = min(4*size, end-at) {
		r.memory[0] = grown(r.memory[0], int(size))
		if err := readAt(r.file, r.memory[0], at); err != nil {
			return nil, 0, err
		}
		t := &thrift{rest: r.memory[0]}
		if h = readHeader(t); t.err == nil {
			return h, int(size) - len(t.rest), nil
		}
		if !errors.Is(t.err, errShort) || size == end-at || size >= most {
			return nil, 0, fmt.Errorf("its header: %w", t.err)
		}
	}
}

func readHeader(t *thrift) *pageHeader {
	h := &pageHeader{}
	t.fields(func(id int64, kind byte) {
		switch id {
		case 1:
			h.kind = t.number(kind)
		case 2:
			h.uncompressed = t.number(kind)
		case 3:
			h.bytes = t.number(kind)
		case 4:
			h.crc, h.hasCRC = t.number(kind), true
		case 5, 7, 8:
			t.structure(kind, func(field int64, kind byte) { h.field(t, id, field, kind) })
		default:
			t.skip(kind)
		}
	})
	return h
}

// field reads a field of the header of a data page of version 1, a dictionary page, or a data page
// of version 2: 5, 7 and 8.
func (h *pageHeader) field(t *thrift, of, id int64, kind byte) {
	const version2 = 8
	switch {
	case id == 1:
		h.values = t.number(kind)
	case id == 2 && of == version2:
		h.nulls = t.number(kind)
	case id == 2, id == 4 && of == version2:
		h.encoding = t.number(kind)
	case id == 3 && of != version2 && kind != boolTrue && kind != boolFalse:
		h.levelEncoding = t.number(kind)
	case id == 5 && of == version2:
		h.levels = t.number(kind)
	case id == 6 && of == version2:
		h.repetitions = t.number(kind)
	case id == 7 && of == version2:
		h.uncompressedValues = kind == boolFalse
		t.skip(kind)
	default:
		t.skip(kind)
	}
}

// page reads a page, up to a row.
func (r *reader) page(c *chunk, h *pageHeader, at, last int64) error {
	if h.kind != dataPage && h.kind != dataPage2 && h.kind != dictionaryPage {
		return nil // an index
	}
	if h.values < 0 || h.values > maxValues {
		return fmt.Errorf("it says that it has %d values, a page can have %d", h.values, maxValues)
	}
	if h.kind != dictionaryPage && h.values > last-r.row {
		return fmt.Errorf("it says that it has %d values, %d are left of its row group", h.values, last-r.row)
	}
	r.memory[0] = grown(r.memory[0], int(h.bytes))
	content := r.memory[0]
	if err := readAt(r.file, content, at); err != nil {
		return err
	}
	if h.hasCRC && uint32(h.crc) != crc32.ChecksumIEEE(content) {
		return errors.New("its checksum is another")
	}
	levels := []byte(nil) // of version 2, which are never compressed
	if h.kind == dataPage2 {
		if h.repetitions < 0 || h.levels < 0 || h.repetitions > h.bytes || h.levels > h.bytes-h.repetitions {
			return fmt.Errorf("it says that its levels have %d and %d bytes, it has %d", h.repetitions, h.levels, h.bytes)
		}
		before := h.repetitions + h.levels
		levels, content = content[h.repetitions:before], content[before:]
		h.uncompressed -= before
	}
	if c.codec != uncompressed && !(h.kind == dataPage2 && h.uncompressedValues) {
		var err error
		if content, err = r.decompress(c.codec, content, h.uncompressed); err != nil {
			return err
		}
	}
	if h.kind == dictionaryPage {
		return r.readDictionary(h, content)
	}
	return r.readValues(h, levels, content)
}

// readDictionary keeps the texts that later pages name by numbers.
func (r *reader) readDictionary(h *pageHeader, content []byte) error {
	if h.encoding != plain && h.encoding != plainDictionary {
		return fmt.Errorf("the dictionary has encoding %d, it needs to be plain", h.encoding)
	}
	const least = 4 // bytes of a text
	if h.values > int64(len(content)/least) {
		return fmt.Errorf("it says that its dictionary has %d texts, in %d bytes", h.values, len(content))
	}
	if r.dictionary.ends != nil {
		return errors.New("its column has a dictionary already")
	}
	r.memory = [2][]byte{} // one of them is the dictionary's from here on
	r.dictionary = dictionary{content, make([]int32, 0, h.values)}
	texts := plainTexts{content}
	for range h.values {
		if _, err := texts.next(); err != nil {
			return err
		}
		r.dictionary.ends = append(r.dictionary.ends, int32(len(content)-len(texts.rest)))
	}
	return nil
}

// texts are the values of a page, one after the other.
type texts interface{ next() ([]byte, error) }

// readValues takes the texts of a data page.
func (r *reader) readValues(h *pageHeader, levels, content []byte) (err error) {
	there := hybrid{} // whether a value is not null
	if r.optional {
		if h.kind == dataPage {
			if h.levelEncoding != runs {
				return fmt.Errorf("its levels have encoding %d, it needs to be 3, runs", h.levelEncoding)
			}
			if levels, content, err = cutLevels(content); err != nil {
				return err
			}
		}
		if there, err = newHybrid(levels, 1); err != nil {
			return err
		}
	}
	count := h.values // of texts that are not null, at most
	if h.kind == dataPage2 && h.nulls >= 0 && h.nulls <= count {
		count -= h.nulls
	}
	values, err := r.textsOf(h.encoding, content, count)
	if err != nil {
		return err
	}
	for range h.values {
		r.row++
		if r.optional {
			level, err := there.next()
			if err != nil {
				return fmt.Errorf("its levels: %w", err)
			}
			if level == 0 {
				continue
			}
		}
		text, err := values.next()
		if err == nil {
			err = r.take(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) textsOf(encoding int64, content []byte, most int64) (texts, error) {
	switch encoding {
	case plain:
		return &plainTexts{content}, nil
	case plainDictionary, runsDictionary:
		return newDictionaryTexts(r.dictionary, content)
	case deltaLength:
		return newDeltaLengthTexts(content, most)
	case deltaBytes:
		return newDeltaTexts(content, most)
	}
	return nil, fmt.Errorf("its encoding is %d, which is none of texts", encoding)
}

// grown is memory of a length, whose contents are undefined.
func grown(memory []byte, n int) []byte {
	if cap(memory) < n {
		return make([]byte, n)
	}
	return memory[:n]
}
