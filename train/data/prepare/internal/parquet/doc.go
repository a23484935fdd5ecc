// Package parquet reads a column of texts of a Parquet file.
//
// Nothing that a file says is believed: every length is compared with what the file has, before
// memory is taken for it, and what is decompressed, and all texts together, are no longer than a
// multiple of the file. Texts come one after the other; a page of the column is in memory at once.
//
// It reads plain, dictionary and delta encodings, pages of both versions, and what is compressed by
// Snappy, gzip, Brotli, Zstandard or LZ4 (LZ4_RAW). Nested columns and encrypted files are errors.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// These bound what a file can make of itself.
const (
	growth = 4096     // times what the file has, beside
	ground = 16 << 20 // bytes
	// rowsOfByte is how many rows a byte can have, that are null or the same, and leastRows how
	// many there can be beside.
	rowsOfByte = 1024
	leastRows  = 1 << 20
	// maxFooter, maxPage and maxValues bound what is in memory at once: bytes of metadata, bytes of
	// a page, and its texts.
	maxFooter = 64 << 20
	maxPage   = 256 << 20
	maxValues = 1 << 24
)

// Read calls take with each text of a column, in the order of the rows, and with which of how many
// rows it is, from 1 on. Nulls are left out. The text is valid until take returns.
func Read(file io.ReaderAt, size int64, column string, take func(text []byte, row, rows int64) error) error {
	f, err := open(file, size)
	if err != nil {
		return err
	}
	at, optional, err := f.find(column)
	if err != nil {
		return err
	}
	r := &reader{file: file, end: size, optional: optional, left: growth*size + ground, rows: f.rows}
	if most := rowsOfByte*size + leastRows; r.rows > most {
		return fmt.Errorf("it says that it has %d rows, its %d bytes can have %d", r.rows, size, most)
	}
	r.take = func(text []byte) error {
		if r.left -= int64(len(text)); r.left < 0 {
			return fmt.Errorf("its texts are more than %d times as long as the file", growth)
		}
		return take(text, r.row, r.rows)
	}
	for n, g := range f.groups {
		if at >= len(g) {
			return fmt.Errorf("row group %d has %d columns, the file says %d or more", n, len(g), at+1)
		}
		if err := r.chunk(&g[at]); err != nil {
			return fmt.Errorf("row group %d: %w", n, err)
		}
	}
	if r.row != r.rows {
		return fmt.Errorf("it says that it has %d rows, its column has %d", r.rows, r.row)
	}
	return nil
}

// open reads the metadata at a file's end.
func open(file io.ReaderAt, size int64) (*metadata, error) {
	const mark, ends = "PAR1", 4 + 8 // a mark, and behind the metadata their length and the mark
	var end [8]byte
	if size < ends {
		return nil, fmt.Errorf("it has %d bytes, a Parquet file has at least %d", size, ends)
	}
	if err := readAt(file, end[:], size-int64(len(end))); err != nil {
		return nil, err
	}
	switch string(end[4:]) {
	case mark:
	case "PARE":
		return nil, errors.New("it is encrypted")
	default:
		return nil, errors.New("it is no Parquet file: its last bytes are not PAR1")
	}
	length := int64(binary.LittleEndian.Uint32(end[:]))
	if length > min(size-ends, maxFooter) {
		return nil, fmt.Errorf("it says that its footer has %d bytes, it has room for %d", length, min(size-ends, maxFooter))
	}
	content := make([]byte, length)
	if err := readAt(file, content, size-int64(len(end))-length); err != nil {
		return nil, err
	}
	m, err := readMetadata(content)
	if err != nil {
		return nil, fmt.Errorf("its footer: %w", err)
	}
	return m, nil
}

// readAt reads all of to.
func readAt(file io.ReaderAt, to []byte, at int64) error {
	n, err := file.ReadAt(to, at)
	switch {
	case n == len(to):
		return nil
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}
