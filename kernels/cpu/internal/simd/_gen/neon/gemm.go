package neon

import "fmt"

// unroll is how many steps along k a round of the inner loop takes.
const unroll = 4

// product is the state that all blocks of a matrix product share. Strides are in bytes.
type product struct {
	*kernel
	rs, cs, ldb, bp, ldc gp
	panel, columns       gp // where the panels of B and of C start
	a, c, rows           gp // of A and C the next row's start, and how many rows are left
}

// gemm holds a block of C in registers and adds a row of B times a column of A to it at every step:
// a vector of B is loaded once for all rows of the block, an element of A once for all its vectors,
// of which it is multiplied from the lane that it was loaded to. The panels of B are the outer
// loop, so that they stay near while the rows of A go by.
func gemm(k *kernel) {
	p := product{kernel: k, rs: k.elements("rs"), cs: k.elements("cs"), ldb: k.elements("ldb"), bp: k.elements("bp"), ldc: k.elements("ldc")}
	p.panel, p.columns = k.integer("b"), k.integer("c")
	left := k.integer("nv")
	// 24 sums, two vectors of B in each of two panels, and elements of A in 32 registers
	for _, w := range []struct {
		vectors int
		rows    []int
	}{{4, []int{6, 4, 2, 1}}, {2, []int{8, 4, 2, 1}}, {1, []int{8, 4, 2, 1}}} {
		label := fmt.Sprintf("columns%d", w.vectors)
		k.label(label)
		k.compareWith(left, w.vectors)
		k.branch(less, label+"end")
		p.a, p.c, p.rows = k.integer("a"), k.gp(), k.integer("m")
		k.move(p.c, p.columns)
		for i, rows := range w.rows {
			p.block(rows, w.vectors, i == 0)
		}
		for range w.vectors / 2 {
			k.plus(p.panel, p.panel, p.bp)
		}
		k.increase(p.columns, w.vectors*bytes)
		k.decrease(left, w.vectors)
		k.goTo(label)
		k.label(label + "end")
	}
}

// block computes blocks of C of so many rows and vectors, as long as there are rows for it, or one
// at most.
func (p product) block(rows, vectors int, repeat bool) {
	label := func(name string) string { return fmt.Sprintf("%s%dx%d", name, rows, vectors) }
	p.label(label("block"))
	p.compareWith(p.rows, rows)
	p.branch(less, label("end"))

	// The sums of a small block wait for one another unless the steps of a round have sums of their
	// own. Blocks of two, four and six rows of four vectors have one each, so that rows can be cut
	// anywhere between pairs.
	chains := 1
	for chains < unroll && (rows == 1 || vectors < 4) && 2*chains*rows*vectors <= 16 {
		chains *= 2
	}
	sums := make([][][]vec, chains)
	for c := range sums {
		sums[c] = make([][]vec, rows)
		for i := range sums[c] {
			for range vectors {
				sums[c][i] = append(sums[c][i], p.zeros())
			}
		}
	}

	// All rows of A are walked by one offset, from where each of them starts.
	a, at := make([]gp, rows), p.gp()
	a[0] = p.a
	for i := 1; i < rows; i++ {
		a[i] = p.gp()
		p.plus(a[i], a[i-1], p.rs)
	}
	p.zero(at)
	b := []gp{p.gp()} // in each panel
	p.move(b[0], p.panel)
	if vectors > 2 {
		b = append(b, p.gp())
		p.plus(b[1], b[0], p.bp)
	}
	step := func(chain int) {
		var row []vec
		for _, from := range b {
			if vectors == 1 {
				row = append(row, p.load(from, 0))
			} else {
				x, y := p.loadTwo(from, 0)
				row = append(row, x, y)
			}
			p.plus(from, from, p.ldb)
		}
		for i := range rows {
			element := p.loadAt(p.one(), a[i], at)
			for j, x := range row {
				p.fmaLane(sums[chain][i][j], x, element, 0)
			}
		}
		p.plus(at, at, p.cs)
	}
	k := p.integer("k")
	rounds := p.gp()
	p.move(rounds, k)
	p.shiftRight(rounds, 2)
	p.ifZero(rounds, label("rest"))
	p.label(label("round"))
	for u := range unroll {
		step(u % chains)
	}
	p.countDown(rounds, label("round"))
	p.label(label("rest"))
	p.below(k, k, unroll)
	p.ifZero(k, label("summed"))
	p.label(label("step"))
	step(0)
	p.countDown(k, label("step"))
	p.label(label("summed"))
	for n := chains / 2; n > 0; n /= 2 {
		for c := range n {
			for i := range rows {
				for j := range vectors {
					p.add(sums[c][i][j], sums[c+n][i][j], sums[c][i][j])
				}
			}
		}
	}

	p.ifZero(p.integer("accumulate"), label("write"))
	out := p.gp()
	p.move(out, p.c)
	for i := range rows {
		for j, sum := range sums[0][i] {
			p.add(sum, p.load(out, j*bytes), sum)
		}
		p.plus(out, out, p.ldc)
	}
	p.label(label("write"))
	for i := range rows {
		for j, sum := range sums[0][i] {
			p.store(sum, p.c, j*bytes)
		}
		p.plus(p.c, p.c, p.ldc)
	}
	p.plus(p.a, a[rows-1], p.rs)
	p.decrease(p.rows, rows)
	if repeat {
		p.goTo(label("block"))
	}
	p.label(label("end"))
}
