package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// Where few rows of A meet the rows of a packed matrix, its codes are multiplied as they are if the
// processor has instructions for that, by rows of A as digits, or else widened in registers. All
// other products widen it while panels of it are packed, and go on as those of float32 do.

// packedMatrix is a packed B, or the transpose of one.
type packedMatrix struct {
	packed.Row
	data      unsafe.Pointer
	table     *simd.PackedTable // nil for codes of eight bits
	codeBytes int               // of a group
	// acrossRows says that its rows are the columns of B.
	acrossRows bool
}

func newPackedMatrix(t kernels.Tensor) (*packedMatrix, error) {
	m := &packedMatrix{data: t.Data, acrossRows: t.Strides[0] == 1}
	columns := t.Shape[1]
	if m.acrossRows {
		columns = t.Shape[0]
	}
	var err error
	if m.Row, err = packed.RowOf(t.DType, columns); err != nil {
		return nil, err
	}
	if numbers, found := m.Table(); found {
		m.table = simd.NewPackedTable(numbers)
	}
	m.codeBytes = m.Scales / (columns / packed.Group)
	return m, nil
}

// fewPackedRows is the number of rows of A for which widening a row of B again costs less than
// packing it, and fewDigitRows that for which multiplying its codes again does.
const fewPackedRows, fewDigitRows = 4, 12

// hasDigits reports whether few rows of A are multiplied as digits.
func (m *packedMatrix) hasDigits() bool {
	return m.DType != kernels.NF4 && simd.HasDigits(m.DType == kernels.Int4)
}

// multiplyPacked computes a product whose B is packed.
func (b *Backend) multiplyPacked(m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) error {
	matrix, err := newPackedMatrix(m.B)
	if err != nil {
		return callError("matmul", err)
	}
	h := halves{b: b}
	defer h.round()
	wide := *m
	wide.A, wide.Bias = h.read(m.A), h.read(m.Bias)
	if epilogue.Pre = h.write(epilogue.Pre); m.Accumulate {
		c = h.update(c)
	} else {
		c = h.write(c)
	}
	x := newMultiplication[float32](&wide, epilogue, c)
	x.packed = matrix
	few := fewPackedRows
	if matrix.hasDigits() {
		few = fewDigitRows
	}
	if matrix.acrossRows && x.items == 1 && x.rows <= few && x.rows*x.columns > 0 {
		x.packedDots(b)
		return nil
	}
	x.choose()
	x.run(b)
	return nil
}

// packedAtOnce is how many rows of B have their scales widened before they are multiplied: those
// that the kernel has asked for while it multiplied the ones before.
const packedAtOnce = 4

// packedDots computes C of few rows: each element is a row of A times one of the matrix.
func (x *multiplication[T]) packedDots(b *Backend) {
	const task = 1 << 17 // numbers of B that a task reads at least
	m, groups := x.packed, x.depth/packed.Group
	width := max(packedAtOnce, task/x.depth/packedAtOnce*packedAtOnce)
	work := float64((2*x.rows + flopsPerElement) * x.depth * x.columns)
	left := x.newPackedLeft()
	defer left.memory.release()
	b.inRuns(ceilDiv(x.columns, width), work, func(claim func() (int, bool)) {
		lds := roundUp(groups, simd.ScalesTogether)
		memory := newWorkspace(bytesFor[float32](packedAtOnce) + bytesFor[float32](packedAtOnce*lds))
		defer memory.release()
		dots, scales := take[float32](memory, packedAtOnce), take[float32](memory, packedAtOnce*lds)
		c := x.c.item(0)
		for task, ok := claim(); ok; task, ok = claim() {
			r := region{rows: x.rows, column: task * width, columns: min(width, x.columns-task*width)}
			for j := r.column; j < r.column+r.columns; j += packedAtOnce {
				n := min(packedAtOnce, r.column+r.columns-j)
				if left.widens {
					m.scalesOfRows(scales, lds, j, n)
				}
				for i := range x.rows {
					if left.held[i] {
						left.digits[i].Dots(m.codes(j, 0), m.Bytes, m.Row.Scales, dots[:n])
					} else {
						simd.PackedDots(groups, m.codes(j, 0), m.Bytes, m.table, &scales[0], lds, left.rows[i], dots[:n])
					}
					store(1, n, c.at(i, j), 0, (*T)(unsafe.Pointer(&dots[0])), 0, x.Accumulate)
				}
			}
			x.finish(r, 0, x.rows)
		}
	})
}

// packedLeft is a few rows of A, to be multiplied by those of a packed matrix.
type packedLeft struct {
	memory *workspace
	rows   [fewDigitRows]*float32
	digits [fewDigitRows]simd.Digits
	held   [fewDigitRows]bool // digits hold the row
	widens bool               // of some row they do not
}

func (x *multiplication[T]) newPackedLeft() *packedLeft {
	m, groups := x.packed, x.depth/packed.Group
	asDigits, nibbles := m.hasDigits(), m.table != nil
	words := simd.DigitWords(groups, nibbles)
	bytes := x.rows * bytesFor[T](x.depth)
	if asDigits {
		bytes += x.rows * bytesFor[int32](words)
	}
	left := &packedLeft{memory: newWorkspace(bytes)}
	a := x.a.item(0)
	for i := range x.rows {
		row := gather(take[T](left.memory, x.depth), a.data[i*a.rowStep:], a.columnStep)
		left.rows[i] = (*float32)(unsafe.Pointer(&row[0]))
		if asDigits {
			memory := take[int32](left.memory, words)
			left.digits[i], left.held[i] = simd.NewDigits(memory, groups, nibbles, left.rows[i])
		}
		left.widens = left.widens || !left.held[i]
	}
	return left
}

// codes are those of a row from a group on.
func (m *packedMatrix) codes(row, group int) *byte {
	return (*byte)(unsafe.Add(m.data, row*m.Bytes+group*m.codeBytes))
}

// scales gives the scales of a row from a group on.
func (m *packedMatrix) scales(dst []float32, row, group int) {
	at := unsafe.Add(m.data, row*m.Bytes)
	if m.DType == kernels.NF4 {
		m.ReadScales(dst, unsafe.Slice((*byte)(at), m.Bytes), group)
		return
	}
	one, from := float32(1), (*uint16)(unsafe.Add(at, m.Row.Scales+2*group))
	simd.HalfCombine(kernels.F16, 1, len(dst), from, len(dst), &one, 1, &dst[0], false)
}

// scalesOfRows gives all scales of some rows, lds numbers apart.
func (m *packedMatrix) scalesOfRows(dst []float32, lds, row, rows int) {
	if m.DType == kernels.NF4 {
		for i := range rows {
			m.scales(dst[i*lds:][:m.Columns/packed.Group], row+i, 0)
		}
		return
	}
	// What a row has behind its scales makes them whole vectors.
	simd.PackedScales(rows, lds, (*byte)(unsafe.Add(m.data, row*m.Bytes+m.Row.Scales)), m.Bytes, &dst[0])
}

// groupSpan is the same columns of some rows: whole groups, the first of which may begin before
// them.
type groupSpan struct {
	from, groups int // in groups
	skip         int // columns of the first
}

func groupSpanOf(column, columns int) groupSpan {
	from := column / packed.Group
	return groupSpan{from, ceilDiv(column+columns, packed.Group) - from, column % packed.Group}
}

// width is the elements of a row.
func (s groupSpan) width() int { return s.groups * packed.Group }

// widen writes a row's elements of a span.
func (m *packedMatrix) widen(dst, scales []float32, row int, s groupSpan) {
	m.scales(scales[:s.groups], row, s.from)
	simd.PackedWiden(s.groups, &dst[0], m.codes(row, s.from), m.table, &scales[0])
}

// panels packs the rows [from, from+depth) of B, columns of it from one on, as packPanels does.
func (m *packedMatrix) panels(dst []float32, from, depth, column, columns int) {
	const together = 8 // rows that are widened before they are copied
	panel := simd.Panel[float32]()
	s, rows := groupSpanOf(column, columns), together
	if m.acrossRows {
		s, rows = groupSpanOf(from, depth), panel
	}
	memory := newWorkspace(bytesFor[float32](rows*s.width()) + bytesFor[float32](s.groups))
	defer memory.release()
	wide, scales := take[float32](memory, rows*s.width()), take[float32](memory, s.groups)
	if m.acrossRows {
		for j := 0; j < columns; j += panel {
			n := min(panel, columns-j)
			for i := range n {
				m.widen(wide[i*s.width():], scales, column+j+i, s)
			}
			simd.PackTransposed(dst[j*depth:], wide[s.skip:], n, depth, s.width())
		}
		return
	}
	if rest := columns % panel; rest > 0 {
		clear(dst[(columns-rest)*depth:][:depth*panel]) // also what lies beyond the last vector, for a denormal there would slow the product
	}
	for p := 0; p < depth; p += together {
		n := min(together, depth-p)
		for i := range n {
			m.widen(wide[i*s.width():], scales, from+p+i, s)
		}
		for j := 0; j < columns; j += panel {
			copyTile(n, min(panel, columns-j), &dst[j*depth+p*panel], panel, &wide[s.skip+j], s.width())
		}
	}
}
