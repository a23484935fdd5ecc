//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// factoredStep is FactoredStep in src/optimizer.cu.
type factoredStep struct {
	update
	matrices, tiles, lines, tensors, scratch address
	ofWeights, ofDirections, ofRows, rates   int64
	beta2Decay, clip                         float64
}

// factored is Factored there: a matrix and its means, and the weight's copy in 16 bits.
type factored struct {
	w, g, rows, columns, v writable
	factoredCopy
	height, width     int32
	sums              [2]int64 // of rows and of columns
	firstLines, lines int32
	tensor, _         int32
}

type factoredCopy struct {
	copy                                 writable
	first, copyColumns, stride, alongRow uint32
	element                              element
	_                                    int32
}

// piece is Piece there, and whole is Whole.
type piece struct{ matrix, row, column, _ int32 }

type whole struct {
	elements         int64
	firstTile, tiles int32
}

// factorTable is what the kernels of Adafactor are told of the tensors.
type factorTable struct {
	matrices     []factored
	tiles, lines []piece
	tensors      []whole
	numbers      int64 // in scratch memory
}

// Adafactor updates weights and the means of their gradients' squares.
func (d *Device) Adafactor(o kernels.Adafactor, w, g, r, c, v []kernels.Tensor) error {
	const name = "adafactor"
	if err := o.Check(w, g, r, c, v); err != nil {
		return d.callError(name, err)
	}
	if o.Control.IsSet() {
		if err := d.checkHere(name, "control", o.Control); err != nil {
			return err
		}
	}
	copies := d.writtenCopies(w)
	t, err := d.newFactorTable(name, o, copies, w, g, r, c, v)
	if err != nil || len(t.tiles) == 0 {
		return err
	}
	a := factoredStep{beta2Decay: o.Beta2Decay, clip: o.Clip}
	a.rate, a.weightDecay, a.scale, a.clear = o.LearningRate, o.WeightDecay, o.EffectiveScale(), flag(o.ClearGradients)
	a.epsilon, a.step = o.Epsilon, int32(o.Step)
	if o.Control.IsSet() {
		a.control = read(o.Control)
	}
	a.ofWeights = t.numbers
	a.ofDirections = a.ofWeights + int64(len(t.tiles))
	a.ofRows = a.ofDirections + int64(len(t.tiles))
	a.rates = a.ofRows + int64(len(t.lines))
	scratch, err := d.scratch(8 * int(a.rates+int64(len(t.tensors))))
	if err != nil {
		return d.callError(name, err)
	}
	defer scratch.Free()
	a.scratch = scratch.At
	owner, err := d.queue().Table("adafactor: "+bytesOf(t.matrices), t.contents) // the matrices say all the rest
	if err != nil {
		return d.callError(name, err)
	}
	a.matrices = owner.At
	a.tiles = a.matrices + address(len(t.matrices))*address(unsafe.Sizeof(factored{}))
	a.lines = a.tiles + address(len(t.tiles))*address(unsafe.Sizeof(piece{}))
	a.tensors = a.lines + address(len(t.lines))*address(unsafe.Sizeof(piece{}))
	for _, l := range []struct {
		entry  string
		blocks int
	}{
		{"adafactor_squares", len(t.tiles)}, {"adafactor_means", len(t.lines)}, {"adafactor_directions", len(t.tiles)},
		{"adafactor_rates", len(t.tensors)}, {"adafactor", len(t.tiles)},
	} {
		if l.blocks == 0 { // vectors alone
			continue
		}
		if err := d.launchOptimizer(l.entry, l.blocks, unsafe.Pointer(&a)); err != nil {
			return err
		}
	}
	d.stayFresh(copies)
	runtime.KeepAlive(owner)
	runtime.KeepAlive([][]kernels.Tensor{w, g, r, c, v})
	runtime.KeepAlive(o.Control.Owner)
	return nil
}

// newFactorTable cuts checked tensors into matrices, tiles and lines.
func (d *Device) newFactorTable(name string, o kernels.Adafactor, copies []writtenCopy, w, g, r, c, v []kernels.Tensor) (t factorTable, err error) {
	for i := range w {
		if w[i].DType != kernels.F32 {
			return t, kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("%s of %v", name, w[i].DType)}
		}
		var all [5]writable
		for k, x := range []kernels.Tensor{w[i], g[i], r[i], c[i], v[i]} {
			if !x.IsSet() {
				continue
			}
			if err := d.checkHere(name, "a tensor", x); err != nil {
				return t, err
			}
			all[k] = written(x)
		}
		if w[i].Elements() == 0 {
			continue
		}
		m := factored{w: all[0], g: all[1], rows: all[2], columns: all[3], v: all[4]}
		if of := copies[i].of; of != nil {
			m.factoredCopy = factoredCopy{written(of.copy), copies[i].first, copies[i].columns, copies[i].stride, copies[i].alongRow, elementOf(of.copy.DType), 0}
		}
		count, rows, columns := o.Matrices(w[i].Shape)
		m.height, m.width = int32(rows), int32(columns)
		t.add(m, count)
	}
	return t, nil
}

// add takes a tensor that is a number of matrices like m, its first.
func (t *factorTable) add(m factored, count int) {
	const down, across, lines, size = 64, 256, 32, 4 // Down, Across and Lines in src/optimizer.cu; bytes of a float32
	rows, columns := m.height, m.width
	elements := int64(rows) * int64(columns)
	all := whole{elements: elements * int64(count), firstTile: int32(len(t.tiles))}
	m.tensor = int32(len(t.tensors))
	for range count {
		number := int32(len(t.matrices))
		for row := int32(0); row < rows; row += down {
			for column := int32(0); column < columns; column += across {
				t.tiles = append(t.tiles, piece{matrix: number, row: row, column: column})
			}
		}
		if m.v == 0 {
			m.sums[0] = t.numbers
			m.sums[1] = m.sums[0] + int64((columns+across-1)/across)*int64(rows)
			t.numbers = m.sums[1] + int64((rows+down-1)/down)*int64(columns)
			m.firstLines = int32(len(t.lines))
			for first := int32(0); first < rows+columns; first += lines {
				t.lines = append(t.lines, piece{matrix: number, row: first})
			}
			m.lines = int32(len(t.lines)) - m.firstLines
		}
		t.matrices = append(t.matrices, m)
		m.w, m.g = m.w+writable(size*elements), m.g+writable(size*elements)
		m.rows, m.columns = m.rows+writable(size*rows), m.columns+writable(size*columns)
		m.first += uint32(elements)
	}
	all.tiles = int32(len(t.tiles)) - all.firstTile
	t.tensors = append(t.tensors, all)
}

// contents is the table as the device reads it.
func (t *factorTable) contents() []byte {
	return []byte(bytesOf(t.matrices) + bytesOf(t.tiles) + bytesOf(t.lines) + bytesOf(t.tensors))
}
