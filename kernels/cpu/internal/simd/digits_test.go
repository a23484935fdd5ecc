package simd

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// eachDigits runs a test of codes of four bits and of eight, in plain Go and, where there are
// instructions for it, by these, at each level that has some.
func eachDigits(t *testing.T, test func(t *testing.T, nibbles bool)) {
	for _, level := range Levels() {
		for _, nibbles := range []bool{false, true} {
			for _, unit := range []units{emulation, matrixUnit} {
				t.Run(fmt.Sprintf("%v/nibbles=%t/%s", level, nibbles, []string{emulation: "go", matrixUnit: "processor"}[unit]), func(t *testing.T) {
					defer SetLevel(level)()
					defer func(before digitUnits) { digitsBy = before }(digitsBy)
					if digitsBy = (digitUnits{unit, unit}); !HasDigits(nibbles) {
						t.Skip("the processor has no such products of bytes")
					}
					test(t, nibbles)
				})
			}
		}
	}
}

// packedRows are random rows, each of codes and, with 16 bytes between, scales.
type packedRows struct {
	nibbles                   bool
	rows, blocks, ldc, scales int
	bytes                     []byte
}

func newPackedRows(r *rand.Rand, nibbles bool, rows, blocks int) *packedRows {
	p := &packedRows{nibbles: nibbles, rows: rows, blocks: blocks, scales: blocks*PackedBlock + 16}
	if nibbles {
		p.scales = blocks*PackedBlock/2 + 16
	}
	p.ldc = p.scales + 2*blocks + 6
	// The last row ends with its last scale.
	p.bytes = make([]byte, rows*p.ldc-6)
	for i := range p.bytes {
		p.bytes[i] = byte(r.Uint32())
	}
	for i := range rows {
		for b := range blocks {
			p.setScale(i, b, float32(r.NormFloat64()))
		}
	}
	return p
}

func (p *packedRows) setScale(i, b int, x float32) {
	binary.LittleEndian.PutUint16(p.bytes[i*p.ldc+p.scales+2*b:], uint16(kernels.ToFloat16(x)))
}

// at is element j of block b of row i.
func (p *packedRows) at(i, b, j int) float64 {
	row := p.bytes[i*p.ldc:]
	scale := kernels.Float16(binary.LittleEndian.Uint16(row[p.scales+2*b:])).Float32()
	return float64(scale) * float64(digitLayoutOf(p.nibbles).number(unsafe.Pointer(&row[0]), b, j))
}

// alignedDigits is memory for digits. What it holds before is not zero.
func alignedDigits(blocks int, nibbles bool) []int32 {
	n := DigitWords(blocks, nibbles)
	memory := slices.Repeat([]int32{-1}, n+digitAlign/4)
	skip := int(-uintptr(unsafe.Pointer(&memory[0])) % digitAlign / 4)
	return memory[skip:][:n:n]
}

var digitShapes = [][2]int{
	{1, 1}, {2, 2}, {3, 3}, {1, 4}, {2, 5}, {1, 15}, {3, 16}, {2, 17}, {5, 24}, {2, 28}, {3, 31}, {2, 32}, {1, 152},
}

// Integers are the nearest ones to an element over its factor, and factors make use of them.
func TestDigits(t *testing.T) {
	eachDigits(t, func(t *testing.T, nibbles bool) {
		r := rand.New(rand.NewPCG(21, 22))
		for _, shape := range digitShapes {
			blocks := shape[1]
			x := newFenced[float32](r, 1, blocks*PackedBlock, 0)
			for b := range blocks {
				size := float32(math.Ldexp(1, r.IntN(120)-60))
				if r.IntN(8) == 0 {
					size = 0
				}
				for j := range PackedBlock {
					*x.at(0, b*PackedBlock+j) *= size
				}
			}
			d, held := NewDigits(alignedDigits(blocks, nibbles), blocks, nibbles, x.first())
			if !held {
				t.Fatalf("%d blocks are not held", blocks)
			}
			limit := int32(d.layout.limit)
			for b := range blocks {
				most, greatest := int32(0), 0.0
				for j := range PackedBlock {
					v, q := float64(*x.at(0, b*PackedBlock+j)), d.integer(b, j)
					most, greatest = max(most, q, -q), max(greatest, math.Abs(v))
					factor := float64(d.factors[b])
					e, rounded := math.Abs(v-float64(q)*factor), 1.6*epsilon[float32]()*math.Abs(v)
					if e > 0.51*factor+rounded {
						t.Fatalf("nibbles %v, block %d, element %d: %g is %d·%g, off by %.2f factors",
							nibbles, b, j, v, q, factor, e/factor)
					}
				}
				if greatest > 0 && (most < limit-1 || most > limit+1) || greatest == 0 && most != 0 {
					t.Fatalf("the largest integer of a block with %g is %d, limit %d", greatest, most, limit)
				}
			}
		}
	})
}

// The processor's digits are those of plain Go, byte by byte.
func TestDigitsAreEqual(t *testing.T) {
	made := map[string][]int32{}
	eachDigits(t, func(t *testing.T, nibbles bool) {
		r := rand.New(rand.NewPCG(23, 24))
		for _, shape := range digitShapes {
			x := newFenced[float32](r, 1, shape[1]*PackedBlock, 0)
			memory := alignedDigits(shape[1], nibbles)
			if _, held := NewDigits(memory, shape[1], nibbles, x.first()); !held {
				t.Fatal("not held")
			}
			of := fmt.Sprintf("%v, nibbles %v, %v", active, nibbles, shape)
			if want, found := made[of]; found && !slices.Equal(memory, want) {
				t.Errorf("%s: the digits differ", of)
			}
			made[of] = memory
		}
	})
}

// What digits do not hold is told apart.
func TestDigitsHold(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	eachDigits(t, func(t *testing.T, nibbles bool) {
		for _, c := range []struct {
			x    float32
			held bool
		}{
			{0, true}, {1, true}, {-0x1p80, true}, {0x1p-80, true},
			{0x1.000002p80, false}, {-0x1.fffffep-81, false}, {1e-42, false},
			{inf, false}, {-inf, false}, {nan, false},
		} {
			for at := range 3 * PackedBlock {
				x := make([]float32, 3*PackedBlock)
				x[at] = c.x
				if _, held := NewDigits(alignedDigits(3, nibbles), 3, nibbles, &x[0]); held != c.held {
					t.Fatalf("nibbles %v, %g as element %d: held is %v", nibbles, c.x, at, held)
				}
			}
		}
	})
}

func TestDigitDots(t *testing.T) {
	eachDigits(t, func(t *testing.T, nibbles bool) {
		r := rand.New(rand.NewPCG(25, 26))
		for _, shape := range digitShapes {
			p := newPackedRows(r, nibbles, shape[0], shape[1])
			x := newFenced[float32](r, 1, p.blocks*PackedBlock, 0)
			checkDigitDots(t, p, x.cells[margin:][:x.n])
		}
	})
}

// No sum of an int32 overflows, whatever the codes.
func TestDigitDotsOfExtremes(t *testing.T) {
	eachDigits(t, func(t *testing.T, nibbles bool) {
		r := rand.New(rand.NewPCG(27, 28))
		for _, code := range []byte{0x80, 0x7f, 0x00, 0xff} {
			for _, sign := range []float32{1, -1} {
				p := newPackedRows(r, nibbles, 2, 6)
				for i := range p.rows {
					for j := range p.scales {
						p.bytes[i*p.ldc+j] = code
					}
				}
				x := make([]float32, 6*PackedBlock)
				for i := range x {
					x[i] = sign
				}
				checkDigitDots(t, p, x)
			}
		}
	})
}

// checkDigitDots holds products against float64's.
func checkDigitDots(t *testing.T, p *packedRows, x []float32) {
	t.Helper()
	d, held := NewDigits(alignedDigits(p.blocks, p.nibbles), p.blocks, p.nibbles, &x[0])
	if !held {
		t.Fatal("not held")
	}
	r := rand.New(rand.NewPCG(1, 2))
	out := newFenced[float32](r, 1, p.rows, 0)
	d.Dots(&p.bytes[0], p.ldc, p.scales, out.cells[margin:][:p.rows])
	sum := func(i int, term func(x, y float64) float64) (total float64) {
		for b := range p.blocks {
			for j := range PackedBlock {
				total += term(float64(x[b*PackedBlock+j]), p.at(i, b, j))
			}
		}
		return total
	}
	out.check(t, "out", fmt.Sprintf("nibbles %v, %d rows of %d blocks", p.nibbles, p.rows, p.blocks),
		func(_, i int) float64 { return sum(i, func(x, y float64) float64 { return x * y }) },
		func(_, i int) float64 {
			// Sums of the blocks are rounded, and x is, each time by some other error.
			squares := sum(i, func(x, y float64) float64 { return x * x * y * y })
			return 8 * epsilon[float32]() * math.Sqrt(squares)
		})
}
