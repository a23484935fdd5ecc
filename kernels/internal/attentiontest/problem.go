package attentiontest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Problem is a case with values, and room for everything that the kernels compute.
type Problem[T kernels.Float] struct {
	Case
	kernels.Attention
	DO, DLSE kernels.Tensor // DLSE is left out unless the case has [DLSE]

	Outputs
	inputs, outputs       []*buffer[T]
	inputsBefore          [][]T
	expected              *expected                          // nil until the first Check
	chosen                func(sequence, head, row int) bool // nil: all
	random                *rand.Rand
	rowSequence, rowOfSeq []int // of each row of the length axis, when sequences are packed
}

// Outputs is where the kernels write.
type Outputs struct {
	O, LSE, Delta kernels.Tensor
	DQ, DK, DV    kernels.Tensor
	DBias, DSinks kernels.Tensor
	DTables       []kernels.Tensor
}

// New gives a case random values, of about unit variance.
func New[T kernels.Float](c Case) *Problem[T] {
	p := &Problem[T]{Case: c, random: rand.New(rand.NewPCG(c.Seed, 11))}
	var o settings
	for _, option := range c.Options {
		option.set(&o)
	}
	p.Attention = o.Attention
	p.Attention.QLens, p.Attention.KVLens, p.Attention.KVLengths = c.QLens, c.KVLens, c.KVLengths

	input, output := p.allocator(&p.inputs), p.allocator(&p.outputs)
	p.Q, p.K, p.V = c.Layout.three(input, c, false)
	p.DO = c.Layout.one(input, c.Batch, c.Heads, c.Sq, c.Dv)
	p.O = c.Layout.one(output, c.Batch, c.Heads, c.Sq, c.Dv)
	p.LSE, p.Delta = output(c.Batch, c.Heads, c.Sq), output(c.Batch, c.Heads, c.Sq)
	p.DQ, p.DK, p.DV = c.Layout.three(output, c, true)
	if o.bias != nil {
		p.Bias, p.DBias = p.newBias(*o.bias, o.columns, input, output)
	}
	if o.sinks {
		p.Attention.Sinks, p.DSinks = input(c.Heads), output(c.Heads)
	}
	if o.dLSE {
		p.DLSE = input(c.Batch, c.Heads, c.Sq)
	}
	p.compile(&o, input, output)
	for _, b := range p.inputs {
		const period = 1_000_003 // a prime, so that no axis repeats; drawing the values of a large bias takes longer than its kernels
		for i := range min(len(b.data), period) {
			b.data[i] = T(p.random.NormFloat64())
		}
		for i := period; i < len(b.data); i += period {
			copy(b.data[i:], b.data[:period])
		}
	}
	if o.alibi {
		p.Attention.ALiBi = make([]float64, c.Heads)
		for h := range p.Attention.ALiBi {
			p.Attention.ALiBi[h] = math.Pow(2, -8*float64(h+1)/float64(c.Heads))
			if len(o.slopes) > 0 {
				p.Attention.ALiBi[h] = o.slopes[h%len(o.slopes)]
			}
		}
	}
	if o.place != nil {
		for n := range p.Sequences() {
			p.Places = append(p.Places, kernels.Place{Sequence: o.place.Sequence + 2*n, Row: o.place.Row + 5*n, Column: o.place.Column + 3*n})
		}
	}
	if o.sinkValue != nil {
		sinks := kernels.Host[T](p.Attention.Sinks)
		for h := range sinks {
			sinks[h] = T(*o.sinkValue)
		}
	}
	if o.masked > 0 {
		p.maskBias(o.masked)
	}
	if o.padding != 0 {
		p.padBias(o.padding)
	}
	p.chooseRows()
	for _, b := range p.inputs {
		p.inputsBefore = append(p.inputsBefore, slices.Clone(b.data))
	}
	return p
}

// allocator makes row-major tensors, each in a buffer of its own.
func (p *Problem[T]) allocator(list *[]*buffer[T]) func(shape ...int) kernels.Tensor {
	return func(shape ...int) kernels.Tensor {
		elements := kernels.Contiguous(nil, kernels.DTypeOf[T](), shape...).Elements()
		b := &buffer[T]{data: make([]T, elements+1)} // never empty, so that it has an address
		*list = append(*list, b)
		return kernels.Of(b.data, shape...)
	}
}

// newBias makes a bias that differs along the axes named by letters, and its gradient. columns is
// the last axis, or 0 for all keys.
func (p *Problem[T]) newBias(axes string, columns int, input, output func(shape ...int) kernels.Tensor) (bias, dBias kernels.Tensor) {
	batch, sq, sk := p.Batch, p.Sq, p.Sk
	if p.Case.QLens != nil {
		batch, sq, sk = len(p.Case.QLens)-1, longest(p.Case.QLens), longest(p.Case.KVLens)
	}
	if columns > 0 {
		sk = columns
	}
	shape := []int{1, 1, 1, sk}
	for i, full := range []int{batch, p.Heads, sq} {
		if strings.Contains(axes, "BHQ"[i:i+1]) {
			shape[i] = full
		}
	}
	bias, dBias = input(shape...), output(shape...)
	if p.Layout == Padded {
		bias = input(shape[0], shape[1], shape[2], sk+5).Slice(3, 2, 2+sk)
	}
	if p.Layout == Broadcast && shape[0] > 1 {
		bias = input(1, shape[1], shape[2], sk)
		bias.Shape[0], bias.Strides[0] = shape[0], 0
	}
	return bias, dBias
}

func longest(lens []int) int {
	most := 0
	for i := 1; i < len(lens); i++ {
		most = max(most, lens[i]-lens[i-1])
	}
	return most
}

// maskBias sets a share of the bias to −∞, and every fifth row as a whole.
func (p *Problem[T]) maskBias(share float64) {
	bias, n := kernels.Host[T](p.Bias), 0
	eachOffset(p.Bias, func(offset int) {
		if row := n / p.Bias.Shape[3]; row%5 == 3 || p.random.Float64() < share {
			bias[offset] = T(math.Inf(-1))
		}
		n++
	})
}

// padBias sets the bias of the first two and the last fifth of all keys.
func (p *Problem[T]) padBias(value float64) {
	bias, n, keys := kernels.Host[T](p.Bias), 0, p.Bias.Shape[3]
	eachOffset(p.Bias, func(offset int) {
		if column := n % keys; 5*column < 2*keys || 5*column >= 4*keys {
			bias[offset] = T(value)
		}
		n++
	})
}

// chooseRows picks the rows that have a gradient, and sets dO and dLSE to zero in all others.
func (p *Problem[T]) chooseRows() {
	p.rowSequence, p.rowOfSeq = make([]int, p.Sq), make([]int, p.Sq)
	for _, s := range p.Sequences() {
		for i := range s.Sq {
			p.rowSequence[s.Q0+i], p.rowOfSeq[s.Q0+i] = s.Index, i
		}
	}
	if p.Rows == 0 || p.Rows >= p.Sq {
		return
	}
	edge := max(1, p.Rows/4) // rows at both ends, where masks begin and end
	p.chosen = func(sequence, head, row int) bool {
		mixed := kernels.Philox(kernels.DropoutRounds, kernels.PhiloxKey(p.Seed), [4]uint32{uint32(sequence), uint32(head), uint32(row)})[0]
		return row < edge || row >= p.Sq-edge || int(mixed%uint32(p.Sq)) < p.Rows
	}
	dO, dLSE := kernels.Host[T](p.DO), kernels.Host[T](p.DLSE)
	for b := range p.Batch {
		for h := range p.Heads {
			for i := range p.Sq {
				if p.isChosen(b, h, i) {
					continue
				}
				clear(dO[p.DO.Offset(b, h, i):][:p.Dv])
				if p.DLSE.IsSet() {
					dLSE[p.DLSE.Offset(b, h, i)] = 0
				}
			}
		}
	}
}

// isChosen reports whether the outputs of a row are compared.
func (p *Problem[T]) isChosen(batch, head, row int) bool {
	if p.chosen == nil {
		return true
	}
	if p.Case.QLens != nil {
		batch, row = p.rowSequence[row], p.rowOfSeq[row]
	}
	return p.chosen(batch, head, row)
}

// Plant sets one element of an input of four axes.
func (p *Problem[T]) Plant(t kernels.Tensor, value float64, index ...int) {
	kernels.Host[T](t)[t.Offset(index...)] = T(value)
	p.expected = nil
	for i, b := range p.inputs {
		p.inputsBefore[i] = slices.Clone(b.data)
	}
}

// PlantNonFinite sets one or two elements, drawn among those of q, k, v and dO, to one of the given
// values, drawn too, and says which.
func (p *Problem[T]) PlantNonFinite(seed uint64, values ...float64) (where string) {
	r := rand.New(rand.NewPCG(seed, 17))
	for range 1 + r.IntN(2) {
		in, value := r.IntN(4), values[r.IntN(len(values))]
		t := []kernels.Tensor{p.Q, p.K, p.V, p.DO}[in]
		at := make([]int, len(t.Shape))
		for axis, n := range t.Shape {
			at[axis] = r.IntN(n)
		}
		p.Plant(t, value, at...)
		where += fmt.Sprintf(" %v at %s%v", value, []string{"q", "k", "v", "dO"}[in], at)
	}
	return where
}

// Run lets the backend compute everything: forward, delta, backward. It gives an error if one of
// them does, if an element of an output was not written, or if anything else was.
func (p *Problem[T]) Run(backend kernels.AttentionKernels) error {
	for _, b := range p.outputs {
		poison(b.data)
	}
	if err := backend.AttentionForward(&p.Attention, kernels.AttentionOutputs{O: p.O, LSE: p.LSE}); err != nil {
		return fmt.Errorf("%v: forward: %w", p.Case, err)
	}
	if err := backend.AttentionDelta(&p.Attention, p.O, p.DO, p.DLSE, p.Delta); err != nil {
		return fmt.Errorf("%v: delta: %w", p.Case, err)
	}
	if err := backend.AttentionBackward(&p.Attention, p.Gradients()); err != nil {
		return fmt.Errorf("%v: backward: %w", p.Case, err)
	}
	return p.checkWrites()
}

// Gradients is the argument of the backward kernel.
func (p *Problem[T]) Gradients() kernels.AttentionGradients {
	return kernels.AttentionGradients{DO: p.DO, LSE: p.LSE, Delta: p.Delta, DQ: p.DQ, DK: p.DK, DV: p.DV, DBias: p.DBias, DSinks: p.DSinks, DTables: p.DTables}
}

func (p *Problem[T]) checkWrites() error {
	for i, b := range p.inputs {
		for j, x := range b.data {
			if before := p.inputsBefore[i][j]; x != before && before == before {
				return fmt.Errorf("%v: element %d of the input buffer %d was %v and became %v", p.Case, j, i, before, x)
			}
		}
	}
	for _, b := range p.outputs {
		b.views = nil
	}
	for name, t := range p.results() {
		for _, b := range p.outputs {
			first, at := uintptr(unsafe.Pointer(unsafe.SliceData(b.data))), uintptr(t.Data)
			if at < first || at >= first+uintptr(len(b.data)*t.DType.Size()) {
				continue
			}
			b.views = append(b.views, t)
			data, missing := kernels.Host[T](t), 0
			eachOffset(t, func(offset int) {
				if poisoned(data[offset]) {
					missing++
				}
			})
			if missing > 0 {
				return fmt.Errorf("%v: %d of the %d elements of %s were not written", p.Case, missing, t.Elements(), name)
			}
		}
	}
	for _, b := range p.outputs {
		belongs := make([]bool, len(b.data))
		for _, t := range b.views {
			from := b.position(t)
			eachOffset(t, func(offset int) { belongs[from+offset] = true })
		}
		for i, x := range b.data {
			if !belongs[i] && !poisoned(x) {
				return fmt.Errorf("%v: %v was written into the gap at element %d of an output's buffer", p.Case, x, i)
			}
		}
	}
	return nil
}

// results are the outputs that the case has.
func (p *Problem[T]) results() map[string]kernels.Tensor {
	all := map[string]kernels.Tensor{"o": p.O, "lse": p.LSE, "delta": p.Delta, "dq": p.DQ, "dk": p.DK, "dv": p.DV}
	if p.DBias.IsSet() {
		all["dbias"] = p.DBias
	}
	if p.DSinks.IsSet() {
		all["dsinks"] = p.DSinks
	}
	for n, d := range p.DTables {
		if d.IsSet() {
			all[fmt.Sprint("dtable", n)] = d
		}
	}
	return all
}

// Bits is the memory of all outputs, gaps included, for comparing runs bit by bit.
func (p *Problem[T]) Bits() []T {
	var all []T
	for _, b := range p.outputs {
		all = append(all, b.data...)
	}
	return all
}
