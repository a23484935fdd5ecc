package neon

import (
	"fmt"
	"math"
)

// columns is the package's constant of this name.
const columns = 32

// maxima takes blocks of all columns. The sum of 0·x is NaN where an element is infinite or NaN.
func maxima(k *kernel) {
	n, x, out := k.integer("n"), k.integer("x"), k.integer("out")
	most, zero, sums := make([]vec, columns/k.lanes()), k.zeros(), []vec{k.zeros(), k.zeros()}
	for v := range most {
		most[v] = k.load(x, v*bytes)
	}
	k.label("block")
	for v := range most {
		value := k.load(x, v*bytes)
		k.max(most[v], value, most[v])
		k.fma(sums[v%len(sums)], value, zero)
	}
	k.increase(x, columns*k.size())
	k.decrease(n, columns)
	k.compareWith(n, 0)
	k.branch(greater, "block")
	for v := range most {
		k.store(most[v], out, v*bytes)
	}
	k.result(0, k.total(k.add(sums[0], sums[1])))
}

// kth counts for each number those that are greater. Of the numbers with fewer than k of these, the
// least is the result.
func kth(k *kernel) {
	x, end, few := k.integer("x"), k.gp(), k.scalar("k")
	one, infinity := k.constant(1), k.constant(math.Inf(1))
	least := k.copy(infinity)
	k.withNumber("ADD", end, x, columns*k.size())
	for v := range columns / k.lanes() {
		own, above, at := k.load(x, v*bytes), k.zeros(), k.gp()
		k.move(at, x)
		k.each(fmt.Sprintf("other%d", v), at, end, k.size(), func() {
			k.add(above, k.and(k.greater(k.loadAll(at), own), one), above)
		})
		k.min(least, k.pick(k.greater(few, above), own, infinity), least)
	}
	least = k.minPairs(least, least)
	if !k.double {
		least = k.minPairs(least, least)
	}
	k.result(0, least)
}

func notBelow(k *kernel) {
	x, least, list, room := k.line("x"), k.scalar("least"), k.integer("list"), k.integer("room")
	start := k.gp()
	k.move(start, list)
	calls := 0
	k.eachVector(func(a access) {
		value, lanes := a.load(x), 1
		calls++
		next := fmt.Sprintf("next%d", calls)
		if !a.partial() {
			value, lanes = k.greatestOf(value), k.lanes()
			k.compareFloats(value, least)
			k.branch(less, next)
		}
		for lane := range lanes {
			at, after := k.gp(), fmt.Sprintf("next%dOf%d", lane, calls)
			k.withNumber("ADD", at, a.i, lane*k.size())
			k.compareFloats(k.loadAt(k.one(), x.pointer, at), least)
			k.branch(less, after)
			k.shiftRight(at, 2+k.size()/8)
			k.general("MOVD R%[2]d, (R%[1]d)", nil, []gp{list, at})
			k.increase(list, 8)
			k.general("SUBS $1, R%[1]d", []gp{room}, []gp{room})
			k.branch(equal, "full")
			k.label(after)
		}
		k.label(next)
	})
	k.label("full")
	k.minus(list, list, start)
	k.shiftRight(list, 3)
	k.resultInteger(list)
}
