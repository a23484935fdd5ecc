package simd

// packBlockOfPairs packs whole steps of a block of B whose columns lie side by side, both halves of
// a line of memory at once: half of it is a tile's, and by the time of the next tile the line would
// have gone from the cache. It reports whether the processor has a kernel for it.
func packBlockOfPairs(steps int, src *uint16, stride int, dst *uint16) bool {
	if active != AVX512 {
		return false
	}
	blockOfPairsAVX512(steps, src, stride, dst)
	return true
}
