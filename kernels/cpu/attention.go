package cpu

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// problem is an attention problem as the three kernels see it: in one element type, cut into heads
// and tiles.
type problem[T kernels.Float] struct {
	*kernels.Attention
	sequences      []kernels.Sequence
	bands          [][2]int // of each sequence
	heads, kvHeads int      // of one sequence
	group          int      // query heads that read one key head
	headSize
	scaling[float64]
	sinks               []T
	masked, transformed bool // does the mask hide anything; do scores need more than a scale
	tiled               bool // products are made of tiles
	taskRows            int  // of a tile of the forward and the backward kernel
	maskStrip           int  // of them, the rows of a mask's tiles
	columnUnit          int  // what the columns of scores are cut at multiples of
}

// headSize is the sizes of a row of q and k, and of one of v.
type headSize struct {
	d, dv             int
	dPadded, dvPadded int // rounded up to whole vectors
}

func newProblem[T kernels.Float](a *kernels.Attention) *problem[T] {
	a = cappedByOption(a)
	p := &problem[T]{Attention: a, sequences: a.Sequences(), heads: a.Q.Shape[1], kvHeads: a.K.Shape[1]}
	p.d, p.dv = a.Q.Shape[3], a.V.Shape[3]
	p.group = p.heads / max(1, p.kvHeads)
	// Whole panels, and all that one counter of dropout draws for; with tiles whole blocks.
	p.columnUnit = max(simd.Panel[T](), kernels.DropoutColumns)
	unit := simd.Lanes[T]()
	if p.tiled = tilesSuit[T](a); p.tiled {
		unit, p.columnUnit = simd.TileLines, simd.TileLines
	}
	p.dPadded, p.dvPadded = roundUp(p.d, unit), roundUp(p.dv, unit)
	p.scale = a.EffectiveScale()
	if a.Sinks.IsSet() {
		host, stride := kernels.Host[T](a.Sinks), a.Sinks.Strides[0]
		for h := range p.heads {
			p.sinks = append(p.sinks, host[h*stride])
		}
	}
	p.taskRows, p.maskStrip = taskRows, leastStrip
	if rows, _, _ := a.Mask.Blocks(); rows%64 == 0 && rows > 0 || rows == 32 {
		p.taskRows, p.maskStrip = 64, 32 // no tile lies in two blocks
	}
	p.masked = a.Causal != kernels.NotCausal || a.Window != nil || a.Mask != nil
	p.transformed = a.SoftCap != 0 || a.ALiBi != nil || a.Bias.IsSet()
	if p.left = 1; !p.transformed && a.Score == nil {
		p.left = leftOf(p.scale)
	}
	for _, s := range p.sequences {
		lo, hi := a.Band(s)
		if lo >= hi {
			hi = math.MinInt / 2
		}
		p.bands = append(p.bands, [2]int{lo, hi})
	}
	return p
}

// cappedByOption is the problem with SoftCap in place of a Score that says the same, if it is one
// that the option takes too.
func cappedByOption(a *kernels.Attention) *kernels.Attention {
	cap := a.Score.Cap()
	if cap == 0 || a.SoftCap != 0 || a.ALiBi != nil || a.Bias.IsSet() {
		return a // Score comes after what these do
	}
	own := *a
	own.Score, own.SoftCap = nil, cap
	if own.Mask == nil {
		own.Tables = nil
	}
	if own.Validate() != nil {
		return a
	}
	return &own
}

// tile is the shape of the score tiles that one task works through: rows × columns, and the number
// of rows in which the edge of a mask is followed. All are whole blocks of the matrix product's
// rows, columns also whole panels.
type tile struct{ rows, columns, strip int }

// mostColumns is the greatest number of a tile's columns.
const mostColumns = 512

// scaling is the factor of products q·k, and the one that scores are still to be multiplied by when
// the softmax takes them.
type scaling[T kernels.Float] struct{ scale, left T }

// leftOf is what of a factor is left to the softmax, which finds the greatest score before it
// multiplies and divides sinks by what is left: the factor itself, or 1 where it is not positive or
// far from 1.
func leftOf(factor float64) float64 {
	if factor >= 0x1p-64 && factor <= 0x1p64 {
		return factor
	}
	return 1
}

// settle multiplies a tile of scores by a factor, unless that is left to the softmax.
func settle[T kernels.Float](nRows, nColumns int, scores *T, stride int, factor, left float64) {
	if factor != left {
		simd.ALiBi(nRows, nColumns, scores, stride, T(factor), 0, 0) // a slope of 0 only scales
	}
}

// row is where a sequence's and head's per-row values (LSE, δ) start in a row-major (B, Hq, Sq)
// tensor.
func (p *problem[T]) row(s kernels.Sequence, head int) int {
	return (s.Batch*p.heads+head)*p.Q.Shape[2] + s.Q0
}

// unusedRows is the range of query rows that belong to no sequence: those behind the last of packed
// ones.
func (p *problem[T]) unusedRows() (from, to int) {
	if p.QLens == nil {
		return 0, 0
	}
	return p.QLens[len(p.QLens)-1], p.Q.Shape[2]
}

// hasUnusedKeys reports whether there are keys that belong to no sequence.
func (p *problem[T]) hasUnusedKeys() bool {
	return p.KVLengths != nil || p.KVLens != nil && p.KVLens[len(p.KVLens)-1] < p.K.Shape[2]
}

// transform turns raw products q·k of a tile into scores: soft cap, ALiBi and bias, in this order.
// The tile's first element is row i, column j of the sequence's score matrix; slope receives the
// soft cap's derivative unless nil. The returned factor, and nothing else, is still to be
// multiplied in.
func (p *problem[T]) transform(s kernels.Sequence, head, i, j, nRows, nColumns int, scores, slope *T, stride int) (factor float64) {
	factor = p.scale
	if p.SoftCap != 0 {
		simd.SoftCap(nRows, nColumns, scores, slope, stride, T(factor/p.SoftCap), T(p.SoftCap))
		factor = 1
	}
	return p.shift(s, head, i, j, nRows, nColumns, scores, stride, factor)
}

// shift is the part of transform that adds to scores, which are still to be multiplied by a factor.
func (p *problem[T]) shift(s kernels.Sequence, head, i, j, nRows, nColumns int, scores *T, stride int, factor float64) float64 {
	if p.ALiBi != nil {
		simd.ALiBi(nRows, nColumns, scores, stride, T(factor), T(p.ALiBi[head]), i+s.Distance-j)
		factor = 1
	}
	if p.Bias.IsSet() {
		p.addBias(s, head, i, j, nRows, nColumns, scores, stride, T(factor))
		factor = 1
	}
	return factor
}

// addBias does scores = factor·scores + bias.
func (p *problem[T]) addBias(s kernels.Sequence, head, i, j, nRows, nColumns int, scores *T, stride int, factor T) {
	bias, rowStride := p.biasAt(p.Bias, s, head, i, j)
	if !broadcastsColumns(p.Bias) {
		simd.AddBias(nRows, nColumns, scores, stride, factor, bias, rowStride)
		return
	}
	var same [mostColumns]T
	for r := range nRows {
		fill(same[:nColumns], float64(*offset(bias, r*rowStride)))
		simd.AddBias(1, nColumns, offset(scores, r*stride), stride, factor, &same[0], 0)
	}
}

// broadcastsColumns reports whether a bias has one element for all keys.
func broadcastsColumns(bias kernels.Tensor) bool { return bias.IsSet() && bias.Shape[3] == 1 }

// biasAt is the element of the bias, or of its gradient, for row i and column j, and how far the
// next row is.
func (p *problem[T]) biasAt(bias kernels.Tensor, s kernels.Sequence, head, i, j int) (at *T, rowStride int) {
	step := func(axis, index int) int {
		if bias.Shape[axis] == 1 {
			return 0
		}
		return index * bias.Strides[axis]
	}
	host := kernels.Host[T](bias)
	return &host[step(0, s.Index)+step(1, head)+step(2, i)+step(3, j)], step(2, 1)
}

// band is the band of a sequence, with hi before every key where it leaves no pair at all.
func (p *problem[T]) band(s kernels.Sequence) (lo, hi int) {
	return p.bands[s.Index][0], p.bands[s.Index][1]
}

// plane numbers the score matrices for dropout.
func (p *problem[T]) plane(s kernels.Sequence, head int) int { return s.Place.Sequence*p.heads + head }

// drop drops elements of a tile of a sequence's and head's scores whose first is at row i and
// column j.
func (p *problem[T]) drop(s kernels.Sequence, head, i, j, nRows, nColumns int, to, from *T, stride int, scale T) {
	simd.Dropout(nRows, nColumns, to, from, stride, p.Dropout, p.plane(s, head), s.Place.Row+i, s.Place.Column+j, scale)
}

// span is the part of a tile's columns that some row in [first, first+n) sees: the tile's first row
// sees the columns from lo up to hi, each further row one more to the right. The start is a whole
// unit.
func span(first, n, columns, lo, hi, unit int) (from, to int) {
	from = max(0, lo+first) / unit * unit
	to = min(columns, hi+first+n-1)
	return from, to
}

// reaches reports whether rows of a tensor are as long as they need to be and can be a matrix
// product's operand where they lie.
func reaches[T kernels.Float](t kernels.Tensor, padded int) bool {
	return multipliable[T](t) && t.Shape[3] == padded
}

// attention returns a problem whose tensors are of float32 or float64.
func (h *halves) attention(a *kernels.Attention) *kernels.Attention {
	if !isHalf(a.Q.DType) {
		return a
	}
	wide := *a
	if a.Q.DType == kernels.BF16 && a.Precision == kernels.PrecisionAuto {
		wide.Precision = kernels.PrecisionBFloat16
	}
	wide.Q, wide.K, wide.V = h.read(a.Q), h.read(a.K), h.read(a.V)
	wide.Bias, wide.Sinks = h.read(a.Bias), h.read(a.Sinks)
	return &wide
}

// log2e turns natural exponents into binary ones, which the vector units compute.
const log2e = math.Log2E
