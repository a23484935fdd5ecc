package simd

import (
	"encoding/binary"
	"math"
	"os"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Some processors (AVX512_VNNI) multiply bytes at four times the rate of float32 and add the
// products up in integers; AVX2 does so with codes of four bits. Packed numbers whose codes are
// integers need not be widened there. What they meet, a row of float32, becomes integers too, block
// by block:
//
//	x_bj ≈ factor_b·(2¹⁶·high_bj + 2⁸·middle_bj + low_bj)
//
// with digits from −128 to 127. An element is off by half a factor, which is the largest magnitude
// of its block over 2²² for codes of eight bits and 2²³ for those of four: about as much as float32
// rounds that one. Sums of a block's products are exact before they are rounded to float32.

// digitUnits says what multiplies digits with codes of eight bits and of four.
type digitUnits struct{ bytes, nibbles units }

// of is that for codes of four bits or of eight.
func (u digitUnits) of(nibbles bool) units {
	if nibbles {
		return u.nibbles
	}
	return u.bytes
}

// haveDigits reports whether the processor multiplies such codes with digits at the active level.
func haveDigits(nibbles bool) bool {
	return active == AVX512 && haveByteProducts() || active == AVX2 && nibbles
}

// digitsBy is what multiplies digits. STHENO_SIMD asks for the instructions of its level alone.
var digitsBy = func() digitUnits {
	if active == AVX512 && os.Getenv(environment) != "" {
		return digitUnits{}
	}
	return digitUnits{matrixUnit, matrixUnit}
}()

// HasDigits reports whether packed numbers may be multiplied by digits: codes of four bits or of
// eight.
func HasDigits(nibbles bool) bool {
	unit := digitsBy.of(nibbles)
	return unit == emulation || unit == matrixUnit && haveDigits(nibbles)
}

// SetDigits turns digits on or off for tests; restore undoes it. Where the processor has no such
// instructions, or the level is another, plain Go takes their place. No kernel may be running.
func SetDigits(on bool) (restore func()) {
	before := digitsBy
	unit := func(nibbles bool) units {
		switch {
		case !on:
			return noUnits
		case haveDigits(nibbles):
			return matrixUnit
		}
		return emulation
	}
	digitsBy = digitUnits{unit(false), unit(true)}
	return func() { digitsBy = before }
}

// Digits is a row of float32 as digits.
type Digits struct {
	blocks int
	layout digitLayout
	// factors are those of all blocks, and zeros up to a multiple of factorsTogether.
	factors []float32
	// digits are steps of some blocks: digits of one rank are a vector for each code in a byte, the
	// highest rank first. Behind these is a vector of int32, which the processor adds to the sums
	// of unsigned codes, four products of each vector.
	digits []byte
}

// digitLayout is what depends on the codes that are multiplied.
type digitLayout struct {
	nibbles bool
	zero    int32   // the code of zero, once codes are unsigned
	limit   float32 // the largest integer: sums of what an int32 adds up stay below 2³¹
	blocks  int     // of a step
	vectors int     // of a rank of digits in a step
	vector  int     // bytes of one
}

var (
	nibbleDigits = digitLayout{true, 8, 127 << 16, 4, 2, 64}
	pairedDigits = digitLayout{true, 8, 127 << 16, 2, 2, 32} // of AVX2
	byteDigits   = digitLayout{false, 128, 1<<22 - 4, 2, 1, 64}
)

func digitLayoutOf(nibbles bool) digitLayout {
	switch {
	case nibbles && active == AVX2:
		return pairedDigits
	case nibbles:
		return nibbleDigits
	}
	return byteDigits
}

const (
	ranks           = 3  // of digits
	digitAlign      = 64 // of the memory, in bytes
	factorsTogether = 16
)

// step is the bytes of a step.
func (l digitLayout) step() int { return (ranks*l.vectors + 1) * l.vector }

func (l digitLayout) steps(blocks int) int { return (blocks + l.blocks - 1) / l.blocks }

// at is where the highest digit of element j of block b is.
func (l digitLayout) at(b, j int) int {
	first, lane := b/l.blocks*l.step(), b%l.blocks
	if l.nibbles {
		return first + j/16*l.vector + lane*16 + j%16
	}
	return first + lane*PackedBlock + j
}

// DigitWords is the size of the memory that [NewDigits] needs for some blocks, to be multiplied by
// codes of four bits or of eight.
func DigitWords(blocks int, nibbles bool) int {
	l := digitLayoutOf(nibbles)
	return factorsOf(blocks) + l.steps(blocks)*l.step()/4
}

// factorsOf is the length of the factors of some blocks.
func factorsOf(blocks int) int {
	return (blocks + factorsTogether - 1) / factorsTogether * factorsTogether
}

// Digits hold what is between these magnitudes, and zero: products of factors and scales neither
// vanish nor overflow.
const leastDigits, mostDigits = 0x1p-80, 0x1p80

// NewDigits makes the digits of a row of some blocks in memory of [DigitWords], which begins at a
// multiple of 64. It reports whether digits hold the row: not if the largest magnitude of a block
// is below 2⁻⁸⁰ or above 2⁸⁰, or no number.
func NewDigits(memory []int32, blocks int, nibbles bool, x *float32) (d Digits, held bool) {
	l, n := digitLayoutOf(nibbles), factorsOf(blocks)
	d = Digits{blocks: blocks, layout: l}
	d.factors = unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), n)
	d.digits = unsafe.Slice((*byte)(unsafe.Pointer(&memory[n])), l.steps(blocks)*l.step())
	clear(d.factors[blocks:])
	clear(d.digits[(l.steps(blocks)-1)*l.step():][:l.step()])
	if digitsBy.of(nibbles) == matrixUnit {
		least, most := int(math.Float32bits(leastDigits)), int(math.Float32bits(mostDigits))
		held = digitsOfVector(nibbles, blocks, x, least, most, &d.factors[0], &d.digits[0])
		return d, held
	}
	for b := range blocks {
		bits, block := uint32(0), row(x, b, PackedBlock, PackedBlock)
		for _, v := range block {
			bits = max(bits, math.Float32bits(v)&^(1<<31))
		}
		greatest, inverse := math.Float32frombits(bits), float32(0)
		if d.factors[b] = greatest * (1 / l.limit); greatest != 0 {
			if !(greatest >= leastDigits && greatest <= mostDigits) {
				return d, false
			}
			inverse = l.limit / greatest
		}
		for j, v := range block {
			q := int32(math.RoundToEven(float64(v * inverse)))
			for r := ranks - 1; r >= 0; r-- {
				d.digits[l.at(b, j)+r*l.vectors*l.vector] = byte(q)
				q = (q + 128) >> 8
			}
		}
	}
	for s := range l.steps(blocks) {
		step := d.digits[s*l.step():][:l.step()]
		for lane := range l.vector / 4 {
			sum := int32(0)
			for i := range ranks * l.vectors {
				for k := range 4 {
					sum += int32(int8(step[i*l.vector+4*lane+k])) << (8 * (ranks - 1 - i/l.vectors))
				}
			}
			binary.LittleEndian.PutUint32(step[l.step()-l.vector+4*lane:], uint32(-l.zero*sum))
		}
	}
	return d, true
}

// Dots multiplies rows of packed numbers by d, as [PackedDots] does. The codes of rows are ldc
// bytes apart, and scales of float16 lie so many bytes behind the first code of each. There is at
// least one row.
func (d *Digits) Dots(codes *byte, ldc, scales int, out []float32) {
	l := d.layout
	if digitsBy.of(l.nibbles) == matrixUnit {
		digitDotsVector(l.nibbles, len(out), d.blocks, codes, ldc, scales,
			&d.factors[0], &d.digits[0], &out[0])
		return
	}
	for i := range out {
		sum, packed := float32(0), unsafe.Add(unsafe.Pointer(codes), i*ldc)
		list := unsafe.Slice((*kernels.Float16)(unsafe.Add(packed, scales)), d.blocks)
		for b, scale := range list {
			total := int64(0)
			for j := range PackedBlock {
				total += int64(d.integer(b, j)) * int64(l.number(packed, b, j))
			}
			sum += scale.Float32() * d.factors[b] * float32(total)
		}
		out[i] = sum
	}
}

// integer is what the digits of an element are.
func (d *Digits) integer(b, j int) (q int32) {
	at := d.layout.at(b, j)
	for r := range ranks {
		q = q<<8 + int32(int8(d.digits[at+r*d.layout.vectors*d.layout.vector]))
	}
	return q
}

// number is a number of a row of packed ones.
func (l digitLayout) number(codes unsafe.Pointer, b, j int) int32 {
	if !l.nibbles {
		return int32(*(*int8)(unsafe.Add(codes, b*PackedBlock+j)))
	}
	return int32(*(*byte)(unsafe.Add(codes, b*PackedBlock/2+j%16))>>(j/16*4)&15) - l.zero
}
