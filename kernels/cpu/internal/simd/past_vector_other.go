//go:build !amd64

package simd

const canPast = false

func endPastVector() { panic("simd: nothing is stored past the caches on this architecture") }
