package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peakChains is the number of independent sums, as package simd's constant says: more than latency
// times units.
const peakChains = 12

func peak(t target) {
	t.function("peak", "(n int)", "does n rounds of 12 vector FMAs in registers; n is at least 1.")
	n := integer("n")
	var sums [peakChains]reg.VecVirtual
	for i := range sums {
		sums[i] = t.zeros()
	}
	x, y := t.zeros(), t.zeros()
	Label("round")
	for _, sum := range sums {
		t.fma(x, y, sum)
	}
	DECQ(n)
	JNZ(LabelRef("round"))
	ret()
}
