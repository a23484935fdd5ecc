package packed

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// NF4Table is what the codes of NF4 stand for: sixteen quantiles of a normal distribution, the
// outermost of which are −1 and 1.
var NF4Table = [16]float32{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
	-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}

// NF4ScaleTable is what the codes of NF4's scales stand for, of each 256 of which the largest
// magnitude is a float32: numbers whose distance grows with their size.
var NF4ScaleTable = func() (table [256]float32) {
	const exponents = 7
	at, power := 0, 0.0
	for i := range exponents {
		n := 1 << i
		step := (1 - float32(0.1)) / float32(n)
		boundary := func(j int) float32 {
			if j < (n+1)/2 {
				return float32(float64(float32(0.1)) + float64(step)*float64(j))
			}
			return float32(1 - float64(step)*float64(n-j))
		}
		power = math.Pow(10, float64(i-exponents+1))
		for j := range n {
			mean := float32(power) * ((boundary(j) + boundary(j+1)) / 2)
			table[at], table[at+1] = mean, -mean
			at += 2
		}
	}
	table[at], table[at+1] = 0, 1
	slices.Sort(table[:])
	return table
}()

// NF4Matrix is a matrix as bitsandbytes stores it: row-major, whatever the rows are.
type NF4Matrix struct {
	Codes  []byte    // the first of two elements in the upper half of a byte
	Scales []byte    // codes of [NF4ScaleTable], one for each 64 elements
	Nested []float32 // what they are multiplied by, one for each 256 of them
	Offset float32   // what is added
}

const (
	nf4Block  = 64
	nf4Nested = 256
)

// nf4Floats is how many float32 a row of so many blocks has before the codes of its scales: the
// offset, where in a group of scales the row begins, and the factors of all groups that the row may
// have scales of.
func nf4Floats(blocks int) int { return 2 + (blocks+nf4Nested-2)/nf4Nested + 1 }

// nf4Scales is ReadScales.
func (r Row) nf4Scales(dst []float32, row []byte, from int) {
	const perScale = nf4Block / Group
	float := func(i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(row[r.Scales+4*i:]))
	}
	offset, phase := float(0), int(binary.LittleEndian.Uint32(row[r.Scales+4:]))%nf4Nested
	codes := row[r.Scales+4*nf4Floats(r.Columns/nf4Block):]
	for i := range dst {
		block := (from + i) / perScale
		factor := NF4ScaleTable[codes[block]] * float(2+(phase+block)/nf4Nested)
		dst[i] = factor + offset
	}
}

// packNF4 makes the rows of a matrix.
func (r Row) packNF4(bytes []byte, matrix []float32, rows int) error {
	if len(matrix) == 0 {
		return nil
	}
	perRow := r.Columns / nf4Block
	m := NF4Matrix{Codes: make([]byte, len(matrix)/2)}
	scales := make([]float32, len(matrix)/nf4Block)
	err := eachRow(rows, func(i int) error {
		for b := i * perRow; b < (i+1)*perRow; b++ {
			block := matrix[b*nf4Block:][:nf4Block]
			most, err := greatest(block)
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			scales[b] = float32(math.Abs(float64(most)))
			inverse := 1 / max(scales[b], 1e-38)
			for j := 0; j < nf4Block; j += 2 {
				m.Codes[(b*nf4Block+j)/2] = nf4Code(block[j]*inverse)<<4 | nf4Code(block[j+1]*inverse)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.packScales(scales)
	return m.Rows(bytes, rows, r.Columns)
}

// nf4Code is the code nearest to a number from -1 to 1, the lower one where two are as near. The
// largest number may lie above 1 by its rounding.
func nf4Code(x float32) byte {
	code := nf4Least[int((x+1)*nf4Steps)]
	if x > nf4Middles[code] {
		code++
	}
	return code
}

// nf4Steps is how finely nf4Least divides a unit: no two middles lie within two steps.
const nf4Steps = 32

// nf4Middles lie halfway between a code's number and the next one's. The last is never exceeded.
var nf4Middles = func() (m [16]float32) {
	for code := range m[:15] {
		m[code] = (NF4Table[code] + NF4Table[code+1]) / 2
	}
	m[15] = math.MaxFloat32
	return m
}()

// nf4Least has the lowest code of the numbers in each step from -1 on. It begins half a step early,
// for what rounding may do to a number's step.
var nf4Least = func() (least [2*nf4Steps + 1]byte) {
	for i := range least {
		begin := (float32(i)-0.5)/nf4Steps - 1
		for nf4Middles[least[i]] < begin {
			least[i]++
		}
	}
	return least
}()

// packScales makes the codes of scales: around their mean, which is the offset.
func (m *NF4Matrix) packScales(scales []float32) {
	sum := 0.0
	for _, s := range scales {
		sum += float64(s)
	}
	m.Offset = float32(sum / float64(len(scales)))
	m.Scales = make([]byte, len(scales))
	for from := 0; from < len(scales); from += nf4Nested {
		group := scales[from:min(from+nf4Nested, len(scales))]
		most := float32(0)
		for _, s := range group {
			most = max(most, float32(math.Abs(float64(s-m.Offset))))
		}
		m.Nested = append(m.Nested, most)
		for i, s := range group {
			if most == 0 {
				m.Scales[from+i] = nearestScale(0)
			} else {
				m.Scales[from+i] = nearestScale((s - m.Offset) / most)
			}
		}
	}
}

// nearestScale is the code of the nearest number of [NF4ScaleTable], of two that are equally near
// the smaller.
func nearestScale(x float32) byte {
	i, found := slices.BinarySearch(NF4ScaleTable[:], x)
	switch {
	case found || i == 0:
		return byte(i)
	case i == len(NF4ScaleTable):
		return byte(i - 1)
	}
	if below, above := x-NF4ScaleTable[i-1], NF4ScaleTable[i]-x; below <= above {
		return byte(i - 1)
	}
	return byte(i)
}

// Rows makes the rows of a packed matrix.
func (m *NF4Matrix) Rows(bytes []byte, rows, columns int) error {
	r, err := RowOf(kernels.NF4, columns)
	if err != nil {
		return err
	}
	perRow := columns / nf4Block
	scales := rows * perRow
	if nested := (scales + nf4Nested - 1) / nf4Nested; len(m.Codes) != rows*columns/2 || len(m.Scales) != scales || len(m.Nested) != nested ||
		len(bytes) != rows*r.Bytes {
		return fmt.Errorf("%d bytes of codes, %d scales and %d factors of them are no matrix of %d rows and %d columns, which has %d, %d and %d",
			len(m.Codes), len(m.Scales), len(m.Nested), rows, columns, rows*columns/2, scales, nested)
	}
	return eachRow(rows, func(i int) error {
		row := bytes[i*r.Bytes:][:r.Bytes]
		from := m.Codes[i*columns/2:][:columns/2]
		for g := 0; g < columns/2; g += Group / 2 {
			exchangeNibbles(row[g:][:Group/2], from[g:][:Group/2], true)
		}
		first, floats := i*perRow, nf4Floats(perRow)
		put := func(i int, bits uint32) { binary.LittleEndian.PutUint32(row[r.Scales+4*i:], bits) }
		put(0, math.Float32bits(m.Offset))
		put(1, uint32(first%nf4Nested))
		for g := first / nf4Nested; g <= (first+perRow-1)/nf4Nested; g++ {
			put(2+g-first/nf4Nested, math.Float32bits(m.Nested[g]))
		}
		copy(row[r.Scales+4*floats:], m.Scales[first:][:perRow])
		return nil
	})
}

// NF4MatrixOf is the inverse of [NF4Matrix.Rows].
func NF4MatrixOf(bytes []byte, rows, columns int) (*NF4Matrix, error) {
	r, err := RowOf(kernels.NF4, columns)
	if err == nil && (rows < 1 || len(bytes) != rows*r.Bytes) {
		err = fmt.Errorf("%d bytes are no matrix of %d rows and %d columns", len(bytes), rows, columns)
	}
	if err != nil {
		return nil, err
	}
	perRow := columns / nf4Block
	m := &NF4Matrix{Codes: make([]byte, rows*columns/2), Scales: make([]byte, rows*perRow), Nested: make([]float32, (rows*perRow+nf4Nested-1)/nf4Nested)}
	for i := range rows {
		row := bytes[i*r.Bytes:][:r.Bytes]
		to := m.Codes[i*columns/2:][:columns/2]
		for g := 0; g < columns/2; g += Group / 2 {
			exchangeNibbles(to[g:][:Group/2], row[g:][:Group/2], false)
		}
		first, floats := i*perRow, nf4Floats(perRow)
		float := func(i int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(row[r.Scales+4*i:]))
		}
		m.Offset = float(0)
		for g := first / nf4Nested; g <= (first+perRow-1)/nf4Nested; g++ {
			m.Nested[g] = float(2 + g - first/nf4Nested)
		}
		copy(m.Scales[first:], row[r.Scales+4*floats:][:perRow])
	}
	return m, nil
}

// exchangeNibbles goes between codes of 32 elements of which two neighbours share a byte, the first
// in its upper half, and those of which j and j+16 do, the first in the lower half.
func exchangeNibbles(to, from []byte, split bool) {
	for j := range Group / 2 {
		if split {
			first, second := from[j/2]>>4, from[(j+16)/2]>>4
			if j%2 == 1 {
				first, second = from[j/2]&15, from[(j+16)/2]&15
			}
			to[j] = first | second<<4
			continue
		}
		element := func(e int) byte {
			if e < 16 {
				return from[e] & 15
			}
			return from[e-16] >> 4
		}
		to[j] = element(2*j)<<4 | element(2*j+1)
	}
}
