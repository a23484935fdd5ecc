//go:build !((linux && (amd64 || arm64)) || (darwin && arm64) || (windows && arm64))

package simd

// haveTiles reports whether there are matrix units: none that this package can ask for here.
func haveTiles() bool { return false }
