package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// half is a 16-bit type of floats, whose numbers kernels widen to float32 in registers.
type half struct {
	name  string
	widen func(m, v Op) // loads a vector
}

var (
	bfloat16 = half{"BFloat16", func(m, v Op) {
		VPMOVZXWD(m, v)
		VPSLLD(Imm(16), v, v)
	}}
	float16 = half{"Float16", func(m, v Op) { VCVTPH2PS(m, v) }}
)

// eachHalf emits a kernel for both instruction sets and both types.
func eachHalf(kernel func(target, half)) {
	for _, t := range []target{{avx512: true}, {}} {
		kernel(t, bfloat16)
		kernel(t, float16)
	}
}

// halfBytes is the size of a 16-bit number.
const halfBytes = 2

// halfStride is a parameter that counts 16-bit numbers, in bytes.
func halfStride(name string) reg.GPVirtual {
	r := integer(name)
	SHLQ(Imm(1), r)
	return r
}

// halfDots takes four rows at once, as dotsWithOne does.
func halfDots(t target, h half) {
	t.untyped("dots"+h.name, "(rows, n int, a *uint16, lda int, b, out *float32)", "is HalfDots of whole vectors.")
	rows, n, a, lda, b, out := integer("rows"), integer("n"), integer("a"), halfStride("lda"), integer("b"), integer("out")
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
			y := t.vector()
			h.widen(Mem{Base: at[r], Index: i, Scale: halfBytes}, y)
			t.fma(y, x, sum)
		}
		ADDQ(Imm(uint64(t.lanes())), i)
		Label(label("test"))
		CMPQ(i, n)
		JLT(LabelRef(label("vector")))
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

// halfCombine keeps four vectors of c in registers while the rows go by. Meanwhile it asks for the
// same columns of as many rows behind them, which the next call mostly reads: few lines of a row of
// this one come from memory before the processor expects more.
func halfCombine(t target, h half) {
	t.untyped("combine"+h.name, "(rows, n int, a *uint16, lda int, x *float32, step int, c *float32, accumulate bool)", "is HalfCombine of whole vectors.")
	n, a, lda, step, c := integer("n"), integer("a"), halfStride("lda"), t.stride("step"), integer("c")
	ahead := integer("rows")
	IMULQ(lda, ahead)
	for _, vectors := range []int{4, 1} {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
		Label(label("columns"))
		CMPQ(n, Imm(uint64(vectors*t.lanes())))
		JLT(LabelRef(label("end")))
		sums := make([]reg.VecVirtual, vectors)
		for j := range sums {
			sums[j] = t.zeros()
		}
		CMPB(address("accumulate"), Imm(0))
		JE(LabelRef(label("start")))
		for j, sum := range sums {
			t.load(Mem{Base: c, Disp: j * t.bytes()}, sum)
		}
		Label(label("start"))
		at, x, rows, factor := GP64(), integer("x"), integer("rows"), t.vector()
		MOVQ(a, at)
		Label(label("row"))
		t.broadcast(Mem{Base: x}, factor)
		for line := 0; line < vectors*t.lanes()*halfBytes; line += 64 {
			PREFETCHT0(Mem{Base: at, Index: ahead, Scale: 1, Disp: line})
		}
		for j, sum := range sums {
			y := t.vector()
			h.widen(Mem{Base: at, Disp: j * t.lanes() * halfBytes}, y)
			t.fma(y, factor, sum)
		}
		ADDQ(lda, at)
		ADDQ(step, x)
		DECQ(rows)
		JNZ(LabelRef(label("row")))
		for j, sum := range sums {
			t.store(sum, Mem{Base: c, Disp: j * t.bytes()})
		}
		ADDQ(U32(vectors*t.lanes()*halfBytes), a)
		ADDQ(U32(vectors*t.bytes()), c)
		SUBQ(Imm(uint64(vectors*t.lanes())), n)
		JMP(LabelRef(label("columns")))
		Label(label("end"))
	}
	ret()
}
