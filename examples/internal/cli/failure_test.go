package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

// What one cause made fail is one line; other errors stay, as do those around several.
func TestFailure(t *testing.T) {
	full := func(path string) error { return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC} }
	other := errors.New("the loss is not finite")
	for want, err := range map[string]error{
		"write a: no space left on device": errors.Join(full("a"), errors.Join(fmt.Errorf("closing: %w", full("b")), full("c"))),
		"write a: no space left on device\nthe loss is not finite\nopen d: no such file or directory": errors.Join(
			full("a"), other, other, &fs.PathError{Op: "open", Path: "d", Err: syscall.ENOENT}),
		"both: write a: no space left on device\nwrite b: no space left on device": fmt.Errorf("both: %w", errors.Join(full("a"), full("b"))),
		"two, write a: no space left on device: the loss is not finite":            fmt.Errorf("two, %w: %w", full("a"), other),
	} {
		if !IsOfFiles(err) || IsOfFiles(other) {
			t.Errorf("%v is said not to come of files, or %v to", err, other)
		}
		if got := Failure(err); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
