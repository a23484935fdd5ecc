//go:build !linux || !amd64

package simd

// haveTiles reports whether there are matrix units: none that this package knows.
func haveTiles() bool { return false }
