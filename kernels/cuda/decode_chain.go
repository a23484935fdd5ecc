//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// This file makes one kernel, src/decode_chain.cu, of the products and attentions of one row that a
// recording has one behind the other: a model's next token of one text. Those of up to sixteen
// rows, which are the next tokens of as many texts, become one of src/decode_chain_rows.cu.
//
// Between links, rows travel as words of the chain's own memory, whatever tensors they lie in. A
// tensor gets its numbers from the last link that writes where it lies. Links have no barriers
// between them, so a call joins a chain only where no order but that of words matters:
//
//   - What a link reads besides words, such as weights, no link of the chain writes.
//   - Where two links write, the later one writes all that the earlier one does.

// linkArguments is ChainLink in src/decode_chain.cu.
type linkArguments struct {
	kind                               int32
	steps, groups, halves              int32
	firstMap, transposed               int32
	panel1, panel2                     int32
	slot, keyHeads                     int32
	depth, squareCount                 int32
	fragments, inNumber                int32
	residualNumber, gammaWide          int32
	outElement                         element
	eps                                float32
	in                                 address
	gamma                              readable
	squares, residual                  address
	partials, out, outSquares          address
	data                               writable
	weights                            [mostWeights]rowsWeight
	k, v                               address
	keys, values                       writable
	frequencies                        address
	state                              writable
	keysBatch, keysHead, keysRow       int64
	valuesBatch, valuesHead, valuesRow int64
	items, heads, offset               int32
	amplitude, scale                   float32
	blocks                             int32
	packed, whole                      int32
}

// chainArguments is ChainArguments in src/decode_chain.cu.
type chainArguments struct {
	links, maps, state address
	count, flight      int32
}

const (
	linkSource int32 = iota
	linkProduct
	linkAttention
)

// packings are Packing in src/decode_chain.cu.
var packings = map[kernels.DType]int32{kernels.Int8: 1, kernels.Int4: 2}

// chainLeast is how many links are worth a chain.
const chainLeast = 4

// chained is a call that may be a link.
type chained struct {
	device    *Device
	product   *fewRows
	attention *kernels.CachedAttention
	o         kernels.Tensor // of attention
}

// mayLink reports whether a product may be a link of a chain.
func (c *fewRows) mayLink() bool {
	g := c.arguments
	if c.packed != nil && packings[c.packing] == 0 {
		return false
	}
	for _, w := range g.weights[:g.count] {
		if w.first%2 != 0 || w.columns%2 != 0 {
			return false
		}
	}
	if g.m.rows > 1 { // which lie end to end
		columns := int64(0)
		for n, w := range g.weights[:g.count] {
			if n == 0 || !c.gated {
				columns += int64(w.columns)
			}
		}
		if c.packed != nil || c.a.first != int64(g.m.depth) || g.m.c.row != columns || g.residual != 0 && g.residualRow != columns {
			return false
		}
	}
	return g.m.pre.data == 0 && g.m.depth%8 == 0
}

// mayLink reports whether attention may be a link of a chain on this device.
func (d *Device) mayLink(c *kernels.CachedAttention, o kernels.Tensor) bool {
	q, k, v := c.Q, c.K, c.V
	size := q.Shape[3]
	if !d.hasMaps() || q.Shape[0] > mostRows || q.Shape[2] != 1 || !slices.Contains(chainHeadSizes, size) || v.Shape[3] != size ||
		q.Shape[1]/k.Shape[1] > chainMostGroup || q.Shape[0]*k.Shape[1] > d.Multiprocessors || c.SoftCap != 0 || c.Window != nil || c.ALiBi != nil ||
		c.Sinks.IsSet() || c.Causal == kernels.CausalTopLeft || o.DType != q.DType {
		return false
	}
	if r := c.RoPE; r != nil && (r.Pairing == kernels.Interleaved || r.Dim(size) != size) {
		return false
	}
	for _, t := range []kernels.Tensor{q, k, v, o} { // rows of heads lie end to end
		if t.Strides[3] != 1 || t.Shape[1] > 1 && t.Strides[1] != size {
			return false
		}
	}
	if q.Shape[0] > 1 { // rows of o lie end to end, and those of q, k and v side by side
		all := (q.Shape[1] + 2*k.Shape[1]) * size
		return q.Strides[0] == all && k.Strides[0] == all && v.Strides[0] == all && o.Strides[0] == q.Shape[1]*size
	}
	return true
}

// chain queues calls that a recording held back: as chains where they can be.
func chain(list []driver.Link) error {
	for len(list) > 0 {
		b := newChainBuilder(list[0].Call.(*chained).device)
		n := 0
		for n < len(list) && b.add(list[n].Call.(*chained)) {
			n++
		}
		if n < chainLeast {
			n = max(1, n)
			for _, l := range list[:n] {
				if err := l.Alone(); err != nil {
					return err
				}
			}
		} else if err := b.launch(list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// chainBuilder makes a chain of calls. Addresses of words are offsets until it is launched.
type chainBuilder struct {
	device     *Device
	element    element
	links      []linkArguments
	calls      []*chained    // of links[1:]
	results    []driver.Span // where a link's C lies; the source's row for the source
	reads      []driver.Span // but words
	writes     []driver.Span // but C: caches and their states
	maps       []driver.TensorMap
	words      int // so far
	partials   int // words for those of a link, at most
	attentions int
	headSize   int // of attentions
	rows       int // of all products
	packed     bool
}

func newChainBuilder(d *Device) *chainBuilder {
	return &chainBuilder{device: d, headSize: chainHeadSizes[0]}
}

func overlap(a, b driver.Span) bool { return a.From < b.To && b.From < a.To }

func overlapsAny(list []driver.Span, s driver.Span) bool {
	return slices.ContainsFunc(list, func(other driver.Span) bool { return overlap(s, other) })
}

// latest finds the link that wrote last where a row lies, -1 for none.
func (b *chainBuilder) latest(s driver.Span) int {
	for n := len(b.results) - 1; n >= 0; n-- {
		if overlap(b.results[n], s) {
			return n
		}
	}
	return -1
}

// take gives some words, an even number of them.
func (b *chainBuilder) take(words int) address {
	at := b.words
	b.words += (words + 1) / 2 * 2
	return address(8 * at)
}

// add makes a call a link, or reports that it cannot be one of this chain.
func (b *chainBuilder) add(c *chained) bool {
	if c.device.hardware != b.device.hardware || len(b.links) >= chainMostLinks || b.links != nil && (b.elementOf(c) != b.element || c.rows() != b.rows) {
		return false
	}
	if c.product != nil {
		return b.addProduct(c)
	}
	return b.addAttention(c)
}

// rows is how many rows the call has, of which each is a text's next token.
func (c *chained) rows() int {
	if c.product != nil {
		return int(c.product.arguments.m.rows)
	}
	return c.attention.Q.Shape[0]
}

func (b *chainBuilder) elementOf(c *chained) element {
	if c.product != nil {
		return c.product.element
	}
	return elementOf(c.attention.Q.DType)
}

// joins checks what a link reads and writes besides words against the links before it.
func (b *chainBuilder) joins(result driver.Span, reads, writes []driver.Span) bool {
	for _, s := range reads {
		if overlapsAny(b.results[min(1, len(b.results)):], s) || overlapsAny(b.writes, s) {
			return false
		}
	}
	for _, s := range append(slices.Clone(writes), result) {
		if overlapsAny(b.reads, s) || overlapsAny(b.writes, s) {
			return false
		}
	}
	for _, s := range writes {
		if overlapsAny(b.results, s) || overlap(s, result) {
			return false
		}
	}
	if overlapsAny(reads, result) {
		return false
	}
	for n, s := range b.results {
		if n > 0 && overlap(s, result) && (s.From < result.From || s.To > result.To) && b.links[n].data != 0 {
			return false
		}
	}
	return true
}

// append adds a link that was found to join.
func (b *chainBuilder) append(c *chained, l linkArguments, result driver.Span, reads, writes []driver.Span) {
	for n, s := range b.results {
		if n > 0 && overlap(s, result) {
			b.links[n].data = 0
		}
	}
	b.links, b.calls, b.results = append(b.links, l), append(b.calls, c), append(b.results, result)
	b.reads, b.writes = append(b.reads, reads...), append(b.writes, writes...)
}

// begin makes the source of a chain.
func (b *chainBuilder) begin(c *chained, row driver.Span, depth int32) {
	b.element, b.rows, b.words = b.elementOf(c), c.rows(), 2 // no offset is 0
	l := linkArguments{kind: linkSource, groups: int32(tilesOf(depth, chainPanel)), depth: depth, data: row.From.Writable()}
	l.out, l.outSquares = b.take(int(depth/2)), b.take(int(l.groups)*chainPanel/32)
	b.links, b.results = []linkArguments{l}, []driver.Span{row}
}

// share chooses how many blocks share a product's steps: as many as leave no panel to too many of
// them.
func (l *linkArguments) share(multiprocessors, rows int) bool {
	if l.whole != 0 {
		l.blocks = int32(min(multiprocessors, int(l.groups)))
		return true
	}
	most := chainMostSteps
	switch {
	case l.packed != 0:
		most = chainMostPackedSteps
	case rows > 1:
		most = chainStepsOfRows
	}
	for total, least := int(l.groups*l.halves*l.steps), 1; ; least++ {
		l.blocks = int32(min(multiprocessors, total/least))
		if l.blocks == 0 {
			return false
		}
		each := total / int(l.blocks)
		l.fragments = int32((int(l.steps)+each-2)/each + 1)
		if int(l.fragments*l.halves) <= chainMostFragments {
			return min(each+1, int(l.steps)) <= most
		}
	}
}

// ofWholeColumns reports whether blocks have whole columns of the product, in tiles: where a block
// has room for all of A, and all blocks have nearly as many tiles. There are no sums to tell other
// blocks of then.
func (p *fewRows) ofWholeColumns(multiprocessors int) bool {
	const most, evenly = 8, .85
	if p.packed == nil {
		return false
	}
	packing, tiles := p.packed[0].DType, 0
	for n, w := range p.packed {
		if w.rows%chainTileColumns != 0 || w.Columns%depthOfPackedStep(packing) != 0 {
			return false
		}
		if n == 0 || !p.gated {
			tiles += w.rows / chainTileColumns
		}
	}
	blocks := min(tiles, multiprocessors)
	return tilesOf(p.arguments.m.depth, most*depthOfPackedStep(packing))*most <= chainMostPackedSteps &&
		float64(tiles) >= evenly*float64(blocks*tilesOf(int32(tiles), blocks)) && 2*blocks >= multiprocessors
}

// newProductLink describes a product, of so many columns, and what it reads besides words.
func newProductLink(p *fewRows, multiprocessors int) (l linkArguments, columns int32, reads []driver.Span) {
	g := p.arguments
	l = linkArguments{kind: linkProduct, steps: int32(tilesOf(g.m.depth, depthOfStep)), halves: 1, depth: g.m.depth, outElement: g.m.cElement, data: g.m.c.data,
		panel1: math.MaxInt32, panel2: math.MaxInt32, eps: g.eps, gamma: g.gamma, gammaWide: g.gammaWide}
	if !p.bRows {
		l.transposed = 1
	}
	if p.packed != nil {
		l.packed = packings[p.packed[0].DType]
		l.steps = int32(tilesOf(g.m.depth, depthOfPackedStep(p.packed[0].DType)))
	}
	panel := chainPanel
	if p.ofWholeColumns(multiprocessors) {
		const most = 8 // pieces of a step
		l.whole, panel = 1+g.normed, chainTileColumns
		l.steps = int32(tilesOf(l.steps, most))
	}
	if p.gated {
		l.halves = 2
	}
	reads = slices.Clone(p.early.Reads)
	for n, w := range g.weights[:g.count] {
		l.weights[n] = w
		if n == 0 || !p.gated {
			switch n {
			case 1:
				l.panel1 = l.groups
			case 2:
				l.panel2 = l.groups
			}
			l.groups, columns = l.groups+int32(tilesOf(w.columns, panel)), columns+w.columns
		}
		if w.bias != 0 {
			reads = append(reads, driver.Span{From: address(w.bias), To: address(w.bias) + address(int(w.columns)*mapTypes[w.biasElement].bytes)})
		}
	}
	for _, w := range p.b {
		reads = append(reads, w.span())
	}
	for _, w := range p.packed {
		reads = append(reads, w.span())
	}
	return l, columns, reads
}

func (b *chainBuilder) addProduct(c *chained) bool {
	p := c.product
	g := p.arguments
	l, columns, reads := newProductLink(p, b.device.Multiprocessors)
	l.firstMap = int32(len(b.maps))
	if !l.share(b.device.Multiprocessors, c.rows()) {
		return false
	}
	x := driver.Span{From: p.a.data, To: p.a.data + address(2*g.m.rows*g.m.depth)}
	size := int32(2)
	if g.m.cElement == elementF32 {
		size = 4
	}
	result := driver.Span{From: g.m.c.data.Address(), To: g.m.c.data.Address() + address(size*g.m.rows*columns)}
	begins := b.links == nil
	if begins {
		b.begin(c, x, g.m.depth)
	}
	from := b.latest(x)
	if from < 0 || b.results[from] != x || b.links[from].out == 0 || !b.joins(result, reads, nil) {
		return false
	}
	l.in, l.inNumber = b.links[from].out, int32(from)
	if b.rows > 1 {
		panels := tilesOf(g.m.depth, chainPanel)
		if g.m.cElement != elementF32 {
			panels = max(panels, tilesOf(columns, chainPanel))
		}
		if from != len(b.links)-1 || panels > chainMostGroups {
			return false
		}
		for _, w := range g.weights[:g.count-1] { // rows are told of by panels
			if !p.gated && w.columns%chainPanel != 0 {
				return false
			}
		}
	}
	if g.normed != 0 && l.whole == 0 {
		before := &b.links[from]
		count, most := before.groups*(chainPanel/32), int32(chainMostSquares)
		if before.whole != 0 {
			count, most = before.groups, 2*most
		}
		if before.kind == linkAttention || count > most {
			return false
		}
		if before.outSquares == 0 {
			before.outSquares = b.take(int(count))
		}
		l.squares, l.squareCount = before.outSquares, count
	}
	if g.residual != 0 {
		row := driver.Span{From: address(g.residual), To: address(g.residual) + address(2*g.m.rows*columns)}
		other := b.latest(row)
		if other < 0 || b.results[other] != row || b.links[other].out == 0 {
			return false
		}
		if b.rows > 1 && !b.mayReadRows(other) {
			return false
		}
		l.residual, l.residualNumber = b.links[other].out, int32(other)
	}
	if g.m.cElement != elementF32 {
		l.out = b.take(int(columns / 2))
	}
	b.partials = max(b.partials, int(l.groups*l.halves*l.fragments)*chainPanel) // none of whole columns
	for _, w := range p.b {
		b.maps = append(b.maps, boxesOf(w, !p.bRows, columnsOfPanel))
	}
	for _, w := range p.packed {
		codes, scales := w.boxes(chainPanel, scalesOfStep)
		if l.whole != 0 {
			codes, scales = w.boxes(chainTileColumns, chainScalesOfTile(w.DType))
		}
		b.maps, b.packed = append(b.maps, codes, scales), true
	}
	b.append(c, l, result, reads, nil)
	return true
}

func (b *chainBuilder) addAttention(c *chained) bool {
	a := c.attention
	heads, keyHeads, size := a.Q.Shape[1], a.K.Shape[1], a.Q.Shape[3]
	if b.links == nil || b.attentions == chainMostAttentions || (b.attentions+1)*b.rows > chainMostHeld || b.attentions > 0 && size != b.headSize {
		return false
	}
	l := linkArguments{kind: linkAttention, slot: int32(b.attentions), heads: int32(heads), keyHeads: int32(keyHeads), firstMap: int32(len(b.maps)),
		keys: written(a.Keys), values: written(a.Values), state: written(a.State), items: int32(a.Keys.Shape[0]),
		scale: float32(a.EffectiveScale() * math.Log2E), data: written(c.o), out: b.take(heads * size / 2), depth: int32(heads * size)}
	keys, values := rowsWritten(a.Keys), rowsWritten(a.Values)
	l.keysBatch, l.keysHead, l.keysRow = keys.batch, keys.head, keys.row
	l.valuesBatch, l.valuesHead, l.valuesRow = values.batch, values.head, values.row
	rowOf := func(t kernels.Tensor) driver.Span {
		at := address(read(t))
		return driver.Span{From: at, To: at + address(2*((b.rows-1)*t.Strides[0]+t.Shape[1]*size))}
	}
	from := b.latest(rowOf(a.Q))
	if from < 0 || b.links[from].out == 0 || b.rows > 1 && (from != len(b.links)-1 || 2*b.links[from].words() != (heads+2*keyHeads)*size) {
		return false
	}
	for _, in := range []struct {
		t  kernels.Tensor
		to *address
	}{{a.Q, &l.in}, {a.K, &l.k}, {a.V, &l.v}} {
		row, whole := rowOf(in.t), b.results[from]
		at := row.From - whole.From
		if b.latest(row) != from || row.From < whole.From || row.To > whole.To || at%4 != 0 {
			return false
		}
		*in.to = b.links[from].out + 2*at // 8 bytes for 4
	}
	l.inNumber = int32(from)
	result, writes := rowOf(c.o), spansOf(a.Keys, a.Values, a.State)
	if !b.joins(result, nil, writes) {
		return false
	}
	const rowBytes = 128 // of a box
	for _, t := range []kernels.Tensor{a.Keys, a.Values} {
		e := elementOf(t.DType)
		b.maps = append(b.maps, newTensorMap(rowsRead(t), [4]int(t.Shape), rowBytes, chainTile, e))
	}
	runs := min(b.device.Multiprocessors/keyHeads, chainMostRuns)
	b.partials = max(b.partials, heads*runs*chainPartial(size))
	b.attentions, b.headSize = b.attentions+1, size
	b.append(c, l, result, nil, writes)
	return true
}

// places gives the links' words their places, and returns how many words there are. Links that are
// far enough apart share places: few words stay in the L2 cache, beside all the weights that pass.
//
// A link may write where an earlier one did if all have read that by then. Each element of a result
// depends on all elements of the row before, so this is so behind the link after the last reader.
func (b *chainBuilder) places() int {
	const pools = 8
	before := slices.Clone(b.links)
	last, sizes, largest := make([]int, len(b.links)), make([]int, len(b.links)), 0
	for n := range b.links {
		l := &b.links[n]
		last[l.inNumber], last[l.residualNumber] = n, max(n, last[l.residualNumber])
		if l.kind == linkSource {
			last[n] = 0
		}
		sizes[n] = l.words() + int(l.groups)*chainPanel/32
		largest = max(largest, (sizes[n]+1)/2*2)
	}
	words := 2 + pools*largest // no offset is 0
	for n := range b.links {
		l := &b.links[n]
		at := 2 + n%pools*largest
		if last[n]-n >= pools-1 {
			at, words = words, words+(sizes[n]+1)/2*2
		}
		if l.out != 0 {
			l.out = address(8 * at)
		}
		if l.outSquares != 0 {
			l.outSquares = address(8 * (at + l.words()))
		}
		from, residual := l.inNumber, l.residualNumber
		if l.kind == linkSource {
			continue
		}
		l.in += b.links[from].out - before[from].out
		if l.kind == linkAttention {
			l.k, l.v = l.k+b.links[from].out-before[from].out, l.v+b.links[from].out-before[from].out
		}
		if l.squares != 0 {
			l.squares = b.links[from].outSquares
		}
		if l.residual != 0 {
			l.residual = b.links[residual].out
		}
	}
	return words
}

// flight is how many steps of a block are on their way from memory at most.
func (b *chainBuilder) flight() int32 {
	steps, products := int32(0), int32(0)
	for _, l := range b.links {
		if l.kind == linkProduct {
			steps, products = steps+l.groups*l.halves*l.steps/l.blocks, products+1
		}
	}
	if steps >= chainLongProduct*products {
		return chainFlight + 1
	}
	return chainFlight
}

// words is how many words a link's row has.
func (l *linkArguments) words() int {
	switch {
	case l.kind == linkSource, l.kind == linkAttention:
		return int(l.depth / 2)
	case l.halves == 2:
		return int(l.weights[0].columns / 2)
	}
	columns := int32(0)
	for _, w := range l.weights {
		columns += w.columns
	}
	return int(columns / 2)
}

// launch queues the chain in the place of calls.
func (b *chainBuilder) launch(list []driver.Link) error {
	if b.rows > 1 {
		return b.launchRows(list)
	}
	const pools = 4 // of partial sums, which are read by the link that writes them
	d := b.device
	failed := func(err error) error { return fmt.Errorf("%s: a chain of %d calls: %w", d.Name(), len(list), err) }
	state := b.places()
	first, partials := state+2, (b.partials+1)/2*2
	words, err := d.Zeros(d.queue(), 8*(first+pools*partials))
	if err != nil {
		return failed(err)
	}
	at := words.At
	for n := range b.links {
		l := &b.links[n]
		l.partials = at + address(8*(first+n%pools*partials))
		for _, offset := range []*address{&l.in, &l.squares, &l.residual, &l.out, &l.outSquares, &l.k, &l.v} {
			if *offset != 0 {
				*offset += at
			}
		}
	}
	if err := b.turns(); err != nil {
		return failed(err)
	}
	g := &chainArguments{state: at + address(8*state), count: int32(len(b.links)), flight: b.flight()}
	if err := b.constants(bytesOf(b.links), &g.links, &g.maps); err != nil {
		return failed(err)
	}
	name := chainName(b.element, b.headSize, b.packed)
	s := shapeOf(name, name, [3]int{d.Multiprocessors, 1, 1}, chainThreads, chainShared(b.headSize, b.packed))
	s.Together = true
	err = d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(list)
	return err
}

// turns gives attentions the angles by which they turn.
func (b *chainBuilder) turns() error {
	for n := range b.links {
		l := &b.links[n]
		if n == 0 || b.calls[n-1].attention == nil || b.calls[n-1].attention.RoPE == nil {
			continue
		}
		r := b.calls[n-1].attention.RoPE
		owner, err := b.device.frequencies(r, b.headSize)
		if err != nil {
			return err
		}
		l.frequencies, l.offset, l.amplitude = owner.At, int32(r.Offset), float32(r.EffectiveAmplitude())
	}
	return nil
}

// constants gives links and maps their places on the device.
func (b *chainBuilder) constants(links string, toLinks, toMaps *address) error {
	var maps []driver.EncodedMap
	for _, m := range b.maps {
		encoded, err := b.device.Encode(m)
		if err != nil {
			return err
		}
		maps = append(maps, encoded)
	}
	for _, constant := range []struct {
		contents string
		to       *address
	}{{links, toLinks}, {bytesOf(maps), toMaps}} {
		owner, err := b.device.queue().Vector(constant.contents)
		if err != nil {
			return err
		}
		*constant.to = owner.At
	}
	return nil
}
