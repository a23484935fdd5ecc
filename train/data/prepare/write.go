package prepare

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/internal/filelock"
	"github.com/stheno-ml/stheno/internal/plainfile"
)

// writer writes shards of one name: llm.c's header of 256 int32, of which the third is the number
// of tokens, and the ids.
type writer struct {
	folder, name  string
	most, width   int
	magic, format uint32

	total int      // tokens in all files
	paths []string // of the files that are whole

	file   *os.File // the one that is being written, under the name that it has until it is whole
	buffer *bufio.Writer
	n      int // tokens in it
}

const headerBytes = 4 * 256

func newWriter(o Options, name string) *writer {
	w := &writer{folder: o.Folder, name: name, most: o.Shard, width: 2, magic: 20240520, format: 1}
	if o.Tokenizer.Size() > math.MaxUint16+1 {
		w.width, w.magic, w.format = 4, 20240801, 7
	}
	return w
}

func (w *writer) write(ids []int) error {
	for _, id := range ids {
		if w.file == nil {
			if err := w.begin(); err != nil {
				return err
			}
		}
		b := w.buffer.AvailableBuffer()
		if w.width == 2 {
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		} else {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
		if _, err := w.buffer.Write(b); err != nil {
			return err
		}
		w.n++
		w.total++
		if w.n == w.most {
			if err := w.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) begin() (err error) {
	path := filepath.Join(w.folder, fmt.Sprintf("%s-%05d.bin", w.name, len(w.paths)))
	if w.file, err = beginPart(path); err != nil {
		return err
	}
	w.buffer, w.n = bufio.NewWriterSize(w.file, 1<<20), 0
	_, err = w.buffer.Write(make([]byte, headerBytes))
	return err
}

// beginPart begins a file that nothing else may write until it is whole or closed.
func beginPart(path string) (*os.File, error) {
	const ending = ".part"
	file, err := plainfile.OpenOwn(path + ending)
	if err != nil {
		return nil, err
	}
	if err = filelock.Lock(file); err != nil {
		return nil, errors.Join(fmt.Errorf("another process writes %s, it needs a folder of its own: %w", path, err), file.Close())
	}
	// Until the lock was ours another process may have made it whole, under its name.
	mine, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	now, err := os.Lstat(path + ending)
	isMine := err == nil && os.SameFile(mine, now)
	if _, err := os.Lstat(path); isMine && errors.Is(err, fs.ErrNotExist) {
		return file, file.Truncate(0)
	}
	err = errors.Join(fmt.Errorf("another process has written %s, it needs a folder of its own", path), file.Close())
	if isMine && mine.Size() == 0 {
		err = errors.Join(err, os.Remove(path+ending))
	}
	return nil, err
}

// finish gives the file that is being written its header and its name. It does nothing where there
// is none.
func (w *writer) finish() error {
	if w.file == nil {
		return nil
	}
	header := make([]byte, 0, 12)
	for _, word := range []uint32{w.magic, w.format, uint32(w.n)} {
		header = binary.LittleEndian.AppendUint32(header, word)
	}
	err := w.buffer.Flush()
	if err == nil {
		_, err = w.file.WriteAt(header, 0)
	}
	if err == nil {
		err = w.file.Sync()
	}
	part := w.file.Name()
	defer func() { w.file = nil }()
	path := part[:len(part)-len(".part")]
	if err = errors.Join(err, w.file.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	w.paths = append(w.paths, path)
	return nil
}

// remove takes away all files.
func (w *writer) remove() error {
	var err error
	if w.file != nil {
		err = errors.Join(w.file.Close(), os.Remove(w.file.Name()))
		w.file = nil
	}
	for _, path := range w.paths {
		err = errors.Join(err, os.Remove(path))
	}
	w.paths = nil
	return err
}

// counter is a reader that knows how much was read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
