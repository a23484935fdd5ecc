package neon

// peakChains is the number of independent sums, as package simd's constant says: more than latency
// times units.
const peakChains = 24

func peak(k *kernel) {
	n := k.integer("n")
	var sums [peakChains]vec
	for i := range sums {
		sums[i] = k.zeros()
	}
	x, y := k.zeros(), k.zeros()
	k.label("round")
	for _, sum := range sums {
		k.fma(sum, x, y)
	}
	k.countDown(n, "round")
}
