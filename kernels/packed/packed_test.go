package packed_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
)

var types = []kernels.DType{kernels.Int8, kernels.Int4, kernels.NF4}

// golden is a matrix as testdata/golden.py has it quantised by others.
type golden struct {
	Rows, Columns int
	Matrix        string // its SHA-256
	NF4           struct {
		Codes, Scales, Nested, Table, ScaleTable []byte
		Offset                                   float64
		Wide                                     string
	}
	Int8, Int4 struct {
		Blocks []byte
		Wide   string
	}
}

func goldens(t *testing.T) (list []golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// matrix is the one of golden.py.
func (g *golden) matrix(t *testing.T) []float32 {
	x := make([]float32, g.Rows*g.Columns)
	for i := range x {
		bits := uint32(i)*2654435761 + 12345
		bits = bits*1664525 + 1013904223
		y := float64(bits)/(1<<32) - 0.5
		y = y * y * y * (1 + float64(i)/4096)
		x[i] = float32(y)
	}
	if digest(x) != g.Matrix {
		t.Fatalf("%d×%d: the matrix is another", g.Rows, g.Columns)
	}
	return x
}

func digest(x []float32) string {
	sum := sha256.Sum256(encoded(x))
	return hex.EncodeToString(sum[:])
}

func encoded(x []float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func floats(b []byte) (x []float32) {
	for ; len(b) > 0; b = b[4:] {
		x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return x
}

// What bitsandbytes stores is widened to the same bits, and given back as it was.
func TestNF4Golden(t *testing.T) {
	for _, g := range goldens(t) {
		if !bytes.Equal(g.NF4.Table, encoded(packed.NF4Table[:])) || !bytes.Equal(g.NF4.ScaleTable, encoded(packed.NF4ScaleTable[:])) {
			t.Fatal("the tables are others")
		}
		m := packed.NF4Matrix{Codes: g.NF4.Codes, Scales: g.NF4.Scales, Nested: floats(g.NF4.Nested), Offset: float32(g.NF4.Offset)}
		r, err := packed.RowOf(kernels.NF4, g.Columns)
		if err != nil {
			t.Fatal(err)
		}
		rows := make([]byte, g.Rows*r.Bytes)
		if err := m.Rows(rows, g.Rows, g.Columns); err != nil {
			t.Fatal(err)
		}
		wide, err := packed.Widen(kernels.NF4, rows, g.Rows, g.Columns)
		if err != nil || digest(wide) != g.NF4.Wide {
			t.Errorf("%d×%d: widened to other numbers: %v", g.Rows, g.Columns, err)
		}
		again, err := packed.NF4MatrixOf(rows, g.Rows, g.Columns)
		if err != nil || !bytes.Equal(again.Codes, m.Codes) || !bytes.Equal(again.Scales, m.Scales) || !slices.Equal(again.Nested, m.Nested) || again.Offset != m.Offset {
			t.Errorf("%d×%d: given back as %+v: %v", g.Rows, g.Columns, again, err)
		}

		own, err := packed.Pack(kernels.NF4, g.matrix(t), g.Rows, g.Columns)
		if err != nil {
			t.Fatal(err)
		}
		again, err = packed.NF4MatrixOf(own, g.Rows, g.Columns)
		same := err == nil && bytes.Equal(again.Codes, m.Codes)
		if same && g.Rows*g.Columns > 64 { // the code of a single scale, which is its own mean, is multiplied by 0
			same = bytes.Equal(again.Scales, m.Scales)
		}
		if !same {
			t.Errorf("%d×%d: packed to other codes: %v", g.Rows, g.Columns, err)
		}
		// The mean of the scales is summed in another order.
		if off := math.Abs(float64(again.Offset)/g.NF4.Offset - 1); off > 0x1p-22 {
			t.Errorf("%d×%d: the offset is %v, want %v", g.Rows, g.Columns, again.Offset, g.NF4.Offset)
		}
	}
}

// Int8 and Int4 are what GGUF has as Q8_0 and Q4_0, to the bit.
func TestIntegersGolden(t *testing.T) {
	for _, g := range goldens(t) {
		for _, want := range []struct {
			dtype  kernels.DType
			blocks []byte
			wide   string
		}{{kernels.Int8, g.Int8.Blocks, g.Int8.Wide}, {kernels.Int4, g.Int4.Blocks, g.Int4.Wide}} {
			rows, err := packed.Pack(want.dtype, g.matrix(t), g.Rows, g.Columns)
			if err != nil {
				t.Fatal(err)
			}
			wide, err := packed.Widen(want.dtype, rows, g.Rows, g.Columns)
			if err != nil || digest(wide) != want.wide {
				t.Errorf("%d×%d of %v: widened to other numbers: %v", g.Rows, g.Columns, want.dtype, err)
			}
			r, err := packed.RowOf(want.dtype, g.Columns)
			if err != nil {
				t.Fatal(err)
			}
			blocks, again, n := make([]byte, len(want.blocks)), make([]byte, len(rows)), len(want.blocks)/g.Rows
			for i := range g.Rows {
				r.ToBlocks(blocks[i*n:][:n], rows[i*r.Bytes:][:r.Bytes])
				r.FromBlocks(again[i*r.Bytes:][:r.Bytes], want.blocks[i*n:][:n])
			}
			if !bytes.Equal(blocks, want.blocks) || !bytes.Equal(again, rows) {
				t.Errorf("%d×%d of %v: other blocks", g.Rows, g.Columns, want.dtype)
			}
		}
	}
}

// The bytes of a row say how many columns it has, and codes of a row begin at multiples of 16.
func TestRowOfBytes(t *testing.T) {
	for _, d := range types {
		known := map[int]bool{}
		for blocks := 1; blocks < 900; blocks++ {
			r, err := packed.RowOf(d, blocks*d.Block())
			if err != nil || r.Bytes%16 != 0 {
				t.Fatalf("%v: %d blocks: %+v, %v", d, blocks, r, err)
			}
			known[r.Bytes] = true
			if again, err := packed.RowOfBytes(d, r.Bytes); err != nil || again != r {
				t.Fatalf("%v: %d bytes are %+v, want %+v: %v", d, r.Bytes, again, r, err)
			}
		}
		for n := -1; n < 2000; n++ {
			if r, err := packed.RowOfBytes(d, n); (err == nil) != known[n] {
				t.Fatalf("%v: %d bytes are %+v, %v", d, n, r, err)
			}
		}
	}
}

// An element changes by no more than half a step of its block.
func TestPackErrors(t *testing.T) {
	steps := map[kernels.DType]float64{kernels.Int8: 1.0 / 127, kernels.Int4: 1.0 / 8, kernels.NF4: 0.31}
	r := rand.New(rand.NewPCG(5, 6))
	for _, d := range types {
		const rows, columns = 37, 320
		x := make([]float32, rows*columns)
		for i := range x {
			x[i] = float32(r.NormFloat64() * math.Exp2(float64(i%columns/64)))
		}
		clear(x[64:128]) // blocks of zeros
		bytes, err := packed.Pack(d, x, rows, columns)
		if err != nil {
			t.Fatal(err)
		}
		wide, err := packed.Widen(d, bytes, rows, columns)
		if err != nil {
			t.Fatal(err)
		}
		for b := 0; b < len(x); b += d.Block() {
			most := 0.0
			for _, v := range x[b:][:d.Block()] {
				most = max(most, math.Abs(float64(v)))
			}
			for i, v := range x[b:][:d.Block()] {
				// A scale is off by a step of a float16, or of the codes that it has itself.
				bound := most * (steps[d]/2 + 0x1p-10)
				if d == kernels.NF4 {
					bound = most*(steps[d]/2) + 0.1*32
				}
				if d == kernels.Int4 {
					bound = most * (steps[d] + 0x1p-10) // 8 is no number of it
				}
				if off := math.Abs(float64(v) - float64(wide[b+i])); !(off <= bound) {
					t.Fatalf("%v: element %d is %v, packed %v, off by more than %v", d, b+i, v, wide[b+i], bound)
				}
			}
		}
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			x[11*columns+3] = bad
			if _, err := packed.Pack(d, x, rows, columns); err == nil || err.Error() != "row 11: an element is not finite" {
				t.Errorf("%v: packing %v: %v", d, bad, err)
			}
		}
	}
	for want, err := range map[string]error{
		"72 columns cannot be int8 in blocks, they need to be a multiple of 32": second(packed.RowOf(kernels.Int8, 72)),
		"96 columns cannot be NF4 in blocks, they need to be a multiple of 64":  second(packed.RowOf(kernels.NF4, 96)),
		"float32 is not a type of packed matrices":                              second(packed.RowOf(kernels.F32, 32)),
		"rows of 33 bytes are no rows of int4 in blocks":                        second(packed.RowOfBytes(kernels.Int4, 33)),
		"2 rows of 32 columns are 64 elements, there are 3":                     second(packed.Pack(kernels.Int8, make([]float32, 3), 2, 32)),
		"2 rows of 32 columns of int8 in blocks take 96 bytes, there are 3":     second(packed.Widen(kernels.Int8, make([]byte, 3), 2, 32)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }
