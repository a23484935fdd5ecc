//go:build !amd64

package simd

func packBlockOfPairs(int, *uint16, int, *uint16) bool { return false }
