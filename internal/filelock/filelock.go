// Package filelock keeps two processes from writing the same files. A lock belongs to an open file
// and ends with it, so that a process that dies, however it dies, leaves none behind.
//
// Where the system or the filesystem has no such locks, Lock succeeds without one.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// ErrLocked is the error where another process, or another open file of this one, has the lock.
var ErrLocked = errors.New("locked")

// Lock takes the lock of an open file without waiting, until the file is closed.
func Lock(file *os.File) error {
	err := lock(file)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Create opens a file that exists for its lock alone, and takes it. The process writes its number
// into the file, for the error of those who come later.
func Create(path string) (*os.File, error) {
	file, err := plainfile.OpenOwn(path)
	if err != nil {
		return nil, err
	}
	if err := Lock(file); err != nil {
		return nil, errors.Join(owned(err, file), file.Close())
	}
	if err := sign(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func sign(file *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "process %d on %s\n", os.Getpid(), host)
	return err
}

// owned adds to the error who has the lock, as far as the file tells.
func owned(err error, file *os.File) error {
	const most = 200
	content, readErr := io.ReadAll(io.LimitReader(file, most))
	if owner := strings.TrimSpace(string(content)); errors.Is(err, ErrLocked) && readErr == nil && owner != "" {
		return fmt.Errorf("%w by %q", err, owner)
	}
	return err
}
