//go:build !amd64 && !arm64

package simd

// Levels lists the level that there is without assembly.
func Levels() []Level { return []Level{Generic} }
