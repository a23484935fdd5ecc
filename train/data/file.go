package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// Format is a kind of token file.
type Format int

const (
	Raw    Format = iota // uint16 without a header, as nanoGPT writes
	LLMC                 // llm.c's header and uint16
	LLMC32               // llm.c's header and uint32
)

// header is how llm.c's files begin: headerWords of int32, the first of which are the magic number, the version and the
// number of tokens; the others are 0.
type header struct {
	magic, version uint32
	width          int
}

const (
	headerWords = 256
	headerBytes = 4 * headerWords
)

var headers = map[Format]header{
	LLMC:   {magic: 20240520, version: 1, width: 2},
	LLMC32: {magic: 20240801, version: 7, width: 4},
}

// Open opens a file of tokens, whose format it finds out. On Unix the file is mapped into memory and must keep its size
// until it is closed; on other systems it is read as a whole.
func Open(path string) (*Tokens, error) {
	m, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("Open: %w", err)
	}
	return m.tokens(), nil
}

func open(path string) (*memory, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file, it needs to be one with tokens", path)
	case info.Size() == 0:
		return nil, fmt.Errorf("%s is empty, it needs to hold tokens", path)
	case info.Size() > math.MaxInt:
		return nil, fmt.Errorf("%s has %d bytes, more than this system can address", path, info.Size())
	}
	content, release, err := load(file, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, err := parse(content)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s %w", path, err), release())
	}
	m.release = release
	return m, nil
}

// parse finds the tokens in the content of a file. Its errors go on from the name of the file.
func parse(content []byte) (*memory, error) {
	if len(content) >= 4 {
		for _, h := range headers {
			if binary.LittleEndian.Uint32(content) == h.magic {
				return h.parse(content)
			}
		}
	}
	if len(content)%2 != 0 {
		return nil, fmt.Errorf("has %d bytes, tokens of two bytes each need an even number", len(content))
	}
	return &memory{ids: content, width: 2}, nil
}

func (h header) parse(content []byte) (*memory, error) {
	if len(content) < headerBytes {
		return nil, fmt.Errorf("has llm.c's magic number %d but only %d bytes, its header alone needs %d",
			h.magic, len(content), headerBytes)
	}
	word := func(i int) int32 { return int32(binary.LittleEndian.Uint32(content[4*i:])) }
	if version := word(1); version != int32(h.version) {
		return nil, fmt.Errorf("is version %d of llm.c's format %d, it needs to be version %d", version, h.magic, h.version)
	}
	if word(2) < 1 {
		return nil, fmt.Errorf("has %d tokens by its header, it needs to have at least 1", word(2))
	}
	if want := headerBytes + int64(word(2))*int64(h.width); int64(len(content)) != want {
		return nil, fmt.Errorf("has %d bytes, the %d tokens of its header need %d", len(content), word(2), want)
	}
	return &memory{ids: content[headerBytes:], width: h.width}, nil
}

// Write writes tokens to a file. It writes a file beside it first, path.tmp, and renames that, so that path holds either
// what it held before or all of the tokens; it may be the very file that the tokens are mapped from.
func Write(path string, tokens *Tokens, format Format) error {
	if err := write(path, tokens, format); err != nil {
		return fmt.Errorf("Write: %w", err)
	}
	return nil
}

func write(path string, tokens *Tokens, format Format) error {
	h, found := headers[format]
	switch {
	case tokens == nil:
		return errors.New("tokens is nil, it needs to be tokens")
	case tokens.memory.closed:
		return errClosed
	case tokens.Len() == 0:
		return errors.New("tokens is empty, it needs to hold at least 1")
	case !found && format != Raw:
		return fmt.Errorf("format is %d, it needs to be Raw, LLMC or LLMC32", format)
	case found && tokens.Len() > math.MaxInt32:
		return fmt.Errorf("tokens holds %d, llm.c's format has at most %d", tokens.Len(), math.MaxInt32)
	}
	width := 2
	if found {
		width = h.width
	}
	if largest := tokens.Max(); width == 2 && largest > math.MaxUint16 {
		return fmt.Errorf("tokens holds the id %d, the format has at most %d", largest, math.MaxUint16)
	}
	temporary := path + ".tmp"
	file, err := os.Create(temporary)
	if err != nil {
		return err
	}
	err = writeTo(file, tokens, h, width)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return nil
}

// writeTo writes the header, unless it is none, and the ids.
func writeTo(w io.Writer, tokens *Tokens, h header, width int) error {
	buffered := bufio.NewWriterSize(w, 1<<16)
	if h != (header{}) {
		first := make([]byte, headerBytes)
		for i, word := range []uint32{h.magic, h.version, uint32(tokens.Len())} {
			binary.LittleEndian.PutUint32(first[4*i:], word)
		}
		buffered.Write(first) // an error stays until Flush
	}
	for i := range tokens.Len() {
		buffered.Write(appendID(buffered.AvailableBuffer(), tokens.At(i), width))
	}
	return buffered.Flush()
}
