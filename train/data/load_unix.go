//go:build unix

package data

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// load maps a file into memory; the mapping outlives the open file.
func load(file *os.File, size int) (content []byte, release func() error, err error) {
	content, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mapping %d bytes into memory: %w", size, err)
	}
	return content, func() error { return unix.Munmap(content) }, nil
}
