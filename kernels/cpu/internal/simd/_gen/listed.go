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

// listedRow is the row of a that a number of a list says, so many behind the next.
func listedRow(list, a, lda, to reg.GPVirtual, behind int) {
	MOVQ(Mem{Base: list, Disp: 8 * behind}, to)
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
	all := t.reduceQuarters(sums)
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

// reduceQuarters adds up the four lanes in each quarter of four vectors of float32, and gives a
// vector of quarters that have the four sums. With 256 bits these are halves.
func (t target) reduceQuarters(sums [4]reg.VecVirtual) reg.VecVirtual {
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
	return all
}

// listedDots4 multiplies each row of a list by four others.
func listedDots4(t target) {
	t.function("listedDots4", "(n, d int, a *T, lda int, list *int64, b *T, ldb int, out *T, ldo int)", "is ListedDots of four rows of b.")
	if t.avx512 && !t.double {
		listedDotsByQuarters(t)
		return
	}
	n, a, lda, list, b, out := integer("n"), integer("a"), t.stride("lda"), integer("list"), integer("b"), integer("out")
	rowsOfB, rowsOfOut := fourth(t.stride("ldb")), fourth(t.stride("ldo"))
	Label("row")
	at, x, left := GP64(), GP64(), integer("d")
	listedRow(list, a, lda, at, 0)
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

// listedDotsByQuarters is the body of listedDots4 where a vector has room for four numbers of each
// of the four rows. These stay in registers, up to 64 columns at a time, and meet four numbers of a
// listed row in all quarters of another vector: lanes of a sum are four, not sixteen, to add up. A
// sum is two until then, for the multiplications of one wait for each other.
func listedDotsByQuarters(t target) {
	const quarter = 16 // bytes
	left, column := integer("d"), GP64()
	XORQ(column, column)
	part := func(vectors int, first bool) {
		label := func(name string) LabelRef {
			return LabelRef(fmt.Sprintf("%s%d_%v", name, vectors, first))
		}
		b, rowsOfB := integer("b"), fourth(t.stride("ldb"))
		ADDQ(column, b)
		numbers := make([]reg.VecVirtual, vectors)
		for v := range numbers {
			numbers[v] = t.vector()
			at := func(row int) Mem { return rowsOfB(b, row).Offset(v * quarter) }
			VBROADCASTF32X4(at(0), numbers[v])
			for row := 1; row < 4; row++ {
				VINSERTF32X4(Imm(uint64(row)), at(row), numbers[v], numbers[v])
			}
		}
		n, a, lda, list := integer("n"), integer("a"), t.stride("lda"), integer("list")
		out, rowsOfOut := integer("out"), fourth(t.stride("ldo"))
		ADDQ(column, a)
		store := func(x reg.VecVirtual, row int, to Mem, add, move func(...Op)) {
			quarter := XMM()
			VEXTRACTF32X4(Imm(uint64(row)), x, quarter)
			if !first {
				add(to, quarter, quarter)
			}
			move(quarter, to)
		}
		for _, height := range []int{4, 1} {
			rows, end := label(fmt.Sprint("rows", height)), label(fmt.Sprint("end", height))
			Label(string(rows))
			CMPQ(n, Imm(uint64(height)))
			JLT(end)
			at, sums := make([]reg.GPVirtual, height), make([]reg.VecVirtual, 2*height)
			for r := range at {
				at[r], sums[r], sums[height+r] = GP64(), t.vector(), t.vector()
				MOVQ(Mem{Base: list, Disp: 8 * r}, at[r])
				IMULQ(lda, at[r])
				ADDQ(a, at[r])
			}
			for v, x := range numbers {
				for r := range at {
					y, sum := t.vector(), sums[v%2*height+r]
					VBROADCASTF32X4(Mem{Base: at[r], Disp: v * quarter}, y)
					if v < 2 {
						t.mul(x, y, sum)
					} else {
						t.fma(x, y, sum)
					}
				}
			}
			for r := range at {
				t.add(sums[height+r], sums[r], sums[r])
			}
			if height == 1 {
				for _, order := range []uint64{0x4e, 0xb1} {
					turned := t.vector()
					VPERMILPS(Imm(order), sums[0], turned)
					t.add(turned, sums[0], sums[0])
				}
				for row := range 4 {
					store(sums[0], row, rowsOfOut(out, row), VADDSS, VMOVSS)
				}
			} else {
				all := t.reduceQuarters([4]reg.VecVirtual(sums[:4]))
				for row := range 4 {
					store(all, row, rowsOfOut(out, row), VADDPS, VMOVUPS)
				}
			}
			ADDQ(Imm(uint64(8*height)), list)
			ADDQ(Imm(uint64(t.size()*height)), out)
			SUBQ(Imm(uint64(height)), n)
			JMP(rows)
			Label(string(end))
		}
		ADDQ(U32(uint32(vectors*quarter)), column)
		SUBQ(U32(uint32(vectors*quarter/t.size())), left)
	}
	const most, least = 16, 4 // vectors: 64 columns, and the lanes of a vector
	CMPQ(left, Imm(most*quarter/4))
	JLT(LabelRef("narrow"))
	part(most, true)
	Label("wide")
	CMPQ(left, Imm(most*quarter/4))
	JLT(LabelRef("rest"))
	part(most, false)
	JMP(LabelRef("wide"))
	Label("narrow")
	part(least, true)
	Label("rest")
	TESTQ(left, left)
	JZ(LabelRef("done"))
	part(least, false)
	JMP(LabelRef("rest"))
	Label("done")
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
			listedRow(list, a, lda, at[i], 0)
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
			listedRow(list, a, lda, at, 0)
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

// listedAdd sums up what it adds to four rows of the list at a time, and then adds that to one row
// after the other, for the list may have a row twice.
func listedAdd(t target) {
	t.function("listedAdd", "(heads, n, d int, a *T, lda int, list *int64, x *T, ldx int, b *T, ldb int)", "is ListedAdd.")
	columns, a, lda, b, ldx, ldb := integer("d"), integer("a"), t.stride("lda"), integer("b"), t.stride("ldx"), t.stride("ldb")
	widths := []int{4, 1}
	if !t.avx512 {
		widths = []int{2, 1}
	}
	for _, vectors := range widths {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
		Label(label("columns"))
		CMPQ(columns, Imm(uint64(vectors*t.lanes())))
		JLT(LabelRef(label("end")))
		n, list, x := integer("n"), integer("list"), integer("x")
		for _, rows := range []int{4, 1} {
			label := func(name string) string { return fmt.Sprintf("%s%dx%d", name, rows, vectors) }
			Label(label("rows"))
			CMPQ(n, Imm(uint64(rows)))
			JLT(LabelRef(label("end")))
			sums := make([][]reg.VecVirtual, rows)
			for r := range sums {
				for range vectors {
					sums[r] = append(sums[r], t.zeros())
				}
			}
			for r := range rows { // what is added to comes while sums are under way
				at := GP64()
				listedRow(list, a, lda, at, r)
				for line := 0; line < vectors*t.bytes(); line += 64 {
					PREFETCHT0(Mem{Base: at, Disp: line})
				}
			}
			weight, from, heads := GP64(), GP64(), integer("heads")
			MOVQ(x, weight)
			MOVQ(b, from)
			Label(label("head"))
			numbers := make([]reg.VecVirtual, vectors)
			for v := range numbers {
				numbers[v] = t.moved(Mem{Base: from, Disp: v * t.bytes()})
			}
			for r := range sums {
				factor := t.vector()
				t.broadcast(Mem{Base: weight, Disp: r * t.size()}, factor)
				for v, sum := range sums[r] {
					t.fma(numbers[v], factor, sum)
				}
			}
			ADDQ(ldx, weight)
			ADDQ(ldb, from)
			DECQ(heads)
			JNZ(LabelRef(label("head")))
			for r := range sums {
				at := GP64()
				listedRow(list, a, lda, at, r)
				for v, sum := range sums[r] {
					m := Mem{Base: at, Disp: v * t.bytes()}
					t.add(m, sum, sum)
					t.store(sum, m)
				}
			}
			ADDQ(Imm(uint64(8*rows)), list)
			ADDQ(Imm(uint64(rows*t.size())), x)
			SUBQ(Imm(uint64(rows)), n)
			JMP(LabelRef(label("rows")))
			Label(label("end"))
		}
		ADDQ(U32(vectors*t.bytes()), a)
		ADDQ(U32(vectors*t.bytes()), b)
		SUBQ(Imm(uint64(vectors*t.lanes())), columns)
		JMP(LabelRef(label("columns")))
		Label(label("end"))
	}
	ret()
}
