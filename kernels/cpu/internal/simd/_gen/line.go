package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// line is a parameter that points to a single row.
func (t target) line(pointer string) tile { return tile{pointer: integer(pointer)} }

// eachVector emits the loop over the vectors of a row of n elements, n being a parameter of at
// least 1. Everything that the body needs from outside must have been made before.
func (t target) eachVector(body func(v access)) {
	r := t.row()
	r.loop("vector", body)
	r.rest(body)
}

// eachVectorTo is eachVector where the parameter past, if it is not 0, says that what is stored to
// a row goes past the caches. It does so where the row starts at a whole vector.
func (t target) eachVectorTo(to tile, body func(v access)) {
	r := t.row()
	near := GP64()
	CMPQ(address("past"), Imm(0))
	JEQ(LabelRef("near"))
	MOVQ(to.pointer, near)
	ANDQ(Imm(uint64(t.bytes()-1)), near)
	JNZ(LabelRef("near"))
	r.loop("far", func(v access) {
		v.past = true
		body(v)
	})
	Label("near")
	r.loop("vector", body)
	r.rest(body)
}

// row is a loop over the vectors of a row.
type row struct {
	target
	i, full, count reg.GPVirtual // the next element, those of whole vectors, and what is left
	tail           Op
}

func (t target) row() row {
	r := row{target: t, full: integer("n"), count: GP64(), i: GP64()}
	used := GP64()
	MOVQ(r.full, r.count)
	t.downToVectors(r.full)
	SUBQ(r.full, r.count)
	MOVQ(r.count, used)
	r.tail = t.tail(used)
	XORQ(r.i, r.i)
	return r
}

func (r row) loop(label string, body func(v access)) {
	test := map[string]string{"vector": "test", "far": "farTest"}[label]
	JMP(LabelRef(test))
	Label(label)
	body(access{target: r.target, i: r.i})
	ADDQ(Imm(uint64(r.lanes())), r.i)
	Label(test)
	CMPQ(r.i, r.full)
	JLT(LabelRef(label))
}

func (r row) rest(body func(v access)) {
	TESTQ(r.count, r.count)
	JZ(LabelRef("end"))
	body(access{target: r.target, i: r.i, tail: r.tail})
	Label("end")
}

// ahead is how many bytes before a row is read it is fetched to the cache, in kernels that compute
// longer than memory takes: the processor itself fetches no further than a page.
const ahead = 4096

// prefetch fetches what lies ahead of a part of a row. Where nothing does, it does nothing.
func (a access) prefetch(x tile) {
	m := a.element(x.pointer, a.i)
	m.Disp += ahead
	PREFETCHT0(m)
}

// otherwise puts a value into the lanes behind the row's end. x is lost.
func (a access) otherwise(value Op, x reg.VecVirtual) reg.VecVirtual {
	switch {
	case a.tail == nil:
		return x
	case !a.avx512:
		other := a.vector()
		a.and(a.tail, x, x)
		// With the mask as the operand that is inverted, the value may be in memory.
		a.andNot(value, a.tail, other)
		a.or(other, x, x)
	case a.double:
		VBLENDMPD(x, a.inRegister(value), a.tail, x)
	default:
		VBLENDMPS(x, a.inRegister(value), a.tail, x)
	}
	return x
}

// only puts zeros into the lanes behind the row's end. x is lost.
func (a access) only(x reg.VecVirtual) reg.VecVirtual {
	switch {
	case a.tail == nil:
	case !a.avx512:
		a.and(a.tail, x, x)
	case a.double:
		VMOVAPD_Z(x, a.tail, x)
	default:
		VMOVAPS_Z(x, a.tail, x)
	}
	return x
}

// result returns the lowest lane of a vector.
func (t target) result(n int, x reg.VecVirtual) {
	p, err := ReturnIndex(n).Resolve()
	if err != nil {
		panic(err)
	}
	t.storeScalar(x, p.Addr)
}

func add(t target) {
	t.function("add", "(n int, c, a, b *T)", "is Add.")
	c, a, b := t.line("c"), t.line("a"), t.line("b")
	t.eachVector(func(v access) {
		x := v.load(a)
		t.add(v.load(b), x, x)
		v.store(x, c)
	})
	ret()
}

func mul(t target) {
	t.function("mul", "(n int, c, a, b *T)", "is Mul.")
	c, a, b := t.line("c"), t.line("a"), t.line("b")
	t.eachVector(func(v access) {
		x := v.load(a)
		t.mul(v.load(b), x, x)
		v.store(x, c)
	})
	ret()
}
