package prepare

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/stheno-ml/stheno/internal/plainfile"
)

// taker takes a piece of a document and the share of the file up to there.
type taker func(text string, first, last bool, done float64) error

// maxLine is the most bytes of a line of a .jsonl file.
const maxLine = 256 << 20

func readFile(path, field string, take taker) error {
	file, size, err := plainfile.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	switch filepath.Ext(path) {
	case ".txt":
		err = readText(file, size, take)
	case ".jsonl":
		err = readLines(file, size, field, take)
	case ".parquet":
		err = readParquet(file, size, field, take)
	default:
		err = errors.New("the name needs to end in .txt, .jsonl or .parquet")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readText reads a document in pieces.
func readText(file io.Reader, size int64, take taker) error {
	in := &counter{Reader: file}
	var held []byte
	first, buffer := true, make([]byte, pieceBytes)
	for {
		n, err := io.ReadFull(in, buffer)
		held = append(held, buffer[:n]...)
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			if len(held) == 0 && first {
				return nil
			}
			return take(string(held), first, true, 1)
		case err != nil:
			return err
		}
		if at := lineStart(held); at > 0 {
			if err := take(string(held[:at]), first, false, float64(in.n)/float64(max(1, size))); err != nil {
				return err
			}
			held, first = append(held[:0], held[at:]...), false
		}
	}
}

// lineStart is where the last line begins that does not begin with white space, so that no
// tokenizer joins what it parts; 0 for none.
func lineStart(text []byte) int {
	for at := len(text) - 1; at > 0; at-- {
		if at = bytes.LastIndexByte(text[:at], '\n') + 1; at == 0 {
			break
		}
		if strings.IndexByte(" \t\r\n\v\f", text[at]) < 0 && text[at] < 0x80 {
			return at
		}
	}
	return 0
}

// takeText takes a document that is in memory, in pieces.
func takeText(text string, done float64, take taker) error {
	if text == "" {
		return nil
	}
	first := true
	for len(text) > pieceBytes {
		at := lineStart([]byte(text[:pieceBytes]))
		if at == 0 {
			break
		}
		if err := take(text[:at], first, false, done); err != nil {
			return err
		}
		text, first = text[at:], false
	}
	return take(text, first, true, done)
}

// readLines reads a document of each line.
func readLines(file io.Reader, size int64, field string, take taker) error {
	in := &counter{Reader: file}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for lines.Scan() {
		if n++; len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &object); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		var text *string
		value, found := object[field]
		if !found {
			return fmt.Errorf("line %d has no field %q", n, field)
		}
		if err := json.Unmarshal(value, &text); err != nil {
			return fmt.Errorf("line %d: %s: %w", n, field, err)
		}
		if text == nil {
			continue
		}
		if err := takeText(*text, float64(in.n)/float64(max(1, size)), take); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// readParquet reads a document of each row. A page of the column is in memory at once.
func readParquet(file *os.File, size int64, field string, take taker) (err error) {
	defer func() {
		// The library indexes into what a damaged file says.
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	if err := checkFooter(file, size); err != nil {
		return err
	}
	f, err := parquet.OpenFile(file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	column := f.Root().Column(field)
	switch {
	case column == nil:
		return fmt.Errorf("it has no column %q", field)
	case !column.Leaf() || column.Repeated() || column.Type().Kind() != parquet.ByteArray:
		return fmt.Errorf("column %q is %s, it needs to be of texts", field, column)
	}
	rows, values := int64(0), make([]parquet.Value, 256)
	for _, group := range f.RowGroups() {
		pages := group.ColumnChunks()[column.Index()].Pages()
		err := func() error {
			for {
				page, err := pages.ReadPage()
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				from := page.Values()
				for err == nil {
					var n int
					n, err = from.ReadValues(values)
					for _, v := range values[:n] {
						if rows++; v.IsNull() {
							continue
						}
						if err := takeText(string(v.ByteArray()), float64(rows)/float64(max(1, f.NumRows())), take); err != nil {
							return err
						}
					}
				}
				parquet.Release(page)
				if err != io.EOF {
					return err
				}
			}
		}()
		if err := errors.Join(err, pages.Close()); err != nil {
			return err
		}
	}
	return nil
}

// checkFooter checks the length that a Parquet file says its footer has, before memory is taken for
// it.
func checkFooter(file io.ReaderAt, size int64) error {
	const ends = 4 + 8 // a mark, and behind the footer its length and the mark
	var end [8]byte
	if size < ends {
		return fmt.Errorf("it has %d bytes, a Parquet file has at least %d", size, ends)
	}
	if _, err := file.ReadAt(end[:], size-int64(len(end))); err != nil {
		return err
	}
	if length := int64(binary.LittleEndian.Uint32(end[:])); length > size-ends {
		return fmt.Errorf("it says that its footer has %d bytes, it has room for %d", length, size-ends)
	}
	return nil
}

// escapeGlob keeps the signs of a path from being a pattern's.
func escapeGlob(path string) string {
	return strings.NewReplacer(`[`, `[[]`, `*`, `[*]`, `?`, `[?]`).Replace(path)
}
