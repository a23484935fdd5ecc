package simd

// CanPast reports whether functions that are asked to store results past the caches do so. Such a
// store need not fetch its line from memory first. Other threads see it once this one has called
// [EndPast].
func CanPast() bool { return active != Generic && canPast }

// EndPast makes what was stored past the caches visible to other threads before what is stored
// later.
func EndPast() {
	if CanPast() {
		endPastVector()
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
