package data

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"unicode"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// Format is a kind of token file.
type Format int

const (
	Raw    Format = iota // uint16 without a header, as nanoGPT writes
	LLMC                 // llm.c's header and uint16
	LLMC32               // llm.c's header and uint32
)

// header is how llm.c's files begin: headerWords of int32, the first of which are the magic number,
// the version and the number of tokens; the others are 0.
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

// Open opens a file of tokens, whose format it finds out. On Unix the file is mapped into memory
// and must keep its size until it is closed; on other systems it is read as a whole.
func Open(path string) (*Tokens, error) {
	m, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("Open: %w, it needs to be a file of tokens", err)
	}
	if err != nil {
		return nil, fmt.Errorf("Open: %w", err)
	}
	return m.tokens(), nil
}

func open(path string) (*memory, error) {
	file, size, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	switch {
	case size == 0:
		return nil, fmt.Errorf("%s is empty, it needs to hold tokens", path)
	case size > math.MaxInt:
		return nil, fmt.Errorf("%s has %d bytes, more than this system can address", path, size)
	}
	content, release, err := load(file, int(size))
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
	from, width, err := layout(content, int64(len(content)))
	if err != nil {
		return nil, err
	}
	return &memory{ids: content[from:], width: width}, nil
}

// layout finds out where the ids begin in a file of some size, and how many bytes each has, from
// the start of its content: startBytes, or all if there are fewer. Its errors go on from the name
// of the file.
func layout(start []byte, size int64) (from, width int, err error) {
	if len(start) >= 4 {
		for _, h := range headers {
			if binary.LittleEndian.Uint32(start) == h.magic {
				return headerBytes, h.width, h.check(start, size)
			}
		}
	}
	return 0, 2, checkRaw(start, size)
}

// checkRaw refuses what cannot be uint16 ids. Its errors go on from the name of what holds them.
func checkRaw(start []byte, size int64) error {
	if looksLikeText(start) {
		return errors.New("holds text, it needs to hold tokens, which a tokenizer makes of text")
	}
	if size%2 != 0 {
		return fmt.Errorf("has %d bytes, tokens of two bytes each need an even number", size)
	}
	return nil
}

// startBytes is as much of a file as tells what it is.
const startBytes = 2048

// looksLikeText reports whether bytes begin with so much text that they can hardly be ids: the
// small ids of small vocabularies have bytes that are zero, and large ones are no UTF-8 for long.
func looksLikeText(content []byte) bool {
	const least, most = 64, 1024
	if len(content) < least {
		return false
	}
	start := content[:min(len(content), most)]
	for len(start) > 0 {
		r, size := utf8.DecodeRune(start)
		if r == utf8.RuneError && size == 1 {
			return len(content) > most && len(start) < utf8.UTFMax // only cut short
		}
		if !unicode.IsGraphic(r) && !unicode.IsSpace(r) {
			return false
		}
		start = start[size:]
	}
	return true
}

func (h header) check(start []byte, size int64) error {
	if len(start) < headerBytes {
		return fmt.Errorf("has llm.c's magic number %d but only %d bytes, its header alone needs %d", h.magic, len(start), headerBytes)
	}
	word := func(i int) int32 { return int32(binary.LittleEndian.Uint32(start[4*i:])) }
	if version := word(1); version != int32(h.version) {
		return fmt.Errorf("is version %d of llm.c's format %d, it needs to be version %d", version, h.magic, h.version)
	}
	if word(2) < 1 {
		return fmt.Errorf("has %d tokens by its header, it needs to have at least 1", word(2))
	}
	if want := headerBytes + int64(word(2))*int64(h.width); size != want {
		return fmt.Errorf("has %d bytes, the %d tokens of its header need %d", size, word(2), want)
	}
	return nil
}

// Write writes tokens to a file. It writes a file beside it first, of a name that nobody can
// foresee, and renames that, so that path holds either what it held before or all of the tokens; it
// may be the very file that the tokens are mapped from. [Open] reads what it has written: tokens
// that would be taken for another format are an error.
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
	if format == Raw {
		if err := checkReadable(tokens); err != nil {
			return err
		}
	}
	temporary := fmt.Sprintf("%s.%x.part", path, rand.Uint64())
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // not through a link
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

// checkReadable refuses tokens that as a file without a header would look like something else.
func checkReadable(tokens *Tokens) error {
	const start = 1024 // bytes that looksLikeText looks at, and more than a magic number
	var content []byte
	for i := range min(tokens.Len(), start/2+1) {
		content = appendID(content, tokens.At(i), 2)
	}
	if m, err := parse(content); err != nil || len(m.ids) != len(content) {
		return fmt.Errorf("tokens begins with the ids %d and %d, which in the format Raw look like a header or text; LLMC has a header that tells",
			tokens.At(0), tokens.At(min(1, tokens.Len()-1)))
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
