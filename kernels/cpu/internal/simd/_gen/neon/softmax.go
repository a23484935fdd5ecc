package neon

import "math"

// band is the visible part of a row of scores, in bytes: what is seen starts at first and ends
// before last. From start to end are the vectors that hold it.
type band struct {
	*kernel
	lo, hi                  gp // the parameters lo and hi plus the row's number
	n                       gp // the columns of the tile
	room                    gp // n rounded up to whole vectors
	first, last, start, end gp
}

func (k *kernel) band() band {
	b := band{kernel: k, n: k.elements("n"), room: k.gp()}
	b.room = b.upToVectors(b.n)
	return b
}

func (k *kernel) upToVectors(x gp) gp {
	to := k.gp()
	k.move(to, x)
	k.increase(to, bytes-1)
	k.multiplesOf(to, to, bytes)
	return to
}

// eachRow emits a loop over the rows, in which the body may go to done.
func (b *band) eachRow(label string, body func(done string), advance func()) {
	rows := b.integer("rows")
	b.lo, b.hi = b.elements("lo"), b.elements("hi")
	b.label(label)
	body(label + "Done")
	b.label(label + "Done")
	advance()
	b.increase(b.lo, b.size())
	b.increase(b.hi, b.size())
	b.countDown(rows, label)
}

// ofRow finds the band of the current row, and goes to the label empty if nothing is seen; start
// and end are 0 then.
func (b *band) ofRow(empty string) {
	b.first, b.last, b.start, b.end = b.gp(), b.gp(), b.gp(), b.gp()
	b.zero(b.start)
	b.zero(b.end)
	b.compareWith(b.lo, 0)
	b.choose(greater, b.first, b.lo)
	b.compare(b.hi, b.n)
	b.choose(less, b.last, b.hi, b.n)
	b.compare(b.first, b.last)
	b.branch(greatEqual, empty)
	b.multiplesOf(b.start, b.first, bytes)
	b.move(b.end, b.upToVectors(b.last))
}

// clearBefore writes zeros in the vectors before the band, clearAfter in those behind it.
func (b *band) clearBefore(tiles ...gp) {
	i := b.gp()
	b.zero(i)
	b.clear("before", i, b.start, tiles)
}

func (b *band) clearAfter(tiles ...gp) { b.clear("after", b.end, b.room, tiles) }

func (b *band) clear(label string, i, end gp, tiles []gp) {
	z := b.zeros()
	b.each(label, i, end, bytes, func() {
		for _, x := range tiles {
			b.storeAt(whole16, z, x, i)
		}
	})
}

// lowestBytes is a vector whose count lowest bytes are all ones, the others zero; 0 ≤ count ≤ 16.
// It is a window of a table in which ones end and zeros begin.
func (k *kernel) lowestBytes(count gp) vec {
	edge := k.numbers.edge()
	at := k.gp()
	k.withNumber("ADD", at, k.numbersBase(), edge+bytes)
	k.minus(at, at, count)
	return k.load(at, 0)
}

// hide overwrites what is not seen in the first and the last vector of the band.
func (b *band) hide(hidden vec, tiles ...gp) {
	part := b.gp()
	b.minus(part, b.first, b.start)
	b.ifZero(part, "leftEdge")
	mask := b.lowestBytes(part)
	for _, x := range tiles {
		b.storeAt(whole16, b.pick(b.copy(mask), hidden, b.loadAt(whole16, x, b.start)), x, b.start)
	}
	b.label("leftEdge")
	b.below(part, b.last, bytes)
	b.ifZero(part, "rightEdge")
	mask = b.lowestBytes(part)
	i := b.gp()
	b.move(i, b.end)
	b.decrease(i, bytes)
	for _, x := range tiles {
		b.storeAt(whole16, b.pick(b.copy(mask), b.loadAt(whole16, x, i), hidden), x, i)
	}
	b.label("rightEdge")
}

// vectors emits a loop over the vectors of the band, some a round. body is given where a vector
// lies, in bytes from the row's start, and which of a round's it is.
func (b *band) vectors(label string, atOnce int, body func(i gp, which int)) {
	i, rounds := b.gp(), b.gp()
	b.move(i, b.start)
	b.move(rounds, b.end)
	b.decrease(rounds, (atOnce-1)*bytes)
	b.each(label, i, rounds, bytes, func() {
		for which := range atOnce {
			body(i, which)
			if which < atOnce-1 {
				b.increase(i, bytes)
			}
		}
	})
	b.each(label+"Rest", i, b.end, bytes, func() { body(i, 0) })
}

// softmax goes through all rows for their maxima, and then through all rows for the exponentials
// and their sums: the steps of one row wait for one another, those of different rows do not.
func softmax(k *kernel) {
	b := k.band()
	lds, ldo, d := k.elements("lds"), k.elements("ldo"), k.elements("d")
	scale := k.scalar("scale")
	exp := k.splitter()
	lowest := k.constant(math.Inf(-1))

	s, m, l, o := k.integer("s"), k.integer("m"), k.integer("l"), k.integer("o")
	b.eachRow("most", func(done string) {
		b.ofRow(done)
		b.hide(lowest, s)
		var most [4]vec
		for i := range most {
			most[i] = k.copy(lowest)
		}
		b.vectors("max", len(most), func(i gp, which int) { k.max(most[which], k.loadAt(whole16, s, i), most[which]) })
		all := k.max(k.max(most[0], most[1]), k.max(most[2], most[3]))
		before := k.loadAll(m)
		greatest := k.max(k.greatestOf(all), before)
		k.compareFloats(greatest, before)
		k.branch(equal, done)
		k.storePart(k.one(), greatest, m, 0)
		// What was summed so far is relative to the maximum before.
		shrink := exp.exp2(k.mul(k.sub(before, greatest), scale))
		k.storePart(k.one(), k.mul(k.loadPart(k.one(), l, 0), shrink), l, 0)
		e := k.gp()
		k.zero(e)
		k.each("shrink", e, d, bytes, func() { k.storeAt(whole16, k.mul(k.loadAt(whole16, o, e), shrink), o, e) })
	}, func() {
		k.plus(s, s, lds)
		k.plus(o, o, ldo)
		k.increase(m, k.size())
		k.increase(l, k.size())
	})

	s, m, l = k.integer("s"), k.integer("m"), k.integer("l")
	b.eachRow("row", func(string) {
		b.ofRow("empty")
		b.clearBefore(s)
		most := k.loadAll(m)
		sums := [2]vec{k.zeros(), k.zeros()}
		b.vectors("exp", len(sums), func(i gp, which int) {
			// First the difference: where scores are far from zero, their products would be rounded
			// too much.
			p := exp.exp2(k.mul(k.sub(k.loadAt(whole16, s, i), most), scale))
			k.storeAt(whole16, p, s, i)
			k.add(sums[which], p, sums[which])
		})
		sum := k.add(k.total(k.add(sums[0], sums[1])), k.loadPart(k.one(), l, 0))
		k.storePart(k.one(), sum, l, 0)
		k.compareFloats(sum, sum)
		k.branch(ordered, "empty")
		k.storePart(k.one(), sum, m, 0)
		k.label("empty")
		b.clearAfter(s)
	}, func() {
		k.plus(s, s, lds)
		k.increase(m, k.size())
		k.increase(l, k.size())
	})
}

func softmaxGrad(k *kernel) {
	b := k.band()
	s, dp, lses, delta, ld := k.integer("s"), k.integer("dp"), k.integer("lse"), k.integer("delta"), k.elements("ld")
	scale := k.scalar("scale")
	exp := k.splitter()
	zero := k.zeros()
	b.eachRow("row", func(string) {
		b.ofRow("empty")
		b.clearBefore(s, dp)
		lse, less := k.loadAll(lses), k.loadAll(delta)
		b.vectors("grad", 2, func(i gp, _ int) {
			x := k.mul(k.sub(k.loadAt(whole16, s, i), lse), scale)
			p := exp.exp2(k.min(x, zero))
			k.storeAt(whole16, p, s, i)
			k.storeAt(whole16, k.mul(k.sub(k.loadAt(whole16, dp, i), less), p), dp, i)
		})
		b.hide(zero, s, dp)
		k.label("empty")
		b.clearAfter(s, dp)
	}, func() {
		k.plus(s, s, ld)
		k.plus(dp, dp, ld)
		k.increase(lses, k.size())
		k.increase(delta, k.size())
	})
}
