package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// band is the visible part of a row of scores, in elements: what is seen starts at first and ends
// before last. From start to end are the vectors that hold it.
type band struct {
	target
	rows, lo, hi            Mem           // how many rows are left, and the parameters lo and hi plus the row's number
	n                       reg.GPVirtual // the columns of the tile
	room                    reg.GPVirtual // n rounded up to whole vectors
	first, last, start, end reg.GPVirtual
}

func (t target) band() band {
	local := AllocLocal(24)
	b := band{target: t, rows: local, lo: local.Offset(8), hi: local.Offset(16), n: integer("n"), room: GP64()}
	MOVQ(b.n, b.room)
	b.upToVectors(b.room)
	return b
}

// eachRow emits a loop over the rows, in which the body may go to done.
func (b *band) eachRow(label string, body func(done string), advance func()) {
	MOVQ(integer("rows"), b.rows)
	MOVQ(integer("lo"), b.lo)
	MOVQ(integer("hi"), b.hi)
	Label(label)
	body(label + "Done")
	Label(label + "Done")
	advance()
	INCQ(b.lo)
	INCQ(b.hi)
	DECQ(b.rows)
	JNZ(LabelRef(label))
}

func (t target) downToVectors(r reg.GPVirtual) { ANDQ(I32(int32(-t.lanes())), r) }
func (t target) upToVectors(r reg.GPVirtual) {
	ADDQ(Imm(uint64(t.lanes()-1)), r)
	t.downToVectors(r)
}

// ofRow finds the band of the current row, and goes to the label empty if nothing is seen; start
// and end are 0 then.
func (b *band) ofRow(empty string) {
	b.first, b.last, b.start, b.end = GP64(), GP64(), GP64(), GP64()
	zero := GP64()
	XORQ(zero, zero)
	XORQ(b.start, b.start)
	XORQ(b.end, b.end)
	MOVQ(b.lo, b.first)
	CMPQ(b.first, zero)
	CMOVQLT(zero, b.first)
	MOVQ(b.hi, b.last)
	CMPQ(b.last, b.n)
	CMOVQGT(b.n, b.last)
	CMPQ(b.first, b.last)
	JGE(LabelRef(empty))
	MOVQ(b.first, b.start)
	b.downToVectors(b.start)
	MOVQ(b.last, b.end)
	b.upToVectors(b.end)
}

// clearBefore writes zeros in the vectors before the band, clearAfter in those behind it.
func (b *band) clearBefore(tiles ...reg.GPVirtual) {
	i := GP64()
	XORQ(i, i)
	b.clear("before", i, b.start, tiles)
}

func (b *band) clearAfter(tiles ...reg.GPVirtual) { b.clear("after", b.end, b.room, tiles) }

func (b *band) clear(label string, i, end reg.GPVirtual, tiles []reg.GPVirtual) {
	z := b.zeros()
	JMP(LabelRef(label + "Test"))
	Label(label)
	for _, tile := range tiles {
		b.store(z, b.element(tile, i))
	}
	ADDQ(Imm(uint64(b.lanes())), i)
	Label(label + "Test")
	CMPQ(i, end)
	JLT(LabelRef(label))
}

// hide overwrites what is not seen in the first and the last vector of the band.
func (b *band) hide(hidden Op, tiles ...reg.GPVirtual) {
	part := GP64()
	MOVQ(b.first, part)
	SUBQ(b.start, part)
	JZ(LabelRef("leftEdge"))
	mask := b.lowestLanes(part)
	for _, tile := range tiles {
		b.blend(hidden, mask, b.element(tile, b.start), true)
	}
	Label("leftEdge")
	part = GP64()
	MOVQ(b.last, part)
	ANDQ(Imm(uint64(b.lanes()-1)), part)
	JZ(LabelRef("rightEdge"))
	mask = b.lowestLanes(part)
	for _, tile := range tiles {
		m := b.element(tile, b.end)
		m.Disp = -b.bytes()
		b.blend(hidden, mask, m, false)
	}
	Label("rightEdge")
}

// blend writes hidden to the lanes of m that the mask has, or to those that it lacks.
func (t target) blend(hidden Op, mask reg.VecVirtual, m Mem, inside bool) {
	x, h := t.vector(), t.vector()
	t.load(m, x)
	if inside {
		t.and(hidden, mask, h)
		t.andNot(x, mask, x)
	} else {
		t.andNot(hidden, mask, h)
		t.and(x, mask, x)
	}
	t.or(x, h, x)
	t.store(x, m)
}

// vectors emits a loop over the vectors of the band, two a round. body is given the element and
// which of the two it is.
func (b *band) vectors(label string, body func(i reg.GPVirtual, offset, which int)) {
	i, pairs := GP64(), GP64()
	MOVQ(b.start, i)
	MOVQ(b.end, pairs)
	SUBQ(Imm(uint64(2*b.lanes())), pairs)
	JMP(LabelRef(label + "Test"))
	Label(label)
	for which := range 2 {
		body(i, which*b.bytes(), which)
	}
	ADDQ(Imm(uint64(2*b.lanes())), i)
	Label(label + "Test")
	CMPQ(i, pairs)
	JLE(LabelRef(label))
	CMPQ(i, b.end)
	JGE(LabelRef(label + "End"))
	body(i, 0, 0)
	Label(label + "End")
}

// softmax goes through all rows for their maxima, and then through all rows for the exponentials
// and their sums: the steps of one row wait for one another, those of different rows do not.
func softmax(t target) {
	t.function("softmax", "(rows, n int, s *T, lds int, m, l *T, o *T, ldo, d int, scale T, lo, hi int)", "is Softmax.")
	restore := flushing()
	b := t.band()
	lds, ldo, d := t.stride("lds"), t.stride("ldo"), integer("d")
	scale := t.scalar("scale")
	exp := t.exponential()
	lowest := t.inRegister(t.constant(math.Inf(-1)))

	s, m, l, o := integer("s"), integer("m"), integer("l"), integer("o")
	b.eachRow("most", func(done string) {
		b.ofRow(done)
		b.hide(lowest, s)
		most := [2]reg.VecVirtual{t.vector(), t.vector()}
		for _, v := range most {
			t.copy(lowest, v)
		}
		b.vectors("max", func(i reg.GPVirtual, offset, which int) {
			x := t.element(s, i)
			x.Disp = offset
			t.max(x, most[which], most[which])
		})
		t.max(most[0], most[1], most[0])
		greatest, before := t.reduce(most[0], t.max), XMM()
		t.loadScalar(Mem{Base: m}, before)
		t.maxScalar(before, greatest, greatest)
		t.compareScalar(greatest, before)
		JE(LabelRef(done))
		t.storeScalar(greatest, Mem{Base: m})
		// What was summed so far is relative to the maximum before.
		change := t.vector()
		t.subScalar(greatest, before, before)
		t.mulScalar(scale.AsX(), before, before)
		t.broadcast(before, change)
		shrink := exp.of(change)
		sum := XMM()
		t.mulScalar(Mem{Base: l}, shrink.AsX(), sum)
		t.storeScalar(sum, Mem{Base: l})
		e := GP64()
		XORQ(e, e)
		JMP(LabelRef("shrinkTest"))
		Label("shrink")
		x := t.vector()
		t.mul(t.element(o, e), shrink, x)
		t.store(x, t.element(o, e))
		ADDQ(Imm(uint64(t.lanes())), e)
		Label("shrinkTest")
		CMPQ(e, d)
		JLT(LabelRef("shrink"))
	}, func() {
		ADDQ(lds, s)
		ADDQ(ldo, o)
		ADDQ(Imm(uint64(t.size())), m)
		ADDQ(Imm(uint64(t.size())), l)
	})

	s, m, l = integer("s"), integer("m"), integer("l")
	b.eachRow("row", func(string) {
		b.ofRow("empty")
		b.clearBefore(s)
		most := t.vector()
		t.broadcast(Mem{Base: m}, most)
		sums := [2]reg.VecVirtual{t.zeros(), t.zeros()}
		b.vectors("exp", func(i reg.GPVirtual, offset, which int) {
			at := t.element(s, i)
			at.Disp = offset
			x := t.vector()
			t.load(at, x)
			t.sub(most, x, x) // first: where scores are far from zero, their products would be rounded too much
			t.mul(x, scale, x)
			p := exp.of(x)
			t.store(p, at)
			t.add(p, sums[which], sums[which])
		})
		t.add(sums[1], sums[0], sums[0])
		sum := t.reduce(sums[0], t.add)
		t.addScalar(Mem{Base: l}, sum, sum)
		t.storeScalar(sum, Mem{Base: l})
		t.compareScalar(sum, sum)
		JPC(LabelRef("empty"))
		t.storeScalar(sum, Mem{Base: m}) // the maximum of a NaN may have lost it
		Label("empty")
		b.clearAfter(s)
	}, func() {
		ADDQ(lds, s)
		ADDQ(Imm(uint64(t.size())), m)
		ADDQ(Imm(uint64(t.size())), l)
	})
	restore()
	ret()
}

func softmaxGrad(t target) {
	t.function("softmaxGrad", "(rows, n int, s, dp *T, ld int, lse, delta *T, scale T, lo, hi int)", "is SoftmaxGrad.")
	restore := flushing()
	b := t.band()
	s, dp, lses, delta, ld := integer("s"), integer("dp"), integer("lse"), integer("delta"), t.stride("ld")
	scale := t.scalar("scale")
	exp := t.exponential()
	zero := t.zeros()
	b.eachRow("row", func(string) {
		b.ofRow("empty")
		b.clearBefore(s, dp)
		lse, less := t.vector(), t.vector()
		t.broadcast(Mem{Base: lses}, lse)
		t.broadcast(Mem{Base: delta}, less)
		b.vectors("grad", func(i reg.GPVirtual, offset, _ int) {
			atP, atDP := t.element(s, i), t.element(dp, i)
			atP.Disp, atDP.Disp = offset, offset
			x, grad := t.vector(), t.vector()
			t.load(atP, x)
			t.sub(lse, x, x)
			t.mul(x, scale, x)
			t.min(x, zero, x)
			p := exp.of(x)
			t.load(atDP, grad)
			t.sub(less, grad, grad)
			t.mul(p, grad, grad)
			t.store(p, atP)
			t.store(grad, atDP)
		})
		b.hide(zero, s, dp)
		Label("empty")
		b.clearAfter(s, dp)
	}, func() {
		ADDQ(ld, s)
		ADDQ(ld, dp)
		ADDQ(Imm(uint64(t.size())), lses)
		ADDQ(Imm(uint64(t.size())), delta)
	})
	restore()
	ret()
}
