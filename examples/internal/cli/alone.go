package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Alone is for programs without flags: asked for help they say what they do, and they refuse
// arguments, which would do nothing.
func Alone(about string) {
	if status, done := alone(os.Args, about, os.Stdout, os.Stderr); done {
		os.Exit(status)
	}
}

func alone(args []string, about string, out, failures io.Writer) (status int, done bool) {
	if len(args) < 2 {
		return 0, false
	}
	if slices.Contains([]string{"-h", "-help", "--help"}, args[1]) {
		fmt.Fprintln(out, Wrap(about+" It has no flags.", Columns()))
		return 0, true
	}
	fmt.Fprintf(failures, "%s: argument %q is one too many: the program has no flags and reads nothing\n", filepath.Base(args[0]), args[1])
	return 2, true
}
