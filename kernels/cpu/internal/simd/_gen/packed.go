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
	// open makes what all blocks need, and returns what gives vector i of a block.
	open func(t target) (vector func(block Mem, i int, to reg.VecVirtual))
}

const blockElements = 32

// nibbles are codes of four bits: byte j of a block has element j in its low half and j+16 in the
// other. A table says what they mean.
var nibbles = code{"Nibbles", "table *float32, ", blockElements / 2, func(t target) func(Mem, int, reg.VecVirtual) {
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
var signed = code{"Bytes", "", blockElements, func(t target) func(Mem, int, reg.VecVirtual) {
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

// dotsPacked takes four rows at once: their sums do not wait for each other.
func dotsPacked(t target, c code) {
	t.untyped("dots"+c.name, "(rows, blocks int, codes *byte, ldc int, "+c.parameters+"scales, x, out *float32)", "is PackedDots.")
	vector := c.open(t)
	rows, codes, ldc, scales, out := integer("rows"), integer("codes"), integer("ldc"), integer("scales"), integer("out")
	lds := integer("blocks")
	SHLQ(Imm(2), lds)
	vectors := blockElements / t.lanes()
	block := func(height int) {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
		Label(label("rows"))
		CMPQ(rows, Imm(uint64(height)))
		JLT(LabelRef(label("end")))
		at, sums := make([]reg.GPVirtual, height), make([]reg.VecVirtual, height)
		for i := range at {
			at[i], sums[i] = GP64(), t.zeros()
			if i == 0 {
				MOVQ(codes, at[0])
			} else {
				LEAQ(Mem{Base: at[i-1], Index: ldc, Scale: 1}, at[i])
			}
		}
		x, scale, n := integer("x"), GP64(), integer("blocks")
		MOVQ(scales, scale)
		Label(label("block"))
		for r, sum := range sums {
			total, y, factor := t.vector(), t.vector(), t.vector()
			for i := range vectors {
				vector(Mem{Base: at[r]}, i, y)
				if i == 0 {
					t.mul(Mem{Base: x}, y, total)
				} else {
					t.fma(Mem{Base: x, Disp: i * t.bytes()}, y, total)
				}
			}
			if r == 0 {
				t.broadcast(Mem{Base: scale}, factor)
			} else {
				row := GP64()
				if r == 3 {
					LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, row)
					t.broadcast(Mem{Base: scale, Index: row, Scale: 1}, factor)
				} else {
					t.broadcast(Mem{Base: scale, Index: lds, Scale: uint8(r)}, factor)
				}
			}
			t.fma(factor, total, sum)
			ADDQ(Imm(uint64(c.bytes)), at[r])
		}
		ADDQ(Imm(4), scale)
		ADDQ(U32(blockElements*4), x)
		DECQ(n)
		JNZ(LabelRef(label("block")))
		for r, sum := range sums {
			t.storeScalar(t.reduce(sum, t.add), Mem{Base: out, Disp: r * t.size()})
		}
		for range height {
			ADDQ(ldc, codes)
			ADDQ(lds, scales)
		}
		ADDQ(Imm(uint64(height*t.size())), out)
		SUBQ(Imm(uint64(height)), rows)
		JMP(LabelRef(label("rows")))
		Label(label("end"))
	}
	block(4)
	block(1)
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
