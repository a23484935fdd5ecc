// Package parquet reads a column of texts of a Parquet file.
//
// Nothing that a file says is believed: every length is compared with what the file has, before
// memory is taken for it. What is decompressed, and all texts together, are no longer than a
// multiple of the file. Texts come one after the other. A page of the column is in memory at once,
// and a page of its dictionary: each at most 256 MiB, and 1 MiB more than 1032 times what it has in
// the file, which is as much as gzip can make of it.
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
	// a page, and its texts. A page that is compressed has at most pageGrowth times its bytes, and
	// pageGround beside.
	maxFooter = 64 << 20
	maxPage   = 256 << 20
	maxValues = 1 << 24

	pageGrowth = 1032
	pageGround = 1 << 20
)

// Read calls take with each text of a column, in the order of the rows, and with which of how many
// rows it is, from 1 on. Nulls are left out. The text is valid until take returns.
func Read(file io.ReaderAt, size int64, column string, take func(text []byte, row, rows int64) error) error {
	f, chunks, optional, err := open(file, size, column)
	if err != nil {
		return err
	}
	r := &reader{file: file, end: size, unread: size, optional: optional, left: growth*size + ground, rows: f.rows}
	if most := rowsOfByte*size + leastRows; r.rows > most {
		return fmt.Errorf("it says that it has %d rows, its %d bytes can have %d", r.rows, size, most)
	}
	r.take = func(text []byte) error {
		if r.left -= int64(len(text)); r.left < 0 {
			return fmt.Errorf("its texts are more than %d times as long as the file", growth)
		}
		return take(text, r.row, r.rows)
	}
	for n := range chunks {
		if err := r.chunk(&chunks[n]); err != nil {
			return fmt.Errorf("row group %d: %w", n, err)
		}
	}
	if r.row != r.rows {
		return fmt.Errorf("it says that it has %d rows, its column has %d", r.rows, r.row)
	}
	return nil
}

// open reads the metadata at a file's end, and what it says of a column.
func open(file io.ReaderAt, size int64, column string) (m *metadata, chunks []chunk, optional bool, err error) {
	content, err := readFooter(file, size)
	if err != nil {
		return nil, nil, false, err
	}
	if m, err = readMetadata(content); err != nil {
		return nil, nil, false, fmt.Errorf("its footer: %w", err)
	}
	at, optional, err := m.find(column)
	if err != nil {
		return nil, nil, false, err
	}
	if chunks, err = readChunks(content, at); err != nil {
		return nil, nil, false, fmt.Errorf("its footer: %w", err)
	}
	return m, chunks, optional, nil
}

// readFooter reads the metadata's bytes.
func readFooter(file io.ReaderAt, size int64) ([]byte, error) {
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
	return content, readAt(file, content, size-int64(len(end))-length)
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
