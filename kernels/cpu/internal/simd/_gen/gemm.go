package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unroll is how many steps along k a round of the inner loop takes.
const unroll = 4

// product is the state that all blocks of a matrix product share. Strides are in bytes.
type product struct {
	target
	rs, rs3, cs, ldb reg.GPVirtual // rs3 = 3·rs
	a, c, rows       reg.GPVirtual // of A and C the next row's start, and how many rows are left
	panel            Mem           // where the panel of B starts
}

// gemm holds a block of C in registers and adds a row of B times a column of A to it at every step:
// a vector of B is loaded once for all rows of the block, an element of A once for all its vectors.
// The panels of B are the outer loop, so that they stay near while the rows of A go by. AVX-512 has
// registers for six rows across two panels at a time; that takes a sixth fewer instructions for
// each sum than eight rows of one panel, and a core issues hardly more of them than it needs, the
// less when a neighbour shares it.
func gemm(t target) {
	t.function("gemm", "(m, nv, k int, a *T, rs, cs int, b *T, ldb, bp int, c *T, ldc int, accumulate bool)", "is Gemm.")
	p := product{target: t, rs: t.stride("rs"), cs: t.stride("cs"), ldb: t.stride("ldb"), rs3: GP64()}
	LEAQ(Mem{Base: p.rs, Index: p.rs, Scale: 2}, p.rs3)
	local := AllocLocal(16)
	p.panel = local
	columns := local.Offset(8) // where the panel of C starts
	MOVQ(integer("b"), p.panel)
	MOVQ(integer("c"), columns)

	left := address("nv")
	for _, w := range widths(t) {
		label := fmt.Sprintf("columns%d", w.vectors)
		Label(label)
		CMPQ(left, Imm(uint64(w.vectors)))
		JLT(LabelRef(label + "end"))
		p.a, p.c, p.rows = integer("a"), GP64(), integer("m")
		MOVQ(columns, p.c)
		for i, rows := range w.rows {
			p.block(rows, w.vectors, i == 0)
		}
		step := t.stride("bp")
		for range w.vectors / 2 {
			ADDQ(step, p.panel)
		}
		ADDQ(U32(w.vectors*t.bytes()), columns)
		SUBQ(Imm(uint64(w.vectors)), left)
		JMP(LabelRef(label))
		Label(label + "end")
	}
	ret()
}

// width is a number of vectors, and the numbers of rows that blocks of so many vectors have: as
// many as there are registers for, then what is left.
type width struct {
	vectors int
	rows    []int
}

func widths(t target) []width {
	if t.avx512 {
		// 24 sums, 4 vectors of B and elements of A in 32 registers
		return []width{{4, []int{6, 4, 2, 1}}, {2, []int{8, 4, 2, 1}}, {1, []int{8, 4, 2, 1}}}
	}
	// 12 sums, 2 vectors of B and an element of A in 16 registers
	return []width{{2, []int{6, 4, 2, 1}}, {1, []int{6, 4, 2, 1}}}
}

// block computes blocks of C of so many rows and vectors, as long as there are rows for it, or one
// at most.
func (p product) block(rows, vectors int, repeat bool) {
	label := func(name string) string { return fmt.Sprintf("%s%dx%d", name, rows, vectors) }
	Label(label("block"))
	CMPQ(p.rows, Imm(uint64(rows)))
	JLT(LabelRef(label("end")))

	// The sums of a small block wait for one another unless the steps of a round have sums of their
	// own.
	chains := 1
	for chains < unroll && 2*chains*rows*vectors <= 8 {
		chains *= 2
	}
	sums := make([][][]reg.VecVirtual, chains)
	for c := range sums {
		sums[c] = make([][]reg.VecVirtual, rows)
		for i := range sums[c] {
			for range vectors {
				sums[c][i] = append(sums[c][i], p.zeros())
			}
		}
	}

	// Four rows of A from one pointer: at 0, 1, 2 and 3 strides.
	a := make([]reg.GPVirtual, (rows+3)/4)
	for g := range a {
		a[g] = GP64()
		if g == 0 {
			MOVQ(p.a, a[0])
		} else {
			LEAQ(Mem{Base: a[g-1], Index: p.rs, Scale: 4}, a[g])
		}
	}
	b := []reg.GPVirtual{GP64()} // in each panel
	MOVQ(p.panel, b[0])
	if vectors > 2 {
		b = append(b, GP64())
		LEAQ(Mem{Base: b[0], Index: p.stride("bp"), Scale: 1}, b[1])
	}
	br := make([]reg.VecVirtual, vectors)
	for j := range br {
		br[j] = p.vector()
	}
	step := func(chain int) {
		for j := range br {
			p.load(Mem{Base: b[j/2], Disp: j % 2 * p.bytes()}, br[j])
		}
		for _, row := range b {
			ADDQ(p.ldb, row)
		}
		for i := range rows {
			element := p.vector()
			p.broadcast(p.row(a[i/4], i%4), element)
			for j := range br {
				p.fma(element, br[j], sums[chain][i][j])
			}
			if i%4 == 3 || i == rows-1 {
				ADDQ(p.cs, a[i/4])
			}
		}
	}
	k := integer("k")
	SHRQ(Imm(2), k)
	JZ(LabelRef(label("rest")))
	Label(label("round"))
	for u := range unroll {
		step(u % chains)
	}
	DECQ(k)
	JNZ(LabelRef(label("round")))
	Label(label("rest"))
	Load(Param("k"), k)
	ANDQ(Imm(unroll-1), k)
	JZ(LabelRef(label("summed")))
	Label(label("step"))
	step(0)
	DECQ(k)
	JNZ(LabelRef(label("step")))
	Label(label("summed"))
	for width := chains / 2; width > 0; width /= 2 {
		for c := range width {
			for i := range rows {
				for j := range vectors {
					p.add(sums[c+width][i][j], sums[c][i][j], sums[c][i][j])
				}
			}
		}
	}

	ldc := p.stride("ldc")
	CMPB(address("accumulate"), Imm(0))
	JE(LabelRef(label("write")))
	out := GP64()
	MOVQ(p.c, out)
	for i := range rows {
		for j, sum := range sums[0][i] {
			p.add(Mem{Base: out, Disp: j * p.bytes()}, sum, sum)
		}
		ADDQ(ldc, out)
	}
	Label(label("write"))
	for i := range rows {
		for j, sum := range sums[0][i] {
			p.store(sum, Mem{Base: p.c, Disp: j * p.bytes()})
		}
		ADDQ(ldc, p.c)
	}
	for r := rows; r > 0; {
		stride := 1
		for 2*stride <= min(r, 4) {
			stride *= 2
		}
		LEAQ(Mem{Base: p.a, Index: p.rs, Scale: uint8(stride)}, p.a)
		r -= stride
	}
	SUBQ(Imm(uint64(rows)), p.rows)
	if repeat {
		JMP(LabelRef(label("block")))
	}
	Label(label("end"))
}

// row is the element of a row of A, i strides from where its pointer is.
func (p product) row(a reg.Register, i int) Mem {
	switch i {
	case 0:
		return Mem{Base: a}
	case 3:
		return Mem{Base: a, Index: p.rs3, Scale: 1}
	}
	return Mem{Base: a, Index: p.rs, Scale: uint8(i)}
}
