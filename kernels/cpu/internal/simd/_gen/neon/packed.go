package neon

import "fmt"

// code is a type of packed numbers, in blocks of 32, which kernels widen to float32 in registers.
type code struct {
	bytes int // of a block
	// open makes what all blocks need, and returns what gives the four vectors of half a block.
	open func(k *kernel) (vectors func(block gp, half int) [4]vec)
}

const blockElements = 32

// nibbles are codes of four bits: byte j of a block has element j in its low half and j+16 in the
// other. A table says what they mean: sixteen numbers, and behind them the first byte of each, the
// second, and so on.
var nibbles = code{blockElements / 2, func(k *kernel) func(gp, int) [4]vec {
	table := k.integer("table")
	var planes [4]vec
	for i := range planes {
		planes[i] = k.load(table, 64+i*bytes)
	}
	low := k.vectorOf(0x0f0f0f0f, 0)
	low = k.duplicate(low)
	return func(block gp, half int) [4]vec {
		codes := k.load(block, 0)
		if half == 1 {
			codes = k.shiftRightLanes(bytes16, codes, 4)
		} else {
			codes = k.and(codes, low)
		}
		var of [4]vec
		for i, plane := range planes {
			of[i] = k.lookup(plane, codes)
		}
		a, b := k.lowerPairs(bytes16, of[0], of[1]), k.lowerPairs(bytes16, of[2], of[3])
		c, d := k.upperPairs(bytes16, of[0], of[1]), k.upperPairs(bytes16, of[2], of[3])
		return [4]vec{k.lowerPairs(halves8, a, b), k.upperPairs(halves8, a, b), k.lowerPairs(halves8, c, d), k.upperPairs(halves8, c, d)}
	}
}}

// signed are codes of eight bits, which are the numbers.
var signed = code{blockElements, func(k *kernel) func(gp, int) [4]vec {
	return func(block gp, half int) [4]vec {
		low, high := k.widenSigned(bytes16, k.load(block, half*bytes))
		a, b := k.widenSigned(halves8, low)
		c, d := k.widenSigned(halves8, high)
		return [4]vec{k.fromWhole(a), k.fromWhole(b), k.fromWhole(c), k.fromWhole(d)}
	}
}}

// dotsPacked takes four rows at once: their sums do not wait for each other.
func dotsPacked(c code) func(*kernel) {
	return func(k *kernel) {
		vectors := c.open(k)
		rows, codes, ldc, scales, lds, out := k.integer("rows"), k.integer("codes"), k.integer("ldc"), k.integer("scales"), k.elements("lds"), k.integer("out")
		for _, height := range []int{4, 1} {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
			k.label(label("rows"))
			k.compareWith(rows, height)
			k.branch(less, label("end"))
			at, scale, sums := make([]gp, height), make([]gp, height), make([]vec, height)
			for i := range at {
				at[i], scale[i], sums[i] = k.gp(), k.gp(), k.zeros()
				if i == 0 {
					k.move(at[0], codes)
					k.move(scale[0], scales)
				} else {
					k.plus(at[i], at[i-1], ldc)
					k.plus(scale[i], scale[i-1], lds)
				}
			}
			next := [2]gp{k.gp(), k.gp()} // rows of codes and scales behind these
			k.plus(next[0], at[height-1], ldc)
			k.plus(next[1], scale[height-1], lds)
			x, n := k.integer("x"), k.integer("blocks")
			k.label(label("block"))
			totals := make([]vec, height)
			for half := range 2 {
				var numbers [4]vec
				for i := range numbers {
					numbers[i] = k.load(x, (4*half+i)*bytes)
				}
				for r := range sums {
					for i, y := range vectors(at[r], half) {
						if half == 0 && i == 0 {
							totals[r] = k.mul(y, numbers[0])
						} else {
							k.fma(totals[r], y, numbers[i])
						}
					}
				}
			}
			for r, sum := range sums {
				k.fma(sum, totals[r], k.loadAll(scale[r]))
				k.increase(scale[r], k.size())
				k.increase(at[r], c.bytes)
			}
			k.increase(x, blockElements*k.size())
			k.countDown(n, label("block"))
			for r, sum := range sums {
				k.storePart(k.one(), k.total(sum), out, r*k.size())
			}
			k.move(codes, next[0])
			k.move(scales, next[1])
			k.increase(out, height*k.size())
			k.decrease(rows, height)
			k.goTo(label("rows"))
			k.label(label("end"))
		}
	}
}

// widenPacked widens one row.
func widenPacked(c code) func(*kernel) {
	return func(k *kernel) {
		vectors := c.open(k)
		n, dst, codes, scale := k.integer("blocks"), k.integer("dst"), k.integer("codes"), k.integer("scales")
		k.label("block")
		factor := k.loadAll(scale)
		for half := range 2 {
			for i, y := range vectors(codes, half) {
				k.store(k.mul(y, factor), dst, (4*half+i)*bytes)
			}
		}
		k.increase(codes, c.bytes)
		k.increase(scale, k.size())
		k.increase(dst, blockElements*k.size())
		k.countDown(n, "block")
	}
}

// scalesOfRows widens eight scales at a time.
func scalesOfRows(k *kernel) {
	rows, n, from, ld, dst := k.integer("rows"), k.integer("n"), k.integer("from"), k.integer("ld"), k.integer("dst")
	k.label("row")
	at, left := k.gp(), k.gp()
	k.move(at, from)
	k.move(left, n)
	k.label("some")
	low, high := k.widenFloat16(k.load(at, 0))
	k.store(low, dst, 0)
	k.store(high, dst, bytes)
	k.increase(at, bytes)
	k.increase(dst, 2*bytes)
	k.decrease(left, halves)
	k.compareWith(left, halves)
	k.branch(greatEqual, "some")
	k.plus(from, from, ld)
	k.countDown(rows, "row")
}
