package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// columns is the package's constant of this name.
const columns = 32

// maxima takes blocks of all columns, with AVX-512 two of them at once. The sum of 0·x is NaN where
// an element is infinite or NaN.
func maxima(t target) {
	t.function("maxima", "(n int, x, out *T) T", "is Maxima.")
	n, x, out := integer("n"), integer("x"), integer("out")
	vectors, sets := columns/t.lanes(), 1
	if t.avx512 {
		sets = 2
	}
	at := func(base reg.Register, v int) Mem { return Mem{Base: base, Disp: v * t.bytes()} }
	most, zero := make([]reg.VecVirtual, sets*vectors), t.zeros()
	for v := range most {
		most[v] = t.vector()
		t.load(at(x, v%vectors), most[v])
	}
	sums := []reg.VecVirtual{t.zeros(), t.zeros()}
	blocks := func(count int) {
		for v := range count * vectors {
			value := t.vector()
			t.load(at(x, v), value)
			PREFETCHT0(Mem{Base: x, Disp: v*t.bytes() + ahead})
			t.max(value, most[v], most[v])
			t.fma(value, zero, sums[v%len(sums)])
		}
		ADDQ(U32(uint32(count*columns*t.size())), x)
	}
	if sets == 2 {
		JMP(LabelRef("pairs"))
		Label("two")
		blocks(2)
		Label("pairs")
		SUBQ(Imm(2*columns), n)
		JGE(LabelRef("two"))
		ADDQ(Imm(2*columns), n)
	}
	JMP(LabelRef("test"))
	Label("block")
	blocks(1)
	SUBQ(Imm(columns), n)
	Label("test")
	CMPQ(n, Imm(0))
	JGT(LabelRef("block"))
	for v := range vectors {
		if sets == 2 {
			t.max(most[vectors+v], most[v], most[v])
		}
		t.store(most[v], at(out, v))
	}
	t.add(sums[1], sums[0], sums[0])
	t.result(0, t.reduce(sums[0], t.add))
	ret()
}

// kth counts for each number those that are greater. Of the numbers with fewer than k of these, the
// least is the result.
func kth(t target) {
	t.function("kth", "(x *T, k T) T", "is Kth.")
	x, k := integer("x"), t.scalar("k")
	one, infinity := t.inRegister(t.constant(1)).(reg.VecVirtual), t.inRegister(t.constant(math.Inf(1))).(reg.VecVirtual)
	least := t.moved(infinity)
	const chains = 4 // of additions that do not wait for each other
	for v := range columns / t.lanes() {
		own := t.vector()
		t.load(Mem{Base: x, Disp: v * t.bytes()}, own)
		var above [chains]reg.VecVirtual
		for c := range above {
			above[c] = t.zeros()
		}
		for i := range columns {
			other, count := t.vector(), above[i%chains]
			t.broadcast(Mem{Base: x, Disp: i * t.size()}, other)
			if t.avx512 {
				greater := K()
				t.compare(Imm(isLess), other, own, greater)
				t.pick(VADDPS, VADDPD)(one, count, greater, count)
				continue
			}
			t.compare(Imm(isLess), other, own, other)
			t.and(one, other, other)
			t.add(other, count, count)
		}
		t.add(above[1], above[0], above[0])
		t.add(above[3], above[2], above[2])
		t.add(above[2], above[0], above[0])
		t.min(least, t.where(isLess, above[0], k, own, infinity), least)
	}
	t.result(0, t.reduce(least, t.min))
	ret()
}

func notBelow(t target) {
	t.function("notBelow", "(n int, x *T, least T, list *int64, room int) int", "is NotBelow.")
	x, least, list, room := t.line("x"), t.scalar("least"), integer("list"), integer("room")
	no, count := t.constant(math.NaN()), GP64()
	XORQ(count, count)
	calls := 0
	t.eachVector(func(v access) {
		calls++
		more, next := fmt.Sprintf("more%d", calls), fmt.Sprintf("next%d", calls)
		const atLeast = 0x1d
		bits, at := GP32(), GP64()
		value := v.otherwise(no, v.load(x))
		if t.avx512 {
			k := K()
			t.compare(Imm(atLeast), least, value, k)
			KMOVW(k, bits)
		} else {
			t.compare(Imm(atLeast), least, value, value)
			if t.double {
				VMOVMSKPD(value, bits)
			} else {
				VMOVMSKPS(value, bits)
			}
		}
		Label(more)
		TESTL(bits, bits)
		JZ(LabelRef(next))
		TZCNTL(bits, at.As32())
		ADDQ(v.i, at)
		MOVQ(at, Mem{Base: list, Index: count, Scale: 8})
		INCQ(count)
		CMPQ(count, room)
		JEQ(LabelRef("full"))
		rest := GP32()
		LEAL(Mem{Base: bits.As64(), Disp: -1}, rest)
		ANDL(rest, bits)
		JMP(LabelRef(more))
		Label(next)
	})
	Label("full")
	Store(count, ReturnIndex(0))
	ret()
}
