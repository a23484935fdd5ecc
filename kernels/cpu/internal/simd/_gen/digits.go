package main

import (
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// byteCode is a type of packed numbers that are multiplied as they are, bytes with digits of the
// other factor, by instructions that add up four products of an unsigned byte and a signed one in
// an int32.
//
// A step is as many codes as a vector of bytes holds. Its digits are vectors of bytes too, the
// highest digits first, then an int32 to add to each sum of the step: what makes codes from zero
// up signed.
type byteCode struct {
	name    string
	zero    uint64 // the code of the number zero, once codes are unsigned
	limit   uint32 // the largest magnitude of a factor, as float32
	groups  int    // of a step, each with a scale
	vectors int    // of unsigned codes in a step
	// open makes what all steps need, and returns what gives their vectors.
	open func() (vectors func(step Op) []Op)
	// masked loads the first groups of a step, the mask having four ones for each.
	masked func(step Mem, mask, to Op)
}

var byteCodes = []byteCode{
	{
		// A sum of eight products is below 2³¹: factors are up to 127·(2¹⁶ + 2⁸).
		name: "Nibbles", zero: 8, limit: 0x4afe0000, groups: 4, vectors: 2,
		open: func() func(Op) []Op {
			low := allBytes(15)
			return func(step Op) []Op {
				first, second := ZMM(), ZMM()
				VPANDD(step, low, first)
				VPSRLW(Imm(4), step, second)
				VPANDD(second, low, second)
				return []Op{first, second}
			}
		},
		masked: func(step Mem, mask, to Op) { VMOVDQU32_Z(step, mask, to) },
	},
	{
		// One of four is: factors are up to 2²² − 4.
		name: "Bytes", zero: 128, limit: 0x4a7ffff0, groups: 2, vectors: 1,
		open: func() func(Op) []Op {
			sign := allBytes(128)
			return func(step Op) []Op {
				y := ZMM()
				VPXORD(step, sign, y)
				return []Op{y}
			}
		},
		masked: func(step Mem, mask, to Op) { VMOVDQU64_Z(step, mask, to) },
	},
}

// allBytes is a vector of one byte.
func allBytes(b uint64) Op { return target{avx512: true}.constantBits(b * 0x01010101) }

const (
	digits     = 3
	digitBits  = 8
	chunk      = 16 // groups whose scales are a vector
	vectorSize = 64
)

// bytes is the size of a step's digits and of what is added.
func (c byteCode) bytes() int { return (digits*c.vectors + 1) * vectorSize }

// sum is the products of a step's vectors with its digits, before what is added.
func (c byteCode) sum(vectors []Op, at reg.Register, disp int) reg.VecVirtual {
	sum := ZMM()
	VPXORD(sum, sum, sum)
	for d := range digits {
		if d > 0 {
			VPSLLD(Imm(digitBits), sum, sum)
		}
		for i, y := range vectors {
			VPDPBUSD(Mem{Base: at, Disp: disp + (d*c.vectors+i)*vectorSize}, y, sum)
		}
	}
	return sum
}

// digitDots multiplies rows one after the other. A step's sums are complete in integers; then each
// group's are multiplied by its scale, once.
//
// Rows take no longer than reading them. What lies further on is asked for twice: far ahead into
// the second-level cache, which has room for more that is under way, and nearer into the first.
func digitDots(c byteCode) {
	t := target{avx512: true}
	function("digitDots"+c.name+"VNNI",
		"(rows, blocks int, codes *byte, ldc, scales int, factors *float32, digits *byte, out *float32)", "is DigitDots.")
	const near, far = 2048, 2048 + 8192 // bytes
	rows, codes, ldc, out := integer("rows"), integer("codes"), integer("ldc"), integer("out")
	vectors := c.open()
	steps := chunk / c.groups
	lanes := 16 / c.groups
	// Which scale of a chunk each lane of a step has.
	spread := make([]reg.VecVirtual, steps)
	for s := range spread {
		indices := make([]uint64, 16)
		for lane := range indices {
			indices[lane] = uint64(s*c.groups + lane/lanes)
		}
		spread[s] = t.moved(t.table(indices...))
	}
	ones := GP64()
	MOVQ(I32(-1), ones)

	Label("row")
	sums := make([]reg.VecVirtual, 4)
	for i := range sums {
		sums[i] = t.zeros()
	}
	at, scale, next, n := GP64(), integer("scales"), GP64(), integer("blocks")
	factor, digit := integer("factors"), integer("digits")
	MOVQ(codes, at)
	ADDQ(codes, scale)
	LEAQ(Mem{Base: at, Disp: near}, next)
	ask := func(line int) {
		PREFETCHT0(Mem{Base: next, Disp: line * vectorSize})
		PREFETCHT1(Mem{Base: next, Disp: line*vectorSize + far - near})
	}

	factors, count := ZMM(), GP64()
	add := func(vectors []Op, disp int, scales, to reg.VecVirtual) {
		sum := c.sum(vectors, digit, disp)
		VPADDD(Mem{Base: digit, Disp: disp + c.bytes() - vectorSize}, sum, sum)
		VCVTDQ2PS(sum, sum)
		VFMADD231PS(scales, sum, to)
	}
	Label("chunk")
	CMPQ(n, Imm(chunk))
	JLT(LabelRef("rest"))
	VCVTPH2PS(Mem{Base: scale}, factors)
	VMULPS(Mem{Base: factor}, factors, factors)
	for s := range steps {
		ask(s)
		scales := ZMM()
		VPERMPS(factors, spread[s], scales)
		add(vectors(Mem{Base: at, Disp: s * vectorSize}), s*c.bytes(), scales, sums[s%len(sums)])
	}
	ask(steps)
	ADDQ(U32(uint32(steps*vectorSize+chunk*scaleBytes)), next)
	ADDQ(U32(uint32(steps*vectorSize)), at)
	ADDQ(Imm(chunk*scaleBytes), scale)
	ADDQ(Imm(chunk*4), factor)
	ADDQ(U32(uint32(steps*c.bytes())), digit)
	SUBQ(Imm(chunk), n)
	JMP(LabelRef("chunk"))

	// Fewer groups: nothing behind the last is read.
	Label("rest")
	TESTQ(n, n)
	JLE(LabelRef("reduce"))
	mask := func(count reg.GPVirtual) reg.Register {
		bits, k := GP64(), K()
		SHLXQ(count, ones, bits)
		NOTQ(bits)
		KMOVW(bits.As32(), k)
		return k
	}
	VCVTPH2PS_Z(Mem{Base: scale}, mask(n), factors)
	VMULPS(Mem{Base: factor}, factors, factors)
	Label("step")
	MOVQ(n, count)
	SHLQ(Imm(2), count)
	step, scales := ZMM(), ZMM()
	c.masked(Mem{Base: at}, mask(count), step)
	ask(0)
	VPERMPS(factors, spread[0], scales)
	add(vectors(step), 0, scales, sums[0])
	VALIGND(Imm(uint64(c.groups)), factors, factors, factors)
	ADDQ(Imm(vectorSize), next)
	ADDQ(Imm(vectorSize), at)
	ADDQ(U32(uint32(c.bytes())), digit)
	SUBQ(Imm(uint64(c.groups)), n)
	JG(LabelRef("step"))

	Label("reduce")
	t.add(sums[1], sums[0], sums[0])
	t.add(sums[3], sums[2], sums[2])
	t.add(sums[2], sums[0], sums[0])
	t.storeScalar(t.reduce(sums[0], t.add), Mem{Base: out})
	ADDQ(Imm(4), out)
	ADDQ(ldc, codes)
	DECQ(rows)
	JNZ(LabelRef("row"))
	ret()
}

// digitsOf makes the factors and digits of a row.
func digitsOf(c byteCode) {
	t := target{avx512: true}
	function("digitsOf"+c.name+"VNNI",
		"(blocks int, x *float32, least, most int, factors *float32, digits *byte) (held int)", "is NewDigits.")
	n, x, factor, at := integer("blocks"), integer("x"), integer("factors"), integer("digits")
	least, span := integer("least"), integer("most")
	SUBQ(least, span)
	magnitude := t.constantBits(1<<31 - 1)
	half := t.constantBits(1 << (digitBits - 1))
	limit, unit := XMM(), XMM()
	t.loadScalar(t.table(uint64(c.limit)), limit)
	t.loadScalar(t.table(0x3f800000), unit)
	VDIVSS(limit, unit, unit)
	laneBytes := vectorSize / c.groups
	lane := GP64()
	MOVQ(I32(c.groups), lane)

	Label("group")
	parts := []reg.VecVirtual{ZMM(), ZMM()}
	sizes := []reg.VecVirtual{ZMM(), ZMM()}
	for i, p := range parts {
		t.load(Mem{Base: x, Disp: i * vectorSize}, p)
		VPANDD(p, magnitude, sizes[i])
	}
	VPMAXUD(sizes[1], sizes[0], sizes[0])
	greatest := t.reduce(sizes[0], func(x, y, to Op) { VPMAXUD(x, y, to) })
	inverse := factorOfGroup(greatest, limit, unit, least, span, factor)
	times := ZMM()
	VBROADCASTSS(inverse, times)
	for i, p := range parts {
		VMULPS(times, p, p)
		VCVTPS2DQ(p, p)
		for d := digits - 1; d >= 0; d-- {
			// The half of a group that is a vector of its own lies behind the other's.
			disp := d*c.vectors*vectorSize + i*16
			if c.vectors > 1 {
				disp = (d*c.vectors + i) * vectorSize
			}
			VPMOVDB(p, Mem{Base: at, Disp: disp})
			if d > 0 {
				VPADDD(half, p, p)
				VPSRAD(Imm(digitBits), p, p)
			}
		}
	}
	ADDQ(Imm(2*vectorSize), x)
	ADDQ(Imm(4), factor)
	ADDQ(Imm(uint64(laneBytes)), at)
	DECQ(lane)
	JNZ(LabelRef("same"))
	MOVQ(I32(c.groups), lane)
	ADDQ(U32(uint32(c.bytes()-vectorSize)), at)
	Label("same")
	DECQ(n)
	JNZ(LabelRef("group"))

	// What is added to a step's sums is what the code of zero adds to them, taken away.
	step, left := integer("digits"), integer("blocks")
	zeros := slices.Repeat([]Op{allBytes(c.zero)}, c.vectors)
	Label("correct")
	sum, less := c.sum(zeros, step, 0), ZMM()
	VPXORD(less, less, less)
	VPSUBD(sum, less, less)
	VMOVDQU32(less, Mem{Base: step, Disp: c.bytes() - vectorSize})
	ADDQ(U32(uint32(c.bytes())), step)
	SUBQ(Imm(uint64(c.groups)), left)
	JG(LabelRef("correct"))
	returnHeld()
}

// factorOfGroup stores the factor of a group by its greatest magnitude, and gives what makes its
// elements integers. It goes to "outside" where digits do not hold the group.
func factorOfGroup(greatest, limit, unit reg.VecVirtual, least, span, factor reg.GPVirtual) (inverse reg.VecVirtual) {
	bits, above, scale, inverse := GP32(), GP64(), XMM(), XMM()
	VMOVD(greatest, bits)
	VXORPS(inverse, inverse, inverse)
	VMULSS(unit, greatest, scale)
	TESTL(bits, bits)
	JZ(LabelRef("divided"))
	MOVL(bits, above.As32())
	SUBQ(least, above)
	CMPQ(above, span)
	JHI(LabelRef("outside"))
	VDIVSS(greatest, limit, inverse)
	Label("divided")
	VMOVSS(scale, Mem{Base: factor})
	return inverse
}

// returnHeld ends digitsOf, also for rows that digits do not hold.
func returnHeld() {
	result := GP64()
	MOVQ(I32(1), result)
	Store(result, ReturnIndex(0))
	ret()

	Label("outside")
	XORQ(result, result)
	Store(result, ReturnIndex(0))
	ret()
}
