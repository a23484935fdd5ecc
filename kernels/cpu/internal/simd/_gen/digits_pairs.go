package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX2 multiplies unsigned bytes by signed ones too, and adds up two products in an int16 that is
// cut off at its limits. Codes of four bits stay far from these: two products of two vectors are at
// most 2·2·15·128. Codes of eight bits do not.
//
// A step is a vector of codes, two groups. All else is as in digitDots.

const (
	pairVector = 32
	pairGroups = 2 // of a step
	pairChunk  = 8 // groups whose scales are a vector
	pairBytes  = (digits*2 + 1) * pairVector
)

// pairSums adds up products of two vectors of codes with a step's digits.
type pairSums struct {
	t         target
	ones, top Op // what adds up two sums of int16, and that times 2⁸
}

func newPairSums() pairSums {
	t := target{}
	return pairSums{t, t.moved(t.constantBits(1<<16 | 1)), t.moved(t.constantBits(1<<24 | 1<<8))}
}

func (p pairSums) of(low, high Op, at reg.Register, disp int) reg.VecVirtual {
	sum := YMM()
	for d := range digits {
		x, y := YMM(), YMM()
		VPMADDUBSW(Mem{Base: at, Disp: disp + 2*d*pairVector}, low, x)
		VPMADDUBSW(Mem{Base: at, Disp: disp + (2*d+1)*pairVector}, high, y)
		VPADDW(y, x, x)
		switch d {
		case 0:
			VPMADDWD(p.top, x, sum)
		case 1:
			VPMADDWD(p.ones, x, x)
			VPADDD(x, sum, sum)
			VPSLLD(Imm(digitBits), sum, sum)
		default:
			VPMADDWD(p.ones, x, x)
			VPADDD(x, sum, sum)
		}
	}
	return sum
}

func digitDotsInPairs() {
	t := target{}
	function("digitDotsNibblesAVX2",
		"(rows, blocks int, codes *byte, ldc, scales int, factors *float32, digits *byte, out *float32)", "is DigitDots.")
	const near, far = 2048, 2048 + 8192 // bytes
	rows, codes, ldc, out := integer("rows"), integer("codes"), integer("ldc"), integer("out")
	products := newPairSums()
	mask := t.moved(t.constantBits(0x0f0f0f0f))
	// The scales of even groups in the lower half, of odd ones in the other.
	halves := t.moved(t.table(0, 2, 4, 6, 1, 3, 5, 7))

	Label("row")
	sums := make([]reg.VecVirtual, 2)
	for i := range sums {
		sums[i] = t.zeros()
	}
	at, scale, next, n := GP64(), integer("scales"), GP64(), integer("blocks")
	factor, digit := integer("factors"), integer("digits")
	MOVQ(codes, at)
	ADDQ(codes, scale)
	LEAQ(Mem{Base: at, Disp: near}, next)
	ask := func(line int) {
		PREFETCHT0(Mem{Base: next, Disp: line * 64})
		PREFETCHT1(Mem{Base: next, Disp: line*64 + far - near})
	}
	// add takes a step whose codes are in low.
	add := func(low reg.VecVirtual, disp int, scales, to reg.VecVirtual) {
		high := YMM()
		VPSRLW(Imm(4), low, high)
		VPAND(mask, low, low)
		VPAND(mask, high, high)
		sum := products.of(low, high, digit, disp)
		VPADDD(Mem{Base: digit, Disp: disp + pairBytes - pairVector}, sum, sum)
		VCVTDQ2PS(sum, sum)
		VFMADD231PS(scales, sum, to)
	}
	factors := YMM()
	Label("chunk")
	CMPQ(n, Imm(pairChunk))
	JLT(LabelRef("rest"))
	VCVTPH2PS(Mem{Base: scale}, factors)
	VMULPS(Mem{Base: factor}, factors, factors)
	VPERMPS(factors, halves, factors)
	for s := range pairChunk / pairGroups {
		if s%2 == 0 {
			ask(s / 2)
		}
		low, scales := YMM(), YMM()
		VMOVDQU(Mem{Base: at, Disp: s * pairVector}, low)
		VPERMILPS(Imm(uint64(s*0x55)), factors, scales)
		add(low, s*pairBytes, scales, sums[s%len(sums)])
	}
	ask(2)
	ADDQ(U32(pairChunk*(pairVector/pairGroups+scaleBytes)), next)
	ADDQ(U32(pairChunk/pairGroups*pairVector), at)
	ADDQ(Imm(pairChunk*scaleBytes), scale)
	ADDQ(Imm(pairChunk*4), factor)
	ADDQ(U32(pairChunk/pairGroups*pairBytes), digit)
	SUBQ(Imm(pairChunk), n)
	JMP(LabelRef("chunk"))

	// Fewer groups: nothing behind the last is read.
	Label("rest")
	pair := GP32()
	step := func(load func(low reg.VecVirtual)) {
		low, scales := YMM(), YMM()
		load(low)
		VMOVD(pair, scales.AsX())
		VCVTPH2PS(scales.AsX(), scales.AsX())
		VMULPS(Mem{Base: factor}, scales.AsX(), scales.AsX())
		VPERMPS(scales, halves, scales)
		VPERMILPS(Imm(0), scales, scales)
		add(low, 0, scales, sums[0])
	}
	Label("step")
	CMPQ(n, Imm(pairGroups))
	JLT(LabelRef("last"))
	MOVL(Mem{Base: scale}, pair)
	step(func(low reg.VecVirtual) { VMOVDQU(Mem{Base: at}, low) })
	ADDQ(Imm(pairVector), at)
	ADDQ(Imm(pairGroups*scaleBytes), scale)
	ADDQ(Imm(pairGroups*4), factor)
	ADDQ(U32(pairBytes), digit)
	SUBQ(Imm(pairGroups), n)
	JMP(LabelRef("step"))
	Label("last")
	TESTQ(n, n)
	JZ(LabelRef("reduce"))
	MOVWLZX(Mem{Base: scale}, pair)
	step(func(low reg.VecVirtual) { VMOVDQU(Mem{Base: at}, low.AsX()) })

	Label("reduce")
	t.add(sums[1], sums[0], sums[0])
	t.storeScalar(t.reduce(sums[0], t.add), Mem{Base: out})
	ADDQ(Imm(4), out)
	ADDQ(ldc, codes)
	DECQ(rows)
	JNZ(LabelRef("row"))
	ret()
}

// digitsInPairs makes the factors and digits of a row.
func digitsInPairs() {
	t := target{}
	function("digitsOfNibblesAVX2",
		"(blocks int, x *float32, least, most int, factors *float32, digits *byte) (held int)", "is NewDigits.")
	n, x, factor, at := integer("blocks"), integer("x"), integer("factors"), integer("digits")
	least, span := integer("least"), integer("most")
	SUBQ(least, span)
	magnitude := t.moved(t.constantBits(1<<31 - 1))
	half := t.constantBits(1 << (digitBits - 1))
	low := t.moved(t.constantBits(1<<digitBits - 1))
	order := t.moved(t.table(0, 4, 1, 5, 2, 6, 3, 7))
	limit, unit := XMM(), XMM()
	t.loadScalar(t.table(uint64(byteCodes[0].limit)), limit)
	t.loadScalar(t.table(0x3f800000), unit)
	VDIVSS(limit, unit, unit)
	const laneBytes = pairVector / pairGroups
	lane := GP64()
	MOVQ(I32(pairGroups), lane)

	Label("group")
	var parts [4]reg.VecVirtual
	most := YMM()
	for i := range parts {
		parts[i] = t.moved(Mem{Base: x, Disp: i * pairVector})
		size := most
		if i > 0 {
			size = YMM()
		}
		VPAND(parts[i], magnitude, size)
		if i > 0 {
			VPMAXUD(size, most, most)
		}
	}
	greatest := t.reduce(most, func(x, y, to Op) { VPMAXUD(x, y, to) })
	inverse := factorOfGroup(greatest, limit, unit, least, span, factor)
	times := YMM()
	VBROADCASTSS(inverse, times)
	for _, p := range parts {
		VMULPS(times, p, p)
		VCVTPS2DQ(p, p)
	}
	for d := digits - 1; d >= 0; d-- {
		var bytes [4]reg.VecVirtual
		for i, p := range parts {
			bytes[i] = YMM()
			VPAND(low, p, bytes[i])
			if d > 0 {
				VPADDD(half, p, p)
				VPSRAD(Imm(digitBits), p, p)
			}
		}
		VPACKUSDW(bytes[1], bytes[0], bytes[0])
		VPACKUSDW(bytes[3], bytes[2], bytes[2])
		VPACKUSWB(bytes[2], bytes[0], bytes[0])
		VPERMD(bytes[0], order, bytes[0])
		VMOVDQU(bytes[0].AsX(), Mem{Base: at, Disp: 2 * d * pairVector})
		VEXTRACTI128(Imm(1), bytes[0], Mem{Base: at, Disp: (2*d + 1) * pairVector})
	}
	ADDQ(U32(blockElements*4), x)
	ADDQ(Imm(4), factor)
	ADDQ(Imm(laneBytes), at)
	DECQ(lane)
	JNZ(LabelRef("same"))
	MOVQ(I32(pairGroups), lane)
	ADDQ(U32(pairBytes-pairVector), at)
	Label("same")
	DECQ(n)
	JNZ(LabelRef("group"))

	// What is added to a step's sums is what the code of zero adds to them, taken away.
	step, left := integer("digits"), integer("blocks")
	products := newPairSums()
	zero := t.moved(t.constantBits(byteCodes[0].zero * 0x01010101))
	Label("correct")
	sum, less := products.of(zero, zero, step, 0), YMM()
	VPXOR(less, less, less)
	VPSUBD(sum, less, less)
	VMOVDQU(less, Mem{Base: step, Disp: pairBytes - pairVector})
	ADDQ(U32(pairBytes), step)
	SUBQ(Imm(pairGroups), left)
	JG(LabelRef("correct"))
	returnHeld()
}
