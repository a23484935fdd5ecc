package prepare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train/data/prepare/internal/parquet"
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

// readParquet reads a document of each row.
func readParquet(file io.ReaderAt, size int64, field string, take taker) error {
	return parquet.Read(file, size, field, func(text []byte, row, rows int64) error {
		return takeText(string(text), float64(row)/float64(max(1, rows)), take)
	})
}

// escapeGlob keeps the signs of a path from being a pattern's.
func escapeGlob(path string) string {
	return strings.NewReplacer(`[`, `[[]`, `*`, `[*]`, `?`, `[?]`).Replace(path)
}
