package simd

// Levels lists the levels that this machine has, the lowest first.
func Levels() []Level { return []Level{Generic, NEON} }
