package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const transposeParameters = "(blockRows, blockCols int, src *T, lds int, dst *T, ldd int)"

// transpose32 goes block by block of 8×8: the loads put rows i and i+4 side by side in a register,
// so that interleaving within 128-bit halves is all that is left to do.
func transpose32() {
	t := target{}
	t.function("transpose", transposeParameters, "stores the transpose of blockRows×blockCols blocks of 8×8.")
	t.transpose(8, func(src, dst func(i int) Mem) {
		for half := range 2 {
			var r [4]reg.VecVirtual
			for i := range r {
				r[i] = YMM()
				upper, lower := src(i+4), src(i)
				upper.Disp, lower.Disp = 16*half, 16*half
				VMOVUPS(lower, r[i].AsX())
				VINSERTF128(Imm(1), upper, r[i], r[i])
			}
			a, b, c, d := YMM(), YMM(), YMM(), YMM()
			VUNPCKLPS(r[1], r[0], a)
			VUNPCKHPS(r[1], r[0], b)
			VUNPCKLPS(r[3], r[2], c)
			VUNPCKHPS(r[3], r[2], d)
			columns := [4]reg.VecVirtual{YMM(), YMM(), YMM(), YMM()}
			VUNPCKLPD(c, a, columns[0])
			VUNPCKHPD(c, a, columns[1])
			VUNPCKLPD(d, b, columns[2])
			VUNPCKHPD(d, b, columns[3])
			for i, column := range columns {
				VMOVUPS(column, dst(4*half+i))
			}
		}
	})
}

// transpose64 is the same with blocks of 4×4.
func transpose64() {
	t := target{double: true}
	t.function("transpose", transposeParameters, "stores the transpose of blockRows×blockCols blocks of 4×4.")
	t.transpose(4, func(src, dst func(i int) Mem) {
		for half := range 2 {
			var r [2]reg.VecVirtual
			for i := range r {
				r[i] = YMM()
				upper, lower := src(i+2), src(i)
				upper.Disp, lower.Disp = 16*half, 16*half
				VMOVUPS(lower, r[i].AsX())
				VINSERTF128(Imm(1), upper, r[i], r[i])
			}
			a, b := YMM(), YMM()
			VUNPCKLPD(r[1], r[0], a)
			VUNPCKHPD(r[1], r[0], b)
			VMOVUPS(a, dst(2*half))
			VMOVUPS(b, dst(2*half+1))
		}
	})
}

// transpose emits the loops over blocks, whose side is a power of two up to 8. block is given the
// places of the rows of a block in the source and in the destination.
func (t target) transpose(side int, block func(src, dst func(i int) Mem)) {
	rows, src, dst := integer("blockRows"), integer("src"), integer("dst")
	lds, ldd := t.stride("lds"), t.stride("ldd")
	lds3, ldd3 := GP64(), GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, ldd3)
	Label("rows")
	cols := integer("blockCols")
	// Rows 0 to 3 are reached from the first pointer, rows 4 to 7 from the second.
	var from, to [2]reg.GPVirtual
	for g := range from {
		from[g], to[g] = GP64(), GP64()
	}
	MOVQ(src, from[0])
	MOVQ(dst, to[0])
	LEAQ(Mem{Base: src, Index: lds, Scale: 4}, from[1])
	LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, to[1])
	place := func(base [2]reg.GPVirtual, stride, stride3 reg.Register) func(int) Mem {
		return func(i int) Mem {
			m := Mem{Base: base[i/4]}
			switch i % 4 {
			case 1, 2:
				m.Index, m.Scale = stride, uint8(i%4)
			case 3:
				m.Index, m.Scale = stride3, 1
			}
			return m
		}
	}
	Label("cols")
	block(place(from, lds, lds3), place(to, ldd, ldd3))
	for g := range from {
		ADDQ(Imm(32), from[g]) // a block's row is 32 bytes in both types
		LEAQ(Mem{Base: to[g], Index: ldd, Scale: uint8(side)}, to[g])
	}
	DECQ(cols)
	JNZ(LabelRef("cols"))
	LEAQ(Mem{Base: src, Index: lds, Scale: uint8(side)}, src)
	ADDQ(Imm(32), dst)
	DECQ(rows)
	JNZ(LabelRef("rows"))
	ret()
}
