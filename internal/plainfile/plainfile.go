// Package plainfile opens files that hold data. A pipe would be waited for, a device be read for
// ever, and a folder fail with words about reading: none of them is what a path was meant to be.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Open opens a file for reading and returns its size with it. Anything but a regular file, or a
// link to one, is an error, before it is opened.
func Open(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is %s, it needs to be a file", path, kind(info.Mode()))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = file.Stat(); err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// ReadFile reads a file that Open would open. One of more bytes than most is an error, before it is
// read.
func ReadFile(path string, most int64) ([]byte, error) {
	file, size, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > most {
		return nil, fmt.Errorf("%s has %d bytes, it needs to have at most %d", path, size, most)
	}
	content, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return content, nil
}

// OpenOwn opens a file for reading and writing, and makes it where it is missing. A link is an
// error: what it leads to belongs to somebody else.
func OpenOwn(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
		before, err = os.Lstat(path) // another process was first
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s, it needs to be a file", path, kind(before.Mode()))
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	after, err := file.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was replaced while it was opened", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// CreateOwn is OpenOwn of a file that begins anew.
func CreateOwn(path string) (*os.File, error) {
	file, err := OpenOwn(path)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Write writes a file that appears under its name once it is whole, and is on the disk. What has
// that name already stays until then, and for good after an error. Where it is a link, the link is
// replaced and not what it leads to.
func Write(path string, write func(io.Writer) error) (err error) {
	// The name is another each time: two processes that write one file are not to mix.
	file, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	if err = write(file); err == nil {
		err = errors.Join(file.Chmod(0o644), file.Sync())
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s cannot be written: %w", path, err), os.Remove(file.Name()))
	}
	return nil
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeSymlink != 0:
		return "a link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "no regular file"
}
