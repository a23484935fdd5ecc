// Package guard makes errors of panics. A panic on a goroutine that no caller can recover from ends
// the process: each such goroutine of this module guards what it does.
package guard

import (
	"fmt"
	"runtime/debug"
)

// Catch makes a panic the error of the function that defers it. What names the work, as in "the
// tokenizer".
func Catch(err *error, what string) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("%s panicked: %v\n%s", what, reason, debug.Stack())
	}
}

// Call returns the error of work, or that of its panic.
func Call(what string, work func() error) (err error) {
	defer Catch(&err, what)
	return work()
}
