package neon

import "fmt"

// BFMMLA multiplies 2×4 numbers of bfloat16, two lines of A, with 4×2, two lines of B, and adds to
// 2×2 sums of float32, each of these a vector. A step of the depth, 32 lines of 32 numbers, so lies
// as four groups of eight lines: of these all pairs of lines, four numbers each, then the next four
// numbers. A and B are packed alike.
const (
	groupLines = 8
	groupPairs = groupLines / 2
	groups     = 4 // of a step
	quads      = 8 // of four numbers of a line, in a step
	groupBytes = quads * groupPairs * bytes
	stepBytes  = groups * groupBytes
)

// tileProduct holds 8×8 sums: each vector that is loaded is multiplied four times. A group of B
// stays near while those of a block of A go by.
func tileProduct(k *kernel) {
	firstA, firstC, ldc, rows := k.integer("a"), k.integer("c"), k.elements("ldc"), k.integer("rows")
	k.label("rows")
	blocks, b, c := k.integer("blocks"), k.integer("b"), k.gp()
	k.move(c, firstC)
	k.label("block")
	columns := k.number(groups)
	k.label("columns")
	a, to, heights := k.gp(), k.gp(), k.number(groups)
	k.move(a, firstA)
	k.move(to, c)
	k.label("heights")
	var sums [groupPairs][groupPairs]vec
	for i := range sums {
		for j := range sums[i] {
			sums[i][j] = k.zeros()
		}
	}
	left, right, steps := k.gp(), k.gp(), k.integer("steps")
	k.move(left, a)
	k.move(right, b)
	k.label("step")
	for quad := range quads {
		x, y := k.quad(left, quad), k.quad(right, quad)
		for i := range sums {
			for j, sum := range sums[i] {
				k.multiplyPairs(sum, x[i], y[j])
			}
		}
	}
	k.increase(left, stepBytes)
	k.increase(right, stepBytes)
	k.countDown(steps, "step")

	// The sums of two neighbours are two halves of a row, and of the next one.
	var lines [groupLines][2]vec
	for i := range sums {
		for half := range 2 {
			x, y := sums[i][2*half], sums[i][2*half+1]
			lines[2*i][half], lines[2*i+1][half] = k.lowerPairs(longs2, x, y), k.upperPairs(longs2, x, y)
		}
	}
	k.ifZero(k.integer("accumulate"), "write")
	from := k.gp()
	k.move(from, to)
	for _, line := range lines {
		for half, x := range line {
			k.add(x, k.load(from, half*bytes), x)
		}
		k.plus(from, from, ldc)
	}
	k.label("write")
	for _, line := range lines {
		for half, x := range line {
			k.store(x, to, half*bytes)
		}
		k.plus(to, to, ldc)
	}
	k.increase(a, groupBytes)
	k.countDown(heights, "heights")
	k.increase(b, groupBytes)
	k.increase(c, groupLines*k.size())
	k.countDown(columns, "columns")

	// All groups of the first step have gone by.
	more := k.integer("steps")
	k.decrease(more, 1)
	k.plusShifted(b, b, more, 11)
	k.plusShifted(b, b, k.integer("skipB"), 1)
	k.countDown(blocks, "block")
	k.plusShifted(firstA, firstA, k.integer("steps"), 11)
	k.plusShifted(firstA, firstA, k.integer("skipA"), 1)
	k.plusShifted(firstC, firstC, ldc, 5)
	k.countDown(rows, "rows")
}

// number is a register that holds a number.
func (k *kernel) number(n int) gp {
	to := k.gp()
	k.general(fmt.Sprintf("MOVD $%d, R%%[1]d", n), []gp{to}, nil)
	return to
}

// quad is the pairs of lines of a group, at one of its quads.
func (k *kernel) quad(group gp, n int) [groupPairs]vec {
	at := n * groupPairs * bytes
	w, x := k.loadTwo(group, at)
	y, z := k.loadTwo(group, at+2*bytes)
	return [groupPairs]vec{w, x, y, z}
}

// numbersOf are eight numbers of bfloat16 from some place on, of these or of float32, which is
// rounded.
func (k *kernel) numbersOf(rounded bool, from gp, first int) vec {
	if !rounded {
		return k.load(from, 2*first)
	}
	return k.bfloat16(k.load(from, 4*first), k.load(from, 4*first+bytes))
}

// tileRows makes groups of eight lines, whose numbers lie end to end.
func tileRows(rounded bool) func(*kernel) {
	return func(k *kernel) {
		steps, src, stride, dst := k.tilePacker(rounded)
		k.label("step")
		from, next := k.gp(), k.gp()
		k.move(from, src)
		for pair := range groupPairs {
			k.plus(next, from, stride)
			for two := range quads / 2 {
				x, y := k.numbersOf(rounded, from, 8*two), k.numbersOf(rounded, next, 8*two)
				k.store(k.lowerPairs(longs2, x, y), dst, (2*two*groupPairs+pair)*bytes)
				k.store(k.upperPairs(longs2, x, y), dst, ((2*two+1)*groupPairs+pair)*bytes)
			}
			k.plus(from, next, stride)
		}
		k.increase(src, 4*quads*elementBytes(rounded))
		k.increase(dst, stepBytes)
		k.countDown(steps, "step")
	}
}

// tilePairs makes groups of eight lines that lie side by side.
func tilePairs(rounded bool) func(*kernel) {
	return func(k *kernel) {
		steps, src, stride, dst := k.tilePacker(rounded)
		k.label("step")
		for quad := range quads {
			var x [4]vec
			for i := range x {
				x[i] = k.numbersOf(rounded, src, 0)
				k.plus(src, src, stride)
			}
			// Numbers 0 and 2 of each line, and 1 and 3, then all four.
			for half, zip := range []func(shape, vec, vec) vec{k.lowerPairs, k.upperPairs} {
				even, odd := zip(halves8, x[0], x[2]), zip(halves8, x[1], x[3])
				k.store(k.lowerPairs(halves8, even, odd), dst, (quad*groupPairs+2*half)*bytes)
				k.store(k.upperPairs(halves8, even, odd), dst, (quad*groupPairs+2*half+1)*bytes)
			}
		}
		k.increase(dst, stepBytes)
		k.countDown(steps, "step")
	}
}

func elementBytes(single bool) int {
	if single {
		return 4
	}
	return 2
}

// tilePacker is the parameters of what packs, the stride in bytes.
func (k *kernel) tilePacker(rounded bool) (steps, src, stride, dst gp) {
	steps, src, stride, dst = k.integer("steps"), k.integer("src"), k.integer("stride"), k.integer("dst")
	k.shiftLeft(stride, elementBytes(rounded)/2)
	return steps, src, stride, dst
}

// A row's numbers are converted sixteen at a time.

func widenRow(k *kernel) {
	vectors, dst, src := k.integer("vectors"), k.integer("dst"), k.integer("src")
	k.label("vector")
	for i := range 2 {
		x := k.load(src, i*bytes)
		k.store(k.lowFloats(x), dst, 2*i*bytes)
		k.store(k.highFloats(x), dst, (2*i+1)*bytes)
	}
	k.increase(src, 2*bytes)
	k.increase(dst, 4*bytes)
	k.countDown(vectors, "vector")
}

// roundRow needs nothing that a processor may lack.
func roundRow(k *kernel) {
	vectors, dst, src := k.integer("vectors"), k.integer("dst"), k.integer("src")
	one, most, quiet := k.constantBits(1), k.constantBits(0x7fff), k.constantBits(0x400000)
	k.label("vector")
	for i := range 2 {
		var upper [2]vec
		for j := range upper {
			x := k.load(src, (2*i+j)*bytes)
			nearest := k.addWhole(words4, k.addWhole(words4, x, most), k.and(k.shiftRightLanes(words4, x, 16), one))
			upper[j] = k.pick(k.same(x, x), nearest, k.or(x, quiet))
		}
		k.store(k.oddLanes(halves8, upper[0], upper[1]), dst, i*bytes)
	}
	k.increase(src, 4*bytes)
	k.increase(dst, 2*bytes)
	k.countDown(vectors, "vector")
}
