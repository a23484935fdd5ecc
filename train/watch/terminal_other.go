//go:build !windows

package watch

import "os"

// obeysEscapes reports whether a terminal erases when it is told to, as far as the environment
// tells.
func obeysEscapes(uintptr) bool {
	name := os.Getenv("TERM")
	return name != "" && name != "dumb"
}
