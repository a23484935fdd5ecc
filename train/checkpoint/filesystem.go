package checkpoint

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// filesystem is what changes a folder of checkpoints. Tests put one in its place that fails, or
// that forgets what was not synced.
type filesystem interface {
	mkdir(path string) error // an error if there is one already
	create(path string) (file, error)
	// syncFolder waits until the folder's entries are on the disk.
	syncFolder(path string) error
	rename(from, to string) error
	removeAll(path string) error
}

// file is a file that is being written.
type file interface {
	io.WriteCloser
	// Sync waits until all that was written is on the disk.
	Sync() error
}

// disk is the filesystem of the operating system.
type disk struct{}

func (disk) mkdir(path string) error { return os.Mkdir(path, 0o755) }

func (disk) create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err // not f, which would be an interface that is not nil
	}
	return f, nil
}

func (disk) syncFolder(path string) error {
	if !foldersSync {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // the filesystem has no such thing
	}
	return errors.Join(err, f.Close())
}

func (disk) rename(from, to string) error { return os.Rename(from, to) }

func (disk) removeAll(path string) error { return os.RemoveAll(path) }
