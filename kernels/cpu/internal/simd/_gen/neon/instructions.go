package neon

import (
	"fmt"
	"strings"
)

// Go's assembler knows few of the vector instructions, so all of them are written as what they are
// encoded to, with the processor's own syntax beside it. The test of this package asks another
// assembler whether the two agree.

// word appends an instruction of the given encoding but for its registers. text has a verb for each
// of these, in the order of the fields that their numbers go to.
func (k *kernel) word(encoding uint32, text string, writes, reads []int, fields ...field) {
	k.code = append(k.code, instruction{
		text: func(number func(int) int) string {
			code, numbers := encoding, make([]any, len(fields))
			for i, f := range fields {
				n := number(f.register)
				code |= uint32(n) << f.shift
				numbers[i] = n
			}
			return fmt.Sprintf("WORD $0x%08x // %s", code, fmt.Sprintf(text, numbers...))
		},
		reads: reads, writes: writes,
	})
}

// field is a register and the bit from which on its number is encoded.
type field struct{ register, shift int }

// In nearly all instructions the destination, the first and the second operand are encoded from
// these bits on.
const first, second, third = 0, 5, 16

// shape is how a vector is cut into lanes.
type shape struct {
	name string
	size uint32 // as the instructions on whole numbers encode it
}

var (
	bytes16 = shape{"16b", 0}
	halves8 = shape{"8h", 1}
	words4  = shape{"4s", 2}
	longs2  = shape{"2d", 3}
)

// shape is that of the element type. In instructions on floats it is a single bit.
func (k *kernel) shape() shape {
	if k.double {
		return longs2
	}
	return words4
}

func (s shape) float() uint32 { return (s.size & 1) << 22 }
func (s shape) whole() uint32 { return s.size << 22 }
func (s shape) bits() uint32  { return 8 << s.size }

// three is an instruction with two operands, reading its destination as well if it changes it.
func (k *kernel) three(name string, encoding uint32, s shape, changes bool, to, x, y vec) vec {
	reads := ints([]vec{x, y})
	if changes {
		reads = append(reads, int(to))
	}
	k.word(encoding, fmt.Sprintf("%s v%%d.%[2]s, v%%d.%[2]s, v%%d.%[2]s", name, s.name),
		ints([]vec{to}), reads, field{int(to), first}, field{int(x), second}, field{int(y), third})
	return to
}

// two is an instruction with one operand. Its text has a verb for the destination and one for the
// operand.
func (k *kernel) two(text string, encoding uint32, to, x vec) vec {
	k.word(encoding, text, ints([]vec{to}), ints([]vec{x}), field{int(to), first}, field{int(x), second})
	return to
}

func (k *kernel) float3(name string, encoding uint32, x, y vec, to []vec) vec {
	return k.three(name, encoding|k.shape().float(), k.shape(), false, k.into(to), x, y)
}

// Each of these gives its result in a fresh register, or in the one that is given last. Where one
// of two numbers is NaN, max and min give NaN.
func (k *kernel) add(x, y vec, to ...vec) vec { return k.float3("fadd", 0x4e20d400, x, y, to) }
func (k *kernel) sub(x, y vec, to ...vec) vec { return k.float3("fsub", 0x4ea0d400, x, y, to) } // x − y
func (k *kernel) mul(x, y vec, to ...vec) vec { return k.float3("fmul", 0x6e20dc00, x, y, to) }
func (k *kernel) div(x, y vec, to ...vec) vec { return k.float3("fdiv", 0x6e20fc00, x, y, to) } // x/y
func (k *kernel) max(x, y vec, to ...vec) vec { return k.float3("fmax", 0x4e20f400, x, y, to) }
func (k *kernel) min(x, y vec, to ...vec) vec { return k.float3("fmin", 0x4ea0f400, x, y, to) }

// addPairs, maxPairs and minPairs fold neighbours, those of x and then those of y.
func (k *kernel) addPairs(x, y vec, to ...vec) vec { return k.float3("faddp", 0x6e20d400, x, y, to) }
func (k *kernel) maxPairs(x, y vec, to ...vec) vec { return k.float3("fmaxp", 0x6e20f400, x, y, to) }
func (k *kernel) minPairs(x, y vec, to ...vec) vec { return k.float3("fminp", 0x6ea0f400, x, y, to) }

// greater, notLess and same are all ones where x > y, x ≥ y or x = y, and zero elsewhere, also at
// NaN.
func (k *kernel) greater(x, y vec) vec { return k.float3("fcmgt", 0x6ea0e400, x, y, nil) }
func (k *kernel) notLess(x, y vec) vec { return k.float3("fcmge", 0x6e20e400, x, y, nil) }
func (k *kernel) same(x, y vec) vec    { return k.float3("fcmeq", 0x4e20e400, x, y, nil) }

// fma is sum += x·y, fms sum −= x·y, each rounded once.
func (k *kernel) fma(sum, x, y vec) vec {
	return k.three("fmla", 0x4e20cc00|k.shape().float(), k.shape(), true, sum, x, y)
}

func (k *kernel) fms(sum, x, y vec) vec {
	return k.three("fmls", 0x4ea0cc00|k.shape().float(), k.shape(), true, sum, x, y)
}

// fmaLane is sum += x·y with a single lane of y for all of x.
func (k *kernel) fmaLane(sum, x, y vec, lane int) {
	s, encoding := k.shape(), uint32(0x4f801000)|k.shape().float()
	if k.double {
		encoding |= uint32(lane) << 11
	} else {
		encoding |= uint32(lane&1)<<21 | uint32(lane>>1)<<11
	}
	k.word(encoding, fmt.Sprintf("fmla v%%d.%[1]s, v%%d.%[1]s, v%%d.%[2]s[%[3]d]", s.name, s.name[1:], lane),
		ints([]vec{sum}), ints([]vec{sum, x, y}), field{int(sum), first}, field{int(x), second}, field{int(y), third})
}

func (k *kernel) float2(name string, encoding uint32, x vec, to []vec) vec {
	return k.two(fmt.Sprintf("%s v%%d.%[2]s, v%%d.%[2]s", name, k.shape().name), encoding|k.shape().float(), k.into(to), x)
}

func (k *kernel) abs(x vec, to ...vec) vec    { return k.float2("fabs", 0x4ea0f800, x, to) }
func (k *kernel) negate(x vec, to ...vec) vec { return k.float2("fneg", 0x6ea0f800, x, to) }
func (k *kernel) sqrt(x vec, to ...vec) vec   { return k.float2("fsqrt", 0x6ea1f800, x, to) }

// compareFloats compares the lowest lanes of x and y.
func (k *kernel) compareFloats(x, y vec) {
	name, encoding := "s", uint32(0x1e202000)
	if k.double {
		name, encoding = "d", 0x1e602000
	}
	k.word(encoding, strings.ReplaceAll("fcmp #%d, #%d", "#", name), nil, ints([]vec{x, y}), field{int(x), second}, field{int(y), third})
}

func (k *kernel) bitwise(name string, encoding uint32, x, y vec, to []vec) vec {
	return k.three(name, encoding, bytes16, false, k.into(to), x, y)
}

func (k *kernel) and(x, y vec, to ...vec) vec    { return k.bitwise("and", 0x4e201c00, x, y, to) }
func (k *kernel) or(x, y vec, to ...vec) vec     { return k.bitwise("orr", 0x4ea01c00, x, y, to) }
func (k *kernel) xor(x, y vec, to ...vec) vec    { return k.bitwise("eor", 0x6e201c00, x, y, to) }
func (k *kernel) andNot(x, y vec, to ...vec) vec { return k.bitwise("bic", 0x4e601c00, x, y, to) } // x &^ y

// pick overwrites a mask with the bits of yes where it has ones, and those of no where it has
// zeros.
func (k *kernel) pick(mask, yes, no vec) vec {
	return k.three("bsl", 0x6e601c00, bytes16, true, mask, yes, no)
}

func (k *kernel) copy(x vec, to ...vec) vec { return k.or(x, x, to...) }

func (k *kernel) zeros(to ...vec) vec {
	v := k.into(to)
	k.word(0x6f00e400, "movi v%d.2d, #0", ints([]vec{v}), nil, field{int(v), first})
	return v
}

// duplicate is the lowest lane of x in all lanes.
func (k *kernel) duplicate(x vec, to ...vec) vec {
	s := k.shape()
	return k.two(fmt.Sprintf("dup v%%d.%s, v%%d.%s[0]", s.name, s.name[1:]), 0x4e000400|1<<s.size<<16, k.into(to), x)
}

// broadcast is a whole number in all lanes, of which it may have more bits than they.
func (k *kernel) broadcast(x gp) vec {
	v, s := k.vec(), k.shape()
	name := "w"
	if k.double {
		name = "x"
	}
	k.word(0x4e000c00|1<<s.size<<16, fmt.Sprintf("dup v%%d.%s, %s%%d", s.name, name), ints([]vec{v}), ints([]gp{x}), field{int(v), first}, field{int(x), second})
	return v
}

// fromInteger is a whole number in the lowest lane, as a float.
func (k *kernel) fromInteger(x gp) vec {
	v, name, encoding := k.vec(), "s", uint32(0x9e220000)
	if k.double {
		name, encoding = "d", 0x9e620000
	}
	k.word(encoding, "scvtf "+name+"%d, x%d", ints([]vec{v}), ints([]gp{x}), field{int(v), first}, field{int(x), second})
	return v
}

// Whole numbers of a shape. Counts are compared without signs.

func (k *kernel) whole(name string, encoding uint32, s shape, x, y vec, to []vec) vec {
	return k.three(name, encoding|s.whole(), s, false, k.into(to), x, y)
}

func (k *kernel) addWhole(s shape, x, y vec, to ...vec) vec {
	return k.whole("add", 0x4e208400, s, x, y, to)
}
func (k *kernel) notBelow(s shape, x, y vec) vec { return k.whole("cmhs", 0x6e203c00, s, x, y, nil) } // x ≥ y

func (k *kernel) shiftLanes(s shape, x vec, by int, to ...vec) vec {
	return k.two(fmt.Sprintf("shl v%%d.%[1]s, v%%d.%[1]s, #%[2]d", s.name, by), 0x4f005400|(s.bits()+uint32(by))<<16, k.into(to), x)
}

func (k *kernel) shiftRightLanes(s shape, x vec, by int) vec {
	return k.two(fmt.Sprintf("ushr v%%d.%[1]s, v%%d.%[1]s, #%[2]d", s.name, by), 0x6f000400|(2*s.bits()-uint32(by))<<16, k.vec(), x)
}

// multiplyLow and multiplyHigh are the 64-bit products of the lower and of the upper two of four
// numbers.
func (k *kernel) multiplyLow(x, y vec) vec {
	to := k.vec()
	k.word(0x2ea0c000, "umull v%d.2d, v%d.2s, v%d.2s", ints([]vec{to}), ints([]vec{x, y}), field{int(to), first}, field{int(x), second}, field{int(y), third})
	return to
}

func (k *kernel) multiplyHigh(x, y vec) vec {
	to := k.vec()
	k.word(0x6ea0c000, "umull2 v%d.2d, v%d.4s, v%d.4s", ints([]vec{to}), ints([]vec{x, y}), field{int(to), first}, field{int(x), second}, field{int(y), third})
	return to
}

// evenLanes and oddLanes take every second lane of x and then of y; lowerPairs and upperPairs take
// the lanes of the two in turns, from their lower or their upper halves. flipPairs swaps
// neighbours.
func (k *kernel) evenLanes(s shape, x, y vec) vec  { return k.whole("uzp1", 0x4e001800, s, x, y, nil) }
func (k *kernel) oddLanes(s shape, x, y vec) vec   { return k.whole("uzp2", 0x4e005800, s, x, y, nil) }
func (k *kernel) lowerPairs(s shape, x, y vec) vec { return k.whole("zip1", 0x4e003800, s, x, y, nil) }
func (k *kernel) upperPairs(s shape, x, y vec) vec { return k.whole("zip2", 0x4e007800, s, x, y, nil) }

func (k *kernel) flipPairs(x vec) vec {
	to := k.vec()
	if !k.double {
		return k.two("rev64 v%d.4s, v%d.4s", 0x4ea00800, to, x)
	}
	k.word(0x6e004000, "ext v%[1]d.16b, v%[2]d.16b, v%[2]d.16b, #8", ints([]vec{to}), ints([]vec{x}),
		field{int(to), first}, field{int(x), second}, field{int(x), third})
	return to
}

// widenHalves and widenWords make numbers without signs twice as wide, those of the lower half.
func (k *kernel) widenHalves(x vec) vec { return k.two("uxtl v%d.4s, v%d.4h", 0x2f10a400, k.vec(), x) }
func (k *kernel) widenWords(x vec) vec  { return k.two("uxtl v%d.2d, v%d.2s", 0x2f20a400, k.vec(), x) }

// lowDoubles and highDoubles are the lower and the upper half of a vector of float32, in float64.
func (k *kernel) lowDoubles(x vec) vec { return k.two("fcvtl v%d.2d, v%d.2s", 0x0e617800, k.vec(), x) }
func (k *kernel) highDoubles(x vec) vec {
	return k.two("fcvtl2 v%d.2d, v%d.4s", 0x4e617800, k.vec(), x)
}

// lowFloats and highFloats are the lower and the upper half of a vector of bfloat16, in float32.
func (k *kernel) lowFloats(x vec) vec {
	return k.two("shll v%d.4s, v%d.4h, #16", 0x2e613800, k.vec(), x)
}
func (k *kernel) highFloats(x vec) vec {
	return k.two("shll2 v%d.4s, v%d.8h, #16", 0x6e613800, k.vec(), x)
}

// bfloat16 is two vectors of float32 rounded to one, on processors that have BFMMLA.
func (k *kernel) bfloat16(x, y vec) vec {
	to := k.two("bfcvtn v%d.4h, v%d.4s", 0x0ea16800, k.vec(), x)
	k.word(0x4ea16800, "bfcvtn2 v%d.8h, v%d.4s", ints([]vec{to}), ints([]vec{to, y}), field{int(to), first}, field{int(y), second})
	return to
}

// multiplyPairs adds the product of two lines of four numbers of bfloat16 with the columns that are
// two others to 2×2 sums.
func (k *kernel) multiplyPairs(sums, x, y vec) {
	k.word(0x6e40ec00, "bfmmla v%d.4s, v%d.8h, v%d.8h", ints([]vec{sums}), ints([]vec{sums, x, y}), field{int(sums), first}, field{int(x), second}, field{int(y), third})
}

// widenBFloat16 and widenFloat16 are both halves of a vector of 16-bit floats, in float32.
func (k *kernel) widenBFloat16(x vec) (low, high vec) { return k.lowFloats(x), k.highFloats(x) }
func (k *kernel) widenFloat16(x vec) (low, high vec) {
	return k.two("fcvtl v%d.4s, v%d.4h", 0x0e217800, k.vec(), x), k.two("fcvtl2 v%d.4s, v%d.8h", 0x4e217800, k.vec(), x)
}

// width is how much of a vector a load or a store moves, in bytes. Loads leave zeros in the rest.
type width struct {
	name  string
	bytes int
	// The encodings of a load from a register plus a multiple of the width, and plus a register;
	// those of stores lack a bit.
	fixed, indexed uint32
}

var (
	whole16 = width{"q", 16, 0x3dc00000, 0x3ce06800}
	part8   = width{"d", 8, 0xfd400000, 0xfc606800}
	part4   = width{"s", 4, 0xbd400000, 0xbc606800}
)

// one is the width of an element.
func (k *kernel) one() width {
	if k.double {
		return part8
	}
	return part4
}

const loads = 1 << 22 // the bit that stores lack

func (k *kernel) load(base gp, offset int, to ...vec) vec {
	return k.loadPart(whole16, base, offset, to...)
}

func (k *kernel) loadPart(w width, base gp, offset int, to ...vec) vec {
	v := k.into(to)
	k.word(w.fixed|uint32(offset/w.bytes)<<10, fmt.Sprintf("ldr %s%%d, [x%%d, #%d]", w.name, offset), ints([]vec{v}), ints([]gp{base}),
		field{int(v), first}, field{int(base), second})
	return v
}

func (k *kernel) loadAt(w width, base, index gp, to ...vec) vec {
	v := k.into(to)
	k.word(w.indexed, "ldr "+w.name+"%d, [x%d, x%d]", ints([]vec{v}), ints([]gp{base, index}),
		field{int(v), first}, field{int(base), second}, field{int(index), third})
	return v
}

// loadTwo loads two vectors that lie side by side.
func (k *kernel) loadTwo(base gp, offset int) (x, y vec) {
	x, y = k.vec(), k.vec()
	place := "[x%d]"
	if offset > 0 {
		place = fmt.Sprintf("[x%%d, #%d]", offset)
	}
	k.word(0xad400000|uint32(offset/bytes)<<15, "ldp q%d, q%d, "+place, ints([]vec{x, y}), ints([]gp{base}), field{int(x), first}, field{int(y), 10}, field{int(base), second})
	return x, y
}

func (k *kernel) store(x vec, base gp, offset int) { k.storePart(whole16, x, base, offset) }

func (k *kernel) storePart(w width, x vec, base gp, offset int) {
	k.word(w.fixed&^loads|uint32(offset/w.bytes)<<10, fmt.Sprintf("str %s%%d, [x%%d, #%d]", w.name, offset), nil, append(ints([]vec{x}), int(base)),
		field{int(x), first}, field{int(base), second})
}

func (k *kernel) storeAt(w width, x vec, base, index gp) {
	k.word(w.indexed&^loads, "str "+w.name+"%d, [x%d, x%d]", nil, append(ints([]vec{x}), ints([]gp{base, index})...),
		field{int(x), first}, field{int(base), second}, field{int(index), third})
}

// loadAll is an element of memory in all lanes.
func (k *kernel) loadAll(base gp) vec {
	v := k.vec()
	k.word(0x4d40c000|k.shape().size<<10, "ld1r {v%d."+k.shape().name+"}, [x%d]", ints([]vec{v}), ints([]gp{base}), field{int(v), first}, field{int(base), second})
	return v
}

// total and greatestOf fold the lanes of a vector and leave the result in all of them.
func (k *kernel) total(x vec) vec {
	x = k.addPairs(x, x)
	if !k.double {
		x = k.addPairs(x, x)
	}
	return x
}

func (k *kernel) greatestOf(x vec) vec {
	x = k.maxPairs(x, x)
	if !k.double {
		x = k.maxPairs(x, x)
	}
	return x
}

// lookup is, for each byte of the indices, that of the table's bytes; 0 for an index beyond them.
func (k *kernel) lookup(table, indices vec) vec {
	to := k.vec()
	k.word(0x4e000000, "tbl v%d.16b, {v%d.16b}, v%d.16b", ints([]vec{to}), ints([]vec{table, indices}),
		field{int(to), first}, field{int(table), second}, field{int(indices), third})
	return to
}

// widenSigned is both halves of a vector of numbers with signs, twice as wide.
func (k *kernel) widenSigned(s shape, x vec) (low, high vec) {
	encoding := 0x0f00a400 | s.bits()<<16
	if s == bytes16 {
		return k.two("sxtl v%d.8h, v%d.8b", encoding, k.vec(), x), k.two("sxtl2 v%d.8h, v%d.16b", encoding|1<<30, k.vec(), x)
	}
	return k.two("sxtl v%d.4s, v%d.4h", encoding, k.vec(), x), k.two("sxtl2 v%d.4s, v%d.8h", encoding|1<<30, k.vec(), x)
}

// fromWhole is numbers with signs of 32 bits as float32.
func (k *kernel) fromWhole(x vec) vec { return k.two("scvtf v%d.4s, v%d.4s", 0x4e21d800, k.vec(), x) }
