package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fourth gives the operands of four rows that are a stride apart, of which the first is at a
// pointer.
func fourth(stride reg.GPVirtual) func(at reg.Register, row int) Mem {
	thrice := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, thrice)
	return func(at reg.Register, row int) Mem {
		return []Mem{{Base: at}, {Base: at, Index: stride, Scale: 1}, {Base: at, Index: stride, Scale: 2}, {Base: at, Index: thrice, Scale: 1}}[row]
	}
}

// listedRow is the row of a that the next number of a list says.
func listedRow(list, a, lda, to reg.GPVirtual) {
	MOVQ(Mem{Base: list}, to)
	IMULQ(lda, to)
	ADDQ(a, to)
}

// reduceFour stores the sums of the lanes of four vectors.
func (t target) reduceFour(sums [4]reg.VecVirtual, to [4]Mem) {
	if t.double {
		for i, sum := range sums {
			t.storeScalar(t.reduce(sum, t.add), to[i])
		}
		return
	}
	pair := func(a, b reg.VecVirtual) reg.VecVirtual { // a, b, a, b, each half of its sum
		low := t.vector()
		VUNPCKLPS(b, a, low)
		VUNPCKHPS(b, a, a)
		t.add(low, a, a)
		return a
	}
	a, c := pair(sums[0], sums[1]), pair(sums[2], sums[3])
	all := t.vector()
	VUNPCKLPD(c, a, all)
	VUNPCKHPD(c, a, a)
	t.add(a, all, all)
	y, x := all.AsY(), XMM()
	if t.avx512 {
		half := YMM()
		VEXTRACTF64X4(Imm(1), all, half)
		VADDPS(half, y, y)
	}
	VEXTRACTF128(Imm(1), y, x)
	VADDPS(all.AsX(), x, x)
	if to[1].Base == to[0].Base && to[1].Index == nil && to[1].Disp == to[0].Disp+t.size() {
		VMOVUPS(x, to[0])
		return
	}
	VMOVSS(x, to[0])
	for i := 1; i < 4; i++ {
		VEXTRACTPS(Imm(uint64(i)), x, to[i])
	}
}

// listedDots4 multiplies each row of a list by four others.
func listedDots4(t target) {
	t.function("listedDots4", "(n, d int, a *T, lda int, list *int64, b *T, ldb int, out *T, ldo int)", "is ListedDots of four rows of b.")
	n, a, lda, list, b, out := integer("n"), integer("a"), t.stride("lda"), integer("list"), integer("b"), integer("out")
	rowsOfB, rowsOfOut := fourth(t.stride("ldb")), fourth(t.stride("ldo"))
	Label("row")
	at, x, left := GP64(), GP64(), integer("d")
	listedRow(list, a, lda, at)
	MOVQ(b, x)
	var sums [4]reg.VecVirtual
	var to [4]Mem
	for i := range sums {
		sums[i], to[i] = t.zeros(), rowsOfOut(out, i)
	}
	Label("vector")
	y := t.vector()
	t.load(Mem{Base: at}, y)
	for i, sum := range sums {
		t.fma(rowsOfB(x, i), y, sum)
	}
	ADDQ(Imm(uint64(t.bytes())), at)
	ADDQ(Imm(uint64(t.bytes())), x)
	SUBQ(Imm(uint64(t.lanes())), left)
	JNZ(LabelRef("vector"))
	t.reduceFour(sums, to)
	ADDQ(Imm(8), list)
	ADDQ(Imm(uint64(t.size())), out)
	DECQ(n)
	JNZ(LabelRef("row"))
	ret()
}

// listedDots1 multiplies four rows of a list at a time by another.
func listedDots1(t target) {
	t.function("listedDots1", "(n, d int, a *T, lda int, list *int64, b, out *T)", "is ListedDots of one row of b.")
	n, a, lda, list, b, out, d := integer("n"), integer("a"), t.stride("lda"), integer("list"), integer("b"), integer("out"), t.stride("d")
	for _, height := range []int{4, 1} {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
		Label(label("rows"))
		CMPQ(n, Imm(uint64(height)))
		JLT(LabelRef(label("end")))
		at, sums := make([]reg.GPVirtual, height), make([]reg.VecVirtual, height)
		for i := range at {
			at[i], sums[i] = GP64(), t.zeros()
			listedRow(list, a, lda, at[i])
			ADDQ(Imm(8), list)
		}
		i := GP64()
		XORQ(i, i)
		Label(label("vector"))
		x := t.vector()
		t.load(Mem{Base: b, Index: i, Scale: 1}, x)
		for r, sum := range sums {
			t.fma(Mem{Base: at[r], Index: i, Scale: 1}, x, sum)
		}
		ADDQ(Imm(uint64(t.bytes())), i)
		CMPQ(i, d)
		JLT(LabelRef(label("vector")))
		if height == 4 {
			var to [4]Mem
			for i := range to {
				to[i] = Mem{Base: out, Disp: i * t.size()}
			}
			t.reduceFour([4]reg.VecVirtual(sums), to)
		} else {
			t.storeScalar(t.reduce(sums[0], t.add), Mem{Base: out})
		}
		ADDQ(Imm(uint64(height*t.size())), out)
		SUBQ(Imm(uint64(height)), n)
		JMP(LabelRef(label("rows")))
		Label(label("end"))
	}
	ret()
}

// listedCombine keeps some vectors of each row of c in registers while the list goes by.
func listedCombine(heads int) func(t target) {
	return func(t target) {
		parameters := map[int]string{4: "(n, d int, a *T, lda int, list *int64, x *T, ldx int, c *T, ldc int)", 1: "(n, d int, a *T, lda int, list *int64, x, c *T)"}
		t.function(fmt.Sprintf("listedCombine%d", heads), parameters[heads], fmt.Sprintf("is ListedCombine of %d rows of c.", heads))
		a, lda, c, columns := integer("a"), t.stride("lda"), integer("c"), integer("d")
		one := func(at reg.Register, _ int) Mem { return Mem{Base: at} }
		rowsOfX, rowsOfC := one, one
		if heads > 1 {
			rowsOfX, rowsOfC = fourth(t.stride("ldx")), fourth(t.stride("ldc"))
		}
		widths := []int{8, 4, 1}
		switch {
		case heads > 1 && t.avx512:
			widths = []int{4, 1}
		case heads > 1:
			widths = []int{2, 1}
		}
		for _, vectors := range widths {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
			Label(label("columns"))
			CMPQ(columns, Imm(uint64(vectors*t.lanes())))
			JLT(LabelRef(label("end")))
			sums := make([][]reg.VecVirtual, heads)
			for h := range sums {
				for v := range vectors {
					sum := t.vector()
					t.load(rowsOfC(c, h).Offset(v*t.bytes()), sum)
					sums[h] = append(sums[h], sum)
				}
			}
			n, list, x, at := integer("n"), integer("list"), integer("x"), GP64()
			Label(label("row"))
			listedRow(list, a, lda, at)
			y := make([]Op, vectors)
			for v := range y {
				if y[v] = (Mem{Base: at, Disp: v * t.bytes()}); heads > 1 {
					y[v] = t.moved(y[v])
				}
			}
			for h := range sums {
				factor := t.vector()
				t.broadcast(rowsOfX(x, h), factor)
				for v, sum := range sums[h] {
					t.fma(y[v], factor, sum)
				}
			}
			ADDQ(Imm(8), list)
			ADDQ(Imm(uint64(t.size())), x)
			DECQ(n)
			JNZ(LabelRef(label("row")))
			for h := range sums {
				for v, sum := range sums[h] {
					t.store(sum, rowsOfC(c, h).Offset(v*t.bytes()))
				}
			}
			ADDQ(U32(vectors*t.bytes()), a)
			ADDQ(U32(vectors*t.bytes()), c)
			SUBQ(Imm(uint64(vectors*t.lanes())), columns)
			JMP(LabelRef(label("columns")))
			Label(label("end"))
		}
		ret()
	}
}

// listedAdd adds to one row of the list after the other, for the list may have a row twice.
func listedAdd(t target) {
	t.function("listedAdd", "(heads, n, d int, a *T, lda int, list *int64, x *T, ldx int, b *T, ldb int)", "is ListedAdd.")
	n, a, lda, list, x, ldx, ldb := integer("n"), integer("a"), t.stride("lda"), integer("list"), integer("x"), t.stride("ldx"), t.stride("ldb")
	Label("row")
	at, b, columns := GP64(), integer("b"), integer("d")
	listedRow(list, a, lda, at)
	for _, vectors := range []int{4, 1} {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
		Label(label("columns"))
		CMPQ(columns, Imm(uint64(vectors*t.lanes())))
		JLT(LabelRef(label("end")))
		sums := make([]reg.VecVirtual, vectors)
		for v := range sums {
			sums[v] = t.moved(Mem{Base: at, Disp: v * t.bytes()})
		}
		weight, row, heads := GP64(), GP64(), integer("heads")
		MOVQ(x, weight)
		MOVQ(b, row)
		Label(label("head"))
		factor := t.vector()
		t.broadcast(Mem{Base: weight}, factor)
		for v, sum := range sums {
			t.fma(Mem{Base: row, Disp: v * t.bytes()}, factor, sum)
		}
		ADDQ(ldx, weight)
		ADDQ(ldb, row)
		DECQ(heads)
		JNZ(LabelRef(label("head")))
		for v, sum := range sums {
			t.store(sum, Mem{Base: at, Disp: v * t.bytes()})
		}
		ADDQ(U32(vectors*t.bytes()), at)
		ADDQ(U32(vectors*t.bytes()), b)
		SUBQ(Imm(uint64(vectors*t.lanes())), columns)
		JMP(LabelRef(label("columns")))
		Label(label("end"))
	}
	ADDQ(Imm(8), list)
	ADDQ(Imm(uint64(t.size())), x)
	DECQ(n)
	JNZ(LabelRef("row"))
	ret()
}
