package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The matrix units of AMX hold eight tiles of 16 rows of 64 bytes. One instruction multiplies a
// tile of A, 16 rows of 32 numbers, with a tile of B, 16 pairs of numbers of 16 columns, and adds
// to a tile of C, 16×16 in float32. Neither Go's assembler nor avo knows these instructions, so
// their bytes are written here, as Intel's manual has them. avo does not see the registers that
// they use: kernels with tiles use the processor's own names throughout.

// vex emits an instruction with a three-byte VEX prefix from the map 0F38, with W0 and L0. third is
// the register of the prefix, r, x and b the highest bits of those behind it.
func vex(prefix, opcode, third, r, x, b byte, rest ...byte) {
	code := append([]byte{0xc4, (1-r)<<7 | (1-x)<<6 | (1-b)<<5 | 2, (15-third)<<3 | prefix, opcode}, rest...)
	for _, c := range code {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(uint64(c))}})
	}
}

// The mandatory prefixes, as VEX counts them.
const noPrefix, prefixF3, prefixF2 = 0, 2, 3

// number is how instructions encode a register.
func number(r reg.Physical) (low, high byte) {
	return byte(r.PhysicalIndex()) & 7, byte(r.PhysicalIndex()) >> 3
}

// loadTile and storeTile move a tile whose rows lie step bytes apart, the first of them disp bytes
// behind base.
func loadTile(tile byte, base, step reg.Physical, disp int32) {
	moveTile(prefixF2, tile, base, step, disp)
}
func storeTile(tile byte, base, step reg.Physical, disp int32) {
	moveTile(prefixF3, tile, base, step, disp)
}

func moveTile(prefix, tile byte, base, step reg.Physical, disp int32) {
	b, highB := number(base)
	x, highX := number(step)
	vex(prefix, 0x4b, 0, 0, highX, highB, 2<<6|tile<<3|4, x<<3|b, byte(disp), byte(disp>>8), byte(disp>>16), byte(disp>>24))
}

// zeroTile clears a tile.
func zeroTile(tile byte) { vex(prefixF2, 0x49, 0, 0, 0, 0, 3<<6|tile<<3) }

// multiplyTiles adds the product of two tiles to a third.
func multiplyTiles(a, b, c byte) { vex(prefixF3, 0x5c, b, 0, 0, 0, 3<<6|c<<3|a) }

// configureTiles makes eight whole tiles, as the 64 bytes at a place say; releaseTiles gives them
// back.
func configureTiles(at reg.Physical) {
	b, high := number(at)
	vex(noPrefix, 0x49, 0, 0, 0, high, b)
}

func releaseTiles() { vex(noPrefix, 0x49, 0, 0, 0, 0, 3<<6) }

const (
	tileBytes = 1024
	stepBytes = 2 * tileBytes // of two tiles of A, or of B, for 32 numbers of the depth
)

// wholeTiles is the configuration: palette 1, then how long and how many the rows of each tile are.
func wholeTiles() Mem {
	table := GLOBL("wholeTiles", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		var word uint64
		switch i {
		case 0:
			word = 1
		case 2, 3:
			word = 0x0040_0040_0040_0040
		case 6:
			word = 0x1010_1010_1010_1010
		}
		DATA(8*i, U64(word))
	}
	return table
}

// tileProduct holds two by two tiles of C, so that each tile that is loaded is multiplied twice. A
// block of A stays near while those of B go by.
func tileProduct() {
	tiles.declare("tileProduct", tileProductParameters, false)
	function("tileProduct"+tiles.set(), tileProductParameters, "is TileProduct.")
	a, b, c, upper, lower := reg.RSI, reg.RDI, reg.RBX, reg.RCX, reg.RDX
	row, ldc, left, steps, sixteen := reg.R8, reg.R9, reg.R10, reg.R11, reg.R12 // the latter rows of C
	firstA, rows := reg.R13, AllocLocal(16)
	firstC := rows.Offset(8)
	LEAQ(wholeTiles(), reg.RAX)
	configureTiles(reg.RAX)
	Load(Param("a"), firstA)
	Load(Param("rows"), reg.RAX)
	MOVQ(reg.RAX, rows)
	Load(Param("c"), reg.RAX)
	MOVQ(reg.RAX, firstC)
	Load(Param("ldc"), ldc)
	SHLQ(Imm(2), ldc)
	MOVQ(ldc, sixteen)
	SHLQ(Imm(4), sixteen)
	MOVQ(U32(64), row)

	Label("rows")
	Load(Param("b"), b)
	MOVQ(firstC, c)
	Load(Param("blocks"), left)
	Label("block")
	MOVQ(c, upper)
	LEAQ(Mem{Base: c, Index: sixteen, Scale: 1}, lower)
	Load(Param("accumulate"), reg.RAX.As8L())
	TESTB(reg.RAX.As8L(), reg.RAX.As8L())
	JZ(LabelRef("clear"))
	loadTile(0, upper, ldc, 0)
	loadTile(1, upper, ldc, 64)
	loadTile(2, lower, ldc, 0)
	loadTile(3, lower, ldc, 64)
	JMP(LabelRef("begin"))
	Label("clear")
	for tile := range byte(4) {
		zeroTile(tile)
	}
	Label("begin")
	MOVQ(firstA, a)
	Load(Param("steps"), steps)
	Label("step")
	loadTile(6, b, row, 0)
	loadTile(7, b, row, tileBytes)
	loadTile(4, a, row, 0)
	loadTile(5, a, row, tileBytes)
	// B comes from the second-level cache, which the unit would wait for, the longer if another
	// thread shares the core.
	const ahead, line = 2 * stepBytes, 64
	for i, pair := range [][2]byte{{4, 6}, {4, 7}, {5, 6}, {5, 7}} {
		multiplyTiles(pair[0], pair[1], byte(i))
		for at := i * stepBytes / 4; at < (i+1)*stepBytes/4; at += line {
			PREFETCHT0(Mem{Base: b, Disp: ahead + at})
		}
	}
	ADDQ(U32(stepBytes), a)
	ADDQ(U32(stepBytes), b)
	DECQ(steps)
	JNZ(LabelRef("step"))

	storeTile(0, upper, ldc, 0)
	storeTile(1, upper, ldc, 64)
	storeTile(2, lower, ldc, 0)
	storeTile(3, lower, ldc, 64)
	ADDQ(U32(128), c)
	Load(Param("skipB"), reg.RAX)
	LEAQ(Mem{Base: b, Index: reg.RAX, Scale: 2}, b)
	DECQ(left)
	JNZ(LabelRef("block"))
	Load(Param("skipA"), reg.RAX)
	LEAQ(Mem{Base: a, Index: reg.RAX, Scale: 2}, firstA)
	MOVQ(firstC, c)
	LEAQ(Mem{Base: c, Index: sixteen, Scale: 2}, c)
	MOVQ(c, firstC)
	DECQ(rows)
	JNZ(LabelRef("rows"))
	releaseTiles()
	ret()
}

const tileProductParameters = "(rows, blocks, steps int, a *uint16, skipA int, b *uint16, skipB int, c *float32, ldc int, accumulate bool)"

// tiles is what the kernels of the matrix units are emitted for: every processor that has these has
// AVX-512.
var tiles = target{avx512: true}

// tileRows makes tiles of 16 rows, whose numbers lie end to end.
func tileRows(half bool) {
	element, size := "float32", 4
	if half {
		element, size = "uint16", 2
	}
	src, stride, dst, steps := startTiles("tileRows", element, size)
	var round func(reg.VecVirtual) reg.VecVirtual
	if !half {
		round = tiles.rounding()
	}
	Label("step")
	from, to, rows := GP64(), GP64(), GP64()
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(U32(16), rows)
	Label("row")
	if half {
		v := ZMM()
		VMOVDQU64(Mem{Base: from}, v)
		VMOVDQU64(v, Mem{Base: to})
	} else {
		for i := range 2 {
			v := ZMM()
			VMOVUPS(Mem{Base: from, Disp: 64 * i}, v)
			VPMOVDW(round(v), Mem{Base: to, Disp: 32 * i})
		}
	}
	ADDQ(stride, from)
	ADDQ(Imm(64), to)
	DECQ(rows)
	JNZ(LabelRef("row"))
	ADDQ(U32(32*size), src)
	ADDQ(U32(stepBytes), dst)
	DECQ(steps)
	JNZ(LabelRef("step"))
	ret()
}

// tilePairs makes tiles of 16 pairs of rows, of 16 columns.
func tilePairs(half bool) {
	element, size := "float32", 4
	if half {
		element, size = "uint16", 2
	}
	src, stride, dst, steps := startTiles("tilePairs", element, size)
	var round func(reg.VecVirtual) reg.VecVirtual
	if !half {
		round = tiles.rounding()
	}
	Label("step")
	to, pairs := GP64(), GP64()
	MOVQ(dst, to)
	MOVQ(U32(16), pairs)
	Label("pair")
	var words [2]reg.VecVirtual
	for i := range words {
		words[i] = ZMM()
		if half {
			VPMOVZXWD(Mem{Base: src}, words[i])
		} else {
			VMOVUPS(Mem{Base: src}, words[i])
			words[i] = round(words[i])
		}
		ADDQ(stride, src)
	}
	VPSLLD(Imm(16), words[1], words[1])
	VPORD(words[0], words[1], words[1])
	VMOVDQU64(words[1], Mem{Base: to})
	ADDQ(Imm(64), to)
	DECQ(pairs)
	JNZ(LabelRef("pair"))
	ADDQ(U32(stepBytes), dst)
	DECQ(steps)
	JNZ(LabelRef("step"))
	ret()
}

// blockOfPairs makes both tiles of steps of 32 columns of B, whose numbers lie side by side.
func blockOfPairs() {
	function("blockOfPairs"+tiles.set(), "(steps int, src *uint16, stride int, dst *uint16)", "makes blocks of pairs of whole steps.")
	src, stride, dst, steps := integer("src"), integer("stride"), integer("dst"), integer("steps")
	SHLQ(Imm(1), stride)
	// Of four lanes that hold columns 0 to 3, 8 to 11, … of a pair of rows, and those between:
	// those of the first tile, and of the second.
	var order [2]reg.VecVirtual
	for tile := range order {
		table := GLOBL(fmt.Sprintf("tileLanes%d", tile), attr.RODATA|attr.NOPTR)
		for i := range 8 {
			lane, word := 2*tile+i/4, i%2
			DATA(8*i, U64(2*lane+word+8*(i/2%2)))
		}
		order[tile] = ZMM()
		VMOVDQU64(table, order[tile])
	}
	pairs := GP64()
	Label("step")
	MOVQ(U32(16), pairs)
	Label("pair")
	upper, lower, low, high := ZMM(), ZMM(), ZMM(), ZMM()
	VMOVDQU64(Mem{Base: src}, upper)
	VMOVDQU64(Mem{Base: src, Index: stride, Scale: 1}, lower)
	VPUNPCKLWD(lower, upper, low)
	VPUNPCKHWD(lower, upper, high)
	for tile := range order {
		to := ZMM()
		VMOVDQA64(order[tile], to)
		VPERMI2Q(high, low, to)
		VMOVDQU64(to, Mem{Base: dst, Disp: tile * tileBytes})
	}
	LEAQ(Mem{Base: src, Index: stride, Scale: 2}, src)
	ADDQ(Imm(64), dst)
	DECQ(pairs)
	JNZ(LabelRef("pair"))
	ADDQ(U32(tileBytes), dst)
	DECQ(steps)
	JNZ(LabelRef("step"))
	ret()
}

// startTiles starts a kernel that makes tiles of a matrix.
func startTiles(name, element string, size int) (src, stride, dst, steps reg.GPVirtual) {
	parameters := "(steps int, src *" + element + ", stride int, dst *uint16)"
	if size == 4 {
		name += "Rounded"
	}
	tiles.declare(name, parameters, false)
	function(name+tiles.set(), parameters, "is "+upperFirst(name)+".")
	src, stride, dst, steps = integer("src"), integer("stride"), integer("dst"), integer("steps")
	SHLQ(Imm(uint64(size/2)), stride)
	return src, stride, dst, steps
}

// withUnits is what kernels are emitted for that round as processors with matrix units do by
// themselves: to nearest, and numbers below the smallest normal one to zero, which is what the
// units take these for.
var withUnits = target{avx512: true, units: true}

// roundTwo rounds two vectors of float32 to one of bfloat16, the lower half of it first.
func roundTwo(low, high, to reg.Physical) {
	const evexPrefix, map38, allLanes = 0x62, 2, 2 << 5
	l, highL := number(low)
	h, highH := number(high)
	t, highT := number(to)
	if highL|highH|highT > 1 {
		panic("roundTwo takes the first sixteen registers")
	}
	for _, c := range []byte{
		evexPrefix, (1-highT)<<7 | 1<<6 | (1-highL)<<5 | 1<<4 | map38, (15-(highH<<3|h))<<3 | 1<<2 | prefixF2, allLanes | 1<<3,
		0x72, 3<<6 | t<<3 | l,
	} {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(uint64(c))}})
	}
}

// tileRowsNative is tileRows of float32.
func tileRowsNative() {
	src, stride, dst, steps := startNative("tileRowsRounded")
	from, to, rows := reg.RSI, reg.RDI, reg.R8
	Label("step")
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(U32(4), rows)
	Label("rows")
	for i, v := range []reg.VecPhysical{reg.Z0, reg.Z2, reg.Z4, reg.Z6} {
		next := []reg.VecPhysical{reg.Z1, reg.Z3, reg.Z5, reg.Z7}[i]
		VMOVUPS(Mem{Base: from}, v)
		VMOVUPS(Mem{Base: from, Disp: 64}, next)
		roundTwo(v, next, v)
		VMOVDQU64(v, Mem{Base: to, Disp: 64 * i})
		ADDQ(stride, from)
	}
	ADDQ(U32(256), to)
	DECQ(rows)
	JNZ(LabelRef("rows"))
	ADDQ(U32(128), src)
	ADDQ(U32(stepBytes), dst)
	DECQ(steps)
	JNZ(LabelRef("step"))
	ret()
}

// tilePairsNative is tilePairs of float32.
func tilePairsNative() {
	src, stride, dst, steps := startNative("tilePairsRounded")
	turns, to, pairs := reg.Z15, reg.RDI, reg.R8
	order := GLOBL("tilePairsOrder", attr.RODATA|attr.NOPTR)
	for i := range 16 {
		DATA(4*i, U32(i|(16+i)<<16))
	}
	VMOVDQU64(order, turns)
	Label("step")
	MOVQ(dst, to)
	MOVQ(U32(4), pairs)
	Label("pairs")
	for i, v := range []reg.VecPhysical{reg.Z0, reg.Z2, reg.Z4, reg.Z6} {
		next := []reg.VecPhysical{reg.Z1, reg.Z3, reg.Z5, reg.Z7}[i]
		VMOVUPS(Mem{Base: src}, v)
		VMOVUPS(Mem{Base: src, Index: stride, Scale: 1}, next)
		roundTwo(v, next, v)
		VPERMW(v, turns, v)
		VMOVDQU64(v, Mem{Base: to, Disp: 64 * i})
		LEAQ(Mem{Base: src, Index: stride, Scale: 2}, src)
	}
	ADDQ(U32(256), to)
	DECQ(pairs)
	JNZ(LabelRef("pairs"))
	ADDQ(U32(stepBytes), dst)
	DECQ(steps)
	JNZ(LabelRef("step"))
	ret()
}

// startNative starts a kernel that makes tiles of float32, in the processor's own registers.
func startNative(name string) (src, stride, dst, steps reg.Register) {
	const parameters = "(steps int, src *float32, stride int, dst *uint16)"
	withUnits.declare(name, parameters, false)
	function(name+withUnits.set(), parameters, "is "+upperFirst(name)+".")
	src, stride, dst, steps = Load(Param("src"), reg.RAX), Load(Param("stride"), reg.RCX), Load(Param("dst"), reg.RDX), Load(Param("steps"), reg.RBX)
	SHLQ(Imm(2), stride)
	return src, stride, dst, steps
}

// rounding returns what rounds float32 to bfloat16 in the lower halves of the lanes, to nearest and
// NaN to a quiet NaN.
func (t target) rounding() func(reg.VecVirtual) reg.VecVirtual {
	one, most, quiet := t.constantBits(1), t.constantBits(0x7fff), t.constantBits(0x40)
	return func(x reg.VecVirtual) reg.VecVirtual {
		upper, odd := t.vector(), t.vector()
		VPSRLD(Imm(16), x, upper)
		t.and(one, upper, odd)
		VPADDD(most, odd, odd)
		VPADDD(x, odd, odd)
		VPSRLD(Imm(16), odd, odd)
		if t.avx512 {
			nan := K()
			VCMPPS(Imm(3), x, x, nan)
			VPORD(quiet, upper, nan, odd)
			return odd
		}
		nan := t.vector()
		VCMPPS(Imm(3), x, x, nan)
		t.or(quiet, upper, upper)
		VBLENDVPS(nan, upper, odd, odd)
		return odd
	}
}

const rowBytes = 64 // of float32 that a round of the loops below converts: sixteen

// widenRow writes a row of bfloat16 as float32.
func widenRow(t target) {
	t.untyped("widenRow", "(vectors int, dst *float32, src *uint16)", "is WidenRow, sixteen numbers at a time.")
	vectors, dst, src := integer("vectors"), integer("dst"), integer("src")
	Label("vector")
	for at := 0; at < rowBytes; at += t.bytes() {
		v := t.vector()
		VPMOVZXWD(Mem{Base: src, Disp: at / 2}, v)
		VPSLLD(Imm(16), v, v)
		t.store(v, Mem{Base: dst, Disp: at})
	}
	ADDQ(Imm(rowBytes/2), src)
	ADDQ(Imm(rowBytes), dst)
	DECQ(vectors)
	JNZ(LabelRef("vector"))
	ret()
}

// roundRow writes a row of float32 as bfloat16.
func roundRow(t target) {
	t.untyped("roundRow", "(vectors int, dst *uint16, src *float32)", "is RoundRow, sixteen numbers at a time.")
	vectors, dst, src := integer("vectors"), integer("dst"), integer("src")
	round := t.rounding()
	Label("vector")
	var words []reg.VecVirtual
	for at := 0; at < rowBytes; at += t.bytes() {
		v := t.vector()
		t.load(Mem{Base: src, Disp: at}, v)
		words = append(words, round(v))
	}
	if t.avx512 {
		VPMOVDW(words[0], Mem{Base: dst})
	} else {
		VPACKUSDW(words[1], words[0], words[0]) // halves of both in turns
		VPERMQ(Imm(0b11_01_10_00), words[0], words[0])
		t.store(words[0], Mem{Base: dst})
	}
	ADDQ(Imm(rowBytes), src)
	ADDQ(Imm(rowBytes/2), dst)
	DECQ(vectors)
	JNZ(LabelRef("vector"))
	ret()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
