package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Kernels of attention over a cache ask for the rows that the next call reads, a line for each that
// they use: reading goes on while they compute.

// cacheType is a type of the rows that kernels of attention over a cache read.
type cacheType struct {
	half
	element string
	log     uint64 // log 2 of an element's size
}

var cacheTypes = []cacheType{
	{half{"Float32", func(m, v Op) { VMOVUPS(m, v) }}, "float32", 2},
	{bfloat16, "uint16", 1},
	{float16, "uint16", 1},
}

// eachCache emits a kernel for both instruction sets and all types.
func eachCache(kernel func(target, cacheType)) {
	for _, t := range []target{{avx512: true}, {}} {
		for _, c := range cacheTypes {
			kernel(t, c)
		}
	}
}

// cacheStride is a parameter that counts elements, in bytes.
func (c cacheType) stride(name string) reg.GPVirtual {
	r := integer(name)
	SHLQ(Imm(c.log), r)
	return r
}

// vector is the size of what becomes a vector.
func (c cacheType) vector(t target) int { return t.lanes() << c.log }

// cacheDots multiplies rows by some of float32, a few at a time.
func cacheDots(heads int) func(target, cacheType) {
	return func(t target, c cacheType) {
		parameters := map[int]string{
			4: "(rows, n int, a *%s, lda int, b *float32, ldb int, out *float32, ldo, ahead int)",
			1: "(rows, n int, a *%s, lda int, b, out *float32, ahead int)",
		}
		t.untyped(fmt.Sprintf("cacheDots%d%s", heads, c.name), fmt.Sprintf(parameters[heads], c.element), fmt.Sprintf("is CacheDots of %d rows of b.", heads))
		rows, a, lda, out := integer("rows"), integer("a"), c.stride("lda"), integer("out")
		rowsOfA := fourth(lda)
		one := func(at reg.Register, _ int) Mem { return Mem{Base: at} }
		rowsOfB, rowsOfOut := one, one
		if heads > 1 {
			rowsOfB, rowsOfOut = fourth(t.stride("ldb")), fourth(t.stride("ldo"))
		}
		heights := []int{4, 1}
		if heads > 1 && !t.avx512 {
			heights = []int{2, 1}
		}
		for _, height := range heights {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
			Label(label("rows"))
			CMPQ(rows, Imm(uint64(height)))
			JLT(LabelRef(label("end")))
			at, next, b, left := GP64(), GP64(), integer("b"), integer("n")
			MOVQ(a, at)
			MOVQ(address("ahead"), next)
			ADDQ(a, next)
			sums := make([][]reg.VecVirtual, heads)
			for h := range sums {
				for range height {
					sums[h] = append(sums[h], t.zeros())
				}
			}
			Label(label("vector"))
			numbers := make([]reg.VecVirtual, height)
			for r := range numbers {
				numbers[r] = t.vector()
				c.widen(rowsOfA(at, r), numbers[r])
				PREFETCHT0(rowsOfA(next, r))
			}
			for h := range sums {
				x := t.moved(rowsOfB(b, h))
				for r, sum := range sums[h] {
					t.fma(x, numbers[r], sum)
				}
			}
			ADDQ(Imm(uint64(c.vector(t))), at)
			ADDQ(Imm(uint64(c.vector(t))), next)
			ADDQ(Imm(uint64(t.bytes())), b)
			SUBQ(Imm(uint64(t.lanes())), left)
			JNZ(LabelRef(label("vector")))
			store := func(sums []reg.VecVirtual, to func(i int) Mem) {
				if len(sums) == 4 {
					t.reduceFour([4]reg.VecVirtual(sums), [4]Mem{to(0), to(1), to(2), to(3)})
					return
				}
				for i, sum := range sums {
					t.storeScalar(t.reduce(sum, t.add), to(i))
				}
			}
			if height == 4 {
				for h := range sums {
					store(sums[h], func(i int) Mem { return rowsOfOut(out, h).Offset(i * t.size()) })
				}
			} else {
				for r := range height {
					var column []reg.VecVirtual
					for h := range sums {
						column = append(column, sums[h][r])
					}
					store(column, func(i int) Mem { return rowsOfOut(out, i).Offset(r * t.size()) })
				}
			}
			if height == 4 {
				LEAQ(Mem{Base: a, Index: lda, Scale: 4}, a)
			} else {
				LEAQ(Mem{Base: a, Index: lda, Scale: uint8(height)}, a)
			}
			ADDQ(Imm(uint64(height*t.size())), out)
			SUBQ(Imm(uint64(height)), rows)
			JMP(LabelRef(label("rows")))
			Label(label("end"))
		}
		ret()
	}
}

// cacheCombine keeps some vectors of each row of c in registers while the rows of a go by.
func cacheCombine(heads int) func(target, cacheType) {
	return func(t target, c cacheType) {
		parameters := map[int]string{
			4: "(rows, n int, a *%s, lda int, x *float32, ldx int, to *float32, ldt, ahead int)",
			1: "(rows, n int, a *%s, lda int, x, to *float32, ahead int)",
		}
		t.untyped(fmt.Sprintf("cacheCombine%d%s", heads, c.name), fmt.Sprintf(parameters[heads], c.element), fmt.Sprintf("is CacheCombine of %d rows of the result.", heads))
		n, a, lda, to, ahead := integer("n"), integer("a"), c.stride("lda"), integer("to"), integer("ahead")
		one := func(at reg.Register, _ int) Mem { return Mem{Base: at} }
		rowsOfX, rowsOfTo := one, one
		if heads > 1 {
			rowsOfX, rowsOfTo = fourth(t.stride("ldx")), fourth(t.stride("ldt"))
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
			CMPQ(n, Imm(uint64(vectors*t.lanes())))
			JLT(LabelRef(label("end")))
			sums := make([][]reg.VecVirtual, heads)
			for h := range sums {
				for v := range vectors {
					sums[h] = append(sums[h], t.moved(rowsOfTo(to, h).Offset(v*t.bytes())))
				}
			}
			at, x, rows := GP64(), integer("x"), integer("rows")
			MOVQ(a, at)
			Label(label("row"))
			for line := 0; line < vectors*c.vector(t); line += 64 {
				PREFETCHT0(Mem{Base: at, Index: ahead, Scale: 1, Disp: line})
			}
			y := make([]reg.VecVirtual, vectors)
			widened := func(v int) reg.VecVirtual {
				if y[v] == nil {
					y[v] = t.vector()
					c.widen(Mem{Base: at, Disp: v * c.vector(t)}, y[v])
				}
				return y[v]
			}
			for h := range sums {
				factor := t.vector()
				t.broadcast(rowsOfX(x, h), factor)
				for v, sum := range sums[h] {
					t.fma(widened(v), factor, sum)
				}
			}
			ADDQ(lda, at)
			ADDQ(Imm(uint64(t.size())), x)
			DECQ(rows)
			JNZ(LabelRef(label("row")))
			for h := range sums {
				for v, sum := range sums[h] {
					t.store(sum, rowsOfTo(to, h).Offset(v*t.bytes()))
				}
			}
			ADDQ(U32(vectors*c.vector(t)), a)
			ADDQ(U32(vectors*t.bytes()), to)
			SUBQ(Imm(uint64(vectors*t.lanes())), n)
			JMP(LabelRef(label("columns")))
			Label(label("end"))
		}
		ret()
	}
}
