package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// code is a type of packed numbers, in blocks of 32, which kernels widen to float32 in registers.
type code struct {
	name       string
	parameters string // those that it needs besides the codes
	bytes      int    // of a block
	together   int    // rows that are multiplied side by side
	// open makes what all blocks need, and returns what gives vector i of a block.
	open func(t target) (vector func(block Mem, i int, to reg.VecVirtual))
}

const blockElements = 32

// nibbles are codes of four bits: byte j of a block has element j in its low half and j+16 in the
// other. A table says what they mean.
var nibbles = code{"Nibbles", "table *float32, ", blockElements / 2, 4, func(t target) func(Mem, int, reg.VecVirtual) {
	table := integer("table")
	low := t.vector()
	t.load(Mem{Base: table}, low)
	if t.avx512 {
		return func(block Mem, i int, to reg.VecVirtual) {
			VPMOVZXBD(block, to)
			if i == 1 {
				VPSRLD(Imm(4), to, to)
			}
			VPERMPS(low, to, to) // reads four bits of each index
		}
	}
	high := t.vector()
	t.load(Mem{Base: table, Disp: t.bytes()}, high)
	return func(block Mem, i int, to reg.VecVirtual) {
		VPMOVZXBD(block.Offset(i%2*t.lanes()), to)
		if i >= 2 {
			VPSRLD(Imm(4), to, to)
		}
		// A permutation reads three bits of each index. The fourth, as a sign, picks its table.
		first, second := t.vector(), t.vector()
		VPERMPS(low, to, first)
		VPERMPS(high, to, second)
		VPSLLD(Imm(28), to, to)
		VBLENDVPS(to, second, first, to)
	}
}}

// signed are codes of eight bits, which are the numbers.
var signed = code{"Bytes", "", blockElements, 1, func(t target) func(Mem, int, reg.VecVirtual) {
	return func(block Mem, i int, to reg.VecVirtual) {
		VPMOVSXBD(block.Offset(i*t.lanes()), to)
		VCVTDQ2PS(to, to)
	}
}}

// eachCode emits a kernel for both instruction sets and both types.
func eachCode(kernel func(target, code)) {
	for _, t := range []target{{avx512: true}, {}} {
		kernel(t, nibbles)
		kernel(t, signed)
	}
}

// dotsPacked takes some rows at once where widening costs more than memory: their sums do not wait
// for each other, and an element of x is loaded once for all. It asks for a row four further on
// meanwhile, for the processor alone does not read far enough ahead.
func dotsPacked(t target, c code) {
	t.untyped("dots"+c.name, "(rows, blocks int, codes *byte, ldc int, "+c.parameters+"scales *float32, lds int, x, out *float32)", "is PackedDots.")
	vector := c.open(t)
	rows, codes, ldc, scales, out := integer("rows"), integer("codes"), integer("ldc"), integer("scales"), integer("out")
	lds := t.stride("lds")
	const ahead = 4 // rows
	// The rows at a pointer, as operands.
	rowsAt := func(stride reg.GPVirtual) func(at reg.Register, row int) Mem {
		thrice := GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, thrice)
		return func(at reg.Register, row int) Mem {
			return []Mem{{Base: at}, {Base: at, Index: stride, Scale: 1}, {Base: at, Index: stride, Scale: 2}, {Base: at, Index: thrice, Scale: 1}}[row]
		}
	}
	codesOf, scalesOf := rowsAt(ldc), rowsAt(lds)
	vectors := blockElements / t.lanes()
	block := func(height int) {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
		Label(label("rows"))
		CMPQ(rows, Imm(uint64(height)))
		JLT(LabelRef(label("end")))
		sums := make([]reg.VecVirtual, height)
		for i := range sums {
			sums[i] = t.zeros()
		}
		at, x, scale, n, next := GP64(), integer("x"), GP64(), integer("blocks"), GP64()
		MOVQ(codes, at)
		MOVQ(scales, scale)
		LEAQ(Mem{Base: at, Index: ldc, Scale: ahead}, next)
		Label(label("block"))
		for line := 0; line < height*c.bytes; line += 64 {
			PREFETCHT0(Mem{Base: next, Disp: line})
		}
		numbers := make([]Op, vectors)
		for i := range numbers {
			numbers[i] = Mem{Base: x, Disp: i * t.bytes()}
			if t.avx512 && height > 1 {
				numbers[i] = t.moved(numbers[i])
			}
		}
		for r, sum := range sums {
			total, y := t.vector(), t.vector()
			for i := range vectors {
				vector(codesOf(at, r), i, y)
				if i == 0 {
					t.mul(numbers[i], y, total)
				} else {
					t.fma(numbers[i], y, total)
				}
			}
			if t.avx512 {
				VFMADD231PS_BCST(scalesOf(scale, r), total, sum)
			} else {
				factor := t.vector()
				t.broadcast(scalesOf(scale, r), factor)
				t.fma(factor, total, sum)
			}
		}
		ADDQ(Imm(uint64(height*(c.bytes+scaleBytes))), next)
		ADDQ(Imm(uint64(c.bytes)), at)
		ADDQ(Imm(4), scale)
		ADDQ(U32(blockElements*4), x)
		DECQ(n)
		JNZ(LabelRef(label("block")))
		for r, sum := range sums {
			t.storeScalar(t.reduce(sum, t.add), Mem{Base: out, Disp: r * t.size()})
		}
		LEAQ(Mem{Base: codes, Index: ldc, Scale: uint8(height)}, codes)
		LEAQ(Mem{Base: scales, Index: lds, Scale: uint8(height)}, scales)
		ADDQ(Imm(uint64(height*t.size())), out)
		SUBQ(Imm(uint64(height)), rows)
		JMP(LabelRef(label("rows")))
		Label(label("end"))
	}
	if c.together > 1 {
		block(c.together)
	}
	block(1)
	ret()
}

// scaleBytes is what the scale of a block takes in a row.
const scaleBytes = 2

// scalesOfRows widens eight scales at a time.
func scalesOfRows(t target) {
	t.untyped("scalesOfRows", "(rows, n int, from *byte, ld int, dst *float32)", "is PackedScales.")
	rows, n, from, ld, dst := integer("rows"), integer("n"), integer("from"), integer("ld"), integer("dst")
	const together = 8
	Label("row")
	at, left, y := GP64(), GP64(), YMM()
	MOVQ(from, at)
	MOVQ(n, left)
	Label("some")
	VCVTPH2PS(Mem{Base: at}, y)
	VMOVUPS(y, Mem{Base: dst})
	ADDQ(Imm(together*halfBytes), at)
	ADDQ(Imm(together*4), dst)
	SUBQ(Imm(together), left)
	JNZ(LabelRef("some"))
	ADDQ(ld, from)
	DECQ(rows)
	JNZ(LabelRef("row"))
	ret()
}

// widenPacked widens one row.
func widenPacked(t target, c code) {
	t.untyped("widen"+c.name, "(blocks int, dst *float32, codes *byte, "+c.parameters+"scales *float32)", "is PackedWiden.")
	vector := c.open(t)
	n, dst, codes, scale := integer("blocks"), integer("dst"), integer("codes"), integer("scales")
	Label("block")
	factor := t.vector()
	t.broadcast(Mem{Base: scale}, factor)
	for i := range blockElements / t.lanes() {
		y := t.vector()
		vector(Mem{Base: codes}, i, y)
		t.mul(factor, y, y)
		t.store(y, Mem{Base: dst, Disp: i * t.bytes()})
	}
	ADDQ(Imm(uint64(c.bytes)), codes)
	ADDQ(Imm(4), scale)
	ADDQ(U32(blockElements*4), dst)
	DECQ(n)
	JNZ(LabelRef("block"))
	ret()
}
