package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tile is a parameter that points to rows. Its stride is in a parameter of its own.
type tile struct{ pointer, stride reg.GPVirtual }

func (t target) tile(pointer, stride string) tile { return tile{integer(pointer), t.stride(stride)} }

// sweep emits the loops over rows and over the vectors of a row. The parameters rows and n, both at
// least 1, say how many.
type sweep struct {
	target
	tiles []tile
	whole bool           // n may be taken as a multiple of lanes, rounded up
	start func()         // before each row; may be nil
	body  func(v access) // for each vector
	end   func()         // after each row; may be nil
}

// access is how the body of a sweep reaches its vector in a tile.
type access struct {
	target
	i    reg.GPVirtual
	tail Op   // nil where the vector is whole
	past bool // whether a whole vector is stored past the caches
}

func (a access) load(x tile) reg.VecVirtual {
	v := a.vector()
	if m := a.element(x.pointer, a.i); a.tail == nil {
		a.target.load(m, v)
	} else {
		a.loadTail(m, a.tail, v)
	}
	return v
}

func (a access) store(v Op, x tile) {
	switch m := a.element(x.pointer, a.i); {
	case a.tail != nil:
		a.storeTail(v, a.tail, m)
	case a.past:
		VMOVNTPS(v, m)
	default:
		a.target.store(v, m)
	}
}

func (s sweep) emit() {
	rows, full := integer("rows"), integer("n")
	var count reg.GPVirtual
	var tail Op
	if s.whole {
		s.upToVectors(full)
	} else {
		count = GP64()
		MOVQ(full, count)
		s.downToVectors(full)
		SUBQ(full, count)
		used := GP64()
		MOVQ(count, used)
		tail = s.tail(used)
	}
	Label("row")
	if s.start != nil {
		s.start()
	}
	i := GP64()
	XORQ(i, i)
	JMP(LabelRef("test"))
	Label("vector")
	s.body(access{target: s.target, i: i})
	ADDQ(Imm(uint64(s.lanes())), i)
	Label("test")
	CMPQ(i, full)
	JLT(LabelRef("vector"))
	if !s.whole {
		TESTQ(count, count)
		JZ(LabelRef("end"))
		s.body(access{target: s.target, i: i, tail: tail})
		Label("end")
	}
	if s.end != nil {
		s.end()
	}
	for _, x := range s.tiles {
		ADDQ(x.stride, x.pointer)
	}
	DECQ(rows)
	JNZ(LabelRef("row"))
}

func mulTile(t target) {
	t.function("mulTile", "(rows, n int, dst, src *T, ld int)", "is MulTile.")
	dst, src := t.tile("dst", "ld"), t.tile("src", "ld")
	sweep{target: t, tiles: []tile{dst, src}, whole: true, body: func(v access) {
		x := v.load(dst)
		t.mul(v.load(src), x, x)
		v.store(x, dst)
	}}.emit()
	ret()
}

func addTile(t target) {
	t.function("addTile", "(rows, n int, dst *T, ldd int, src *T, lds int)", "is AddTile.")
	dst, src := t.tile("dst", "ldd"), t.tile("src", "lds")
	sweep{target: t, tiles: []tile{dst, src}, body: func(v access) {
		x := v.load(dst)
		t.add(v.load(src), x, x)
		v.store(x, dst)
	}}.emit()
	ret()
}

func scaleRows(t target) {
	t.function("scaleRows", "(rows, n int, dst *T, ldd int, src *T, lds int, f *T)", "is ScaleRows.")
	dst, src, f := t.tile("dst", "ldd"), t.tile("src", "lds"), integer("f")
	factor := t.vector()
	sweep{
		target: t, tiles: []tile{dst, src},
		start: func() {
			t.broadcast(Mem{Base: f}, factor)
			ADDQ(Imm(uint64(t.size())), f)
		},
		body: func(v access) {
			x := v.load(src)
			t.mul(factor, x, x)
			v.store(x, dst)
		},
	}.emit()
	ret()
}

func dots(t target) {
	t.function("dots", "(rows, n int, a *T, lda int, b *T, ldb int, out *T)", "is Dots.")
	a, b, out := t.tile("a", "lda"), t.tile("b", "ldb"), integer("out")
	sum := t.vector()
	sweep{
		target: t, tiles: []tile{a, b},
		start: func() { t.clear(sum) },
		body:  func(v access) { t.fma(v.load(a), v.load(b), sum) },
		end: func() {
			t.storeScalar(t.reduce(sum, t.add), Mem{Base: out})
			ADDQ(Imm(uint64(t.size())), out)
		},
	}.emit()
	ret()
}

// dotsWithOne takes four rows at once, so that b is loaded once for them and their sums do not wait
// for each other.
func dotsWithOne(t target) {
	t.function("dotsWithOne", "(rows, n int, a *T, lda int, b, out *T)", "is Dots with one b for all rows. It sums each row as dots does.")
	rows, full, a, lda, b, out := integer("rows"), integer("n"), integer("a"), t.stride("lda"), integer("b"), integer("out")
	count := GP64()
	MOVQ(full, count)
	t.downToVectors(full)
	SUBQ(full, count)
	used := GP64()
	MOVQ(count, used)
	tail := t.tail(used)
	block := func(height int) {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
		Label(label("rows"))
		CMPQ(rows, Imm(uint64(height)))
		JLT(LabelRef(label("end")))
		at, sums := make([]reg.GPVirtual, height), make([]reg.VecVirtual, height)
		for i := range at {
			at[i], sums[i] = GP64(), t.zeros()
			if i == 0 {
				MOVQ(a, at[0])
			} else {
				LEAQ(Mem{Base: at[i-1], Index: lda, Scale: 1}, at[i])
			}
		}
		i := GP64()
		XORQ(i, i)
		JMP(LabelRef(label("test")))
		Label(label("vector"))
		x := t.vector()
		t.load(t.element(b, i), x)
		for r, sum := range sums {
			t.fma(t.element(at[r], i), x, sum)
		}
		ADDQ(Imm(uint64(t.lanes())), i)
		Label(label("test"))
		CMPQ(i, full)
		JLT(LabelRef(label("vector")))
		TESTQ(count, count)
		JZ(LabelRef(label("summed")))
		t.loadTail(t.element(b, i), tail, x)
		for r, sum := range sums {
			y := t.vector()
			t.loadTail(t.element(at[r], i), tail, y)
			t.fma(y, x, sum)
		}
		Label(label("summed"))
		for r, sum := range sums {
			t.storeScalar(t.reduce(sum, t.add), Mem{Base: out, Disp: r * t.size()})
		}
		LEAQ(Mem{Base: at[height-1], Index: lda, Scale: 1}, a)
		ADDQ(Imm(uint64(height*t.size())), out)
		SUBQ(Imm(uint64(height)), rows)
		JMP(LabelRef(label("rows")))
		Label(label("end"))
	}
	block(4)
	block(1)
	ret()
}

// finite sums 0·x, which stays 0 until an Inf or a NaN makes it NaN.
func finite(t target) {
	t.function("finite", "(rows, n int, a *T, lda int) bool", "is Finite.")
	a := t.tile("a", "lda")
	zero, sum := t.zeros(), t.zeros()
	sweep{target: t, tiles: []tile{a}, body: func(v access) { t.fma(zero, v.load(a), sum) }}.emit()
	total, yes := t.reduce(sum, t.add), GP8()
	t.compareScalar(total, total)
	SETPC(yes)
	Store(yes, ReturnIndex(0))
	ret()
}
