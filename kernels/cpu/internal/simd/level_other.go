//go:build !amd64

package simd

// best is the highest level that there is assembly for.
func best() Level { return Generic }
