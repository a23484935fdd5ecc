//go:build !unix

package data

import (
	"io"
	"os"
)

// load reads a file into memory.
func load(file *os.File, size int) (content []byte, release func() error, err error) {
	content = make([]byte, size)
	if _, err := io.ReadFull(file, content); err != nil {
		return nil, nil, err
	}
	return content, func() error { return nil }, nil
}
