package simd

// Levels lists the levels that this machine and its operating system have, the lowest first.
func Levels() []Level {
	if haveTiles() {
		return []Level{Generic, NEON, BFMMLA}
	}
	return []Level{Generic, NEON}
}
