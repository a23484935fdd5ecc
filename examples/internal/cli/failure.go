package cli

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Failure is an error as a program shows it: a line for each cause. Of joined errors those go that
// have the cause of one before them, as a full disk fails all that is still to be written.
func Failure(err error) string {
	var lines []string
	seen := map[any]bool{}
	for _, e := range parts(err) {
		var cause any = e.Error()
		if number := syscall.Errno(0); errors.As(e, &number) {
			cause = number
		}
		if !seen[cause] {
			seen[cause] = true
			lines = append(lines, e.Error())
		}
	}
	return strings.Join(lines, "\n")
}

// IsOfFiles reports whether an error came of files, and not of what was computed.
func IsOfFiles(err error) bool {
	path, link := (*fs.PathError)(nil), (*os.LinkError)(nil)
	return errors.As(err, &path) || errors.As(err, &link)
}

// parts are the errors that were joined, down to those that say more than their parts.
func parts(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var texts []string
	for _, e := range joined.Unwrap() {
		texts = append(texts, e.Error())
		list = append(list, parts(e)...)
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return list
}
