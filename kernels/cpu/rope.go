package cpu

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// RoPEForward rotates the pairs of each row by the angles of its position.
func (b *Backend) RoPEForward(r *kernels.RoPE, x, y kernels.Tensor) error {
	return b.rotate("rope forward", r, x, y, 1)
}

// RoPEBackward rotates them back.
func (b *Backend) RoPEBackward(r *kernels.RoPE, dy, dx kernels.Tensor) error {
	return b.rotate("rope backward", r, dy, dx, -1)
}

func (b *Backend) rotate(kernel string, r *kernels.RoPE, x, y kernels.Tensor, direction float64) (err error) {
	defer catch(kernel, &err)
	check := r.CheckForward
	if direction < 0 {
		check = r.CheckBackward
	}
	if err := checked(kernel, check(x, y)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, rotate[float32], rotate[float64])(b, r, x, y, direction)
	return nil
}

// rotate goes through the positions of a batch item some at a time, and through the heads at each:
// their angles stay in the first-level cache, and heads that lie side by side are read in the order
// of memory.
func rotate[T kernels.Float](b *Backend, r *kernels.RoPE, x, y kernels.Tensor, direction float64) {
	batch, heads, length, d := x.Shape[0], x.Shape[1], x.Shape[2], x.Shape[3]
	if x.Elements() == 0 {
		return
	}
	dim := r.Dim(d)
	var positions *positions[T]
	var table angles[T]
	if r.Positions.IsSet() {
		positions = newPositions[T](r, dim, direction)
		defer positions.memory.release()
	} else {
		table = anglesOf[T](*r, length, dim, direction)
	}
	perTask := b.rowsPerTask(batch*length, heads*d)
	perItem := ceilDiv(length, perTask)
	b.each(batch*perItem, elementFLOPs*float64(x.Elements()), func(task int) {
		item, first := task/perItem, task%perItem*perTask
		n := min(perTask, length-first)
		table, at := table, first
		if positions != nil {
			memory := newWorkspace(2 * bytesFor[T](n*positions.width))
			defer memory.release()
			table, at = positions.angles(memory, item*length+first, n), 0
		}
		cos, sin := &table.cos[at*table.width], &table.sin[at*table.width]
		for head := range heads {
			from, to := matrix[T](x, item, head, first), matrix[T](y, item, head, first)
			if r.Pairing == kernels.HalfSplit {
				simd.Rotate(n, dim/2, to.at(0), offset(to.at(0), dim/2), to.stride,
					from.at(0), offset(from.at(0), dim/2), from.stride, cos, sin, table.width)
			} else {
				simd.RotateNeighbours(n, dim, to.at(0), to.stride, from.at(0), from.stride, cos, sin, table.width)
			}
			if dim < d {
				for i := range n {
					copy(unsafe.Slice(to.at(i), d)[dim:], unsafe.Slice(from.at(i), d)[dim:])
				}
			}
		}
	})
}

// angles are the cosines and sines of positions, a row each, as the vector kernel of the pairing
// wants them.
type angles[T kernels.Float] struct {
	cos, sin []T
	width    int
}

// anglesKey is all that a table of angles depends on.
type anglesKey struct {
	r           kernels.RoPE
	length, dim int
	direction   float64
	dtype       kernels.DType
}

func (k *anglesKey) equal(other *anglesKey) bool {
	return k.length == other.length && k.dim == other.dim && k.direction == other.direction && k.dtype == other.dtype &&
		k.r.Equal(&other.r)
}

// recentAngles are the tables of the last few problems. A model has one or two, and asks for them
// in every layer; one costs about as much as rotating a dozen heads.
var recentAngles struct {
	sync.Mutex
	keys   [8]anglesKey
	tables [8]any
	next   int
}

// smallTable is the number of angles up to which a table is made rather than remembered, such as
// those of a decoder that asks for one new position a step.
const smallTable = 1 << 10

func anglesOf[T kernels.Float](r kernels.RoPE, length, dim int, direction float64) angles[T] {
	if length*dim/2 <= smallTable {
		return newAngles[T](r, length, dim, direction)
	}
	key := anglesKey{r, length, dim, direction, kernels.DTypeOf[T]()}
	recent := &recentAngles
	recent.Lock()
	defer recent.Unlock()
	for i, k := range recent.keys {
		if k.equal(&key) {
			return recent.tables[i].(angles[T])
		}
	}
	table := newAngles[T](r, length, dim, direction)
	recent.keys[recent.next], recent.tables[recent.next] = key, table
	recent.next = (recent.next + 1) % len(recent.keys)
	return table
}

func newAngles[T kernels.Float](r kernels.RoPE, length, dim int, direction float64) angles[T] {
	width := anglesWidth(&r, dim)
	a := angles[T]{make([]T, length*width), make([]T, length*width), width}
	frequencies := frequenciesOf(&r, dim, direction)
	for t := range length {
		a.set(&r, frequencies, t, t)
	}
	return a
}

// anglesWidth is how many cosines the vector kernel of the pairing wants of a row.
func anglesWidth(r *kernels.RoPE, dim int) int {
	if r.Pairing == kernels.Interleaved {
		return dim
	}
	return dim / 2
}

// frequenciesOf are the angles from one position to the next, one a pair.
func frequenciesOf(r *kernels.RoPE, dim int, direction float64) []float64 {
	list := make([]float64, dim/2)
	for pair := range list {
		list[pair] = direction * r.Frequency(pair, dim)
	}
	return list
}

// set writes a row of a position.
func (a *angles[T]) set(r *kernels.RoPE, frequencies []float64, row, position int) {
	amplitude := r.EffectiveAmplitude()
	for pair, frequency := range frequencies {
		sin, cos := math.Sincos(float64(r.Offset+position) * frequency)
		sin, cos = amplitude*sin, amplitude*cos
		if r.Pairing == kernels.Interleaved {
			at := row*a.width + 2*pair
			a.cos[at], a.cos[at+1] = T(cos), T(cos)
			a.sin[at], a.sin[at+1] = T(-sin), T(sin)
		} else {
			a.cos[row*a.width+pair], a.sin[row*a.width+pair] = T(cos), T(sin)
		}
	}
}

// positions are those of rows that have one each, and where their angles come from: from a table,
// unless they go far beyond the number of rows.
type positions[T kernels.Float] struct {
	r           *kernels.RoPE
	list        []int64
	width       int
	table       angles[T] // of all positions up to the greatest; or without elements
	frequencies []float64
	memory      *workspace
}

func newPositions[T kernels.Float](r *kernels.RoPE, dim int, direction float64) *positions[T] {
	n := r.Positions.Elements()
	p := &positions[T]{r: r, width: anglesWidth(r, dim), memory: newWorkspace(bytesFor[int64](n))}
	p.list = take[int64](p.memory, n)
	copyIndices(p.list, r.Positions)
	if least, most := slices.Min(p.list), slices.Max(p.list); least >= 0 && most < int64(4*n+smallTable) {
		whole := *r
		whole.Positions = kernels.Tensor{}
		p.table = anglesOf[T](whole, 1<<bits.Len64(uint64(most)), dim, direction)
	} else {
		p.frequencies = frequenciesOf(r, dim, direction)
	}
	return p
}

// angles puts those of n rows side by side.
func (p *positions[T]) angles(memory *workspace, first, n int) angles[T] {
	a := angles[T]{take[T](memory, n*p.width), take[T](memory, n*p.width), p.width}
	for row, position := range p.list[first:][:n] {
		if p.frequencies != nil {
			a.set(p.r, p.frequencies, row, int(position))
			continue
		}
		at := int(position) * p.width
		copy(a.cos[row*p.width:], p.table.cos[at:][:p.width])
		copy(a.sin[row*p.width:], p.table.sin[at:][:p.width])
	}
	return a
}
