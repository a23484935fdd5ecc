package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// batchDecoder is what a Decoder and a BatchDecoder have in common.
type batchDecoder struct {
	c        DecoderConfig
	capacity int
	caches   []*ops.KVCache
	memories []*ops.KVCache            // of sources; none for a model that reads none
	reader   *sourceGraph              // of the last source's shape
	windows  [][]int                   // the tokens in the caches, of each text
	graphs   map[runSize]*decoderGraph // whose logits are read
	choosing map[runSize]*decoderGraph // that choose tokens
	chooser  *ops.Chooser
	memory   [][]float64 // of the logits
	freeRows int         // so many rows cost about as much as one

	// What all caches know of the runs to come: the first text, and those that take part.
	first int
	takes []bool
}

// runSize is how many neighbouring texts a run is of, and how many tokens of each it adds.
type runSize struct{ texts, length int }

// A decoder has runs of 1, 2, 4, ... and longestRun tokens, so that a prompt takes few; longer runs
// gain little.
const longestRun = 64

// Up to about so many rows, a product costs what reading its weights costs.
const (
	freeRowsOfHost   = 16
	freeRowsOfDevice = 256
)

func (d *batchDecoder) build(c DecoderConfig, batch int) error {
	switch {
	case c.Parameters == nil:
		return errors.New("parameters is nil, it needs to be those of the model")
	case c.Model == nil:
		return errors.New("model is nil, it needs to be a function")
	case c.Capacity < 0:
		return fmt.Errorf("capacity is %d, it needs to be positive, or 0 for the model's context", c.Capacity)
	case batch < 1:
		return fmt.Errorf("batch is %d, it needs to be at least 1", batch)
	}
	d.c, d.capacity, d.freeRows = c, c.Capacity, freeRowsOfHost
	if c.Parameters.Device() != nil {
		d.freeRows = freeRowsOfDevice
	}
	s, m, err := d.model()
	if err != nil {
		return err
	}
	if err := d.newCaches(m, batch); err != nil {
		return err
	}
	// The other graphs are built when they are needed. This one shows what is wrong with the model.
	first, err := newDecoderGraph(s, m, d.all(), runSize{batch, 1}, nil)
	if err != nil {
		return err
	}
	d.graphs, d.choosing = map[runSize]*decoderGraph{first.size: first}, map[runSize]*decoderGraph{}
	if d.chooser, err = ops.NewChooser(c.Parameters.Device(), batch); err != nil {
		return err
	}
	d.windows, d.memory = make([][]int, batch), make([][]float64, batch)
	return nil
}

// model makes the model in a graph of its own.
func (d *batchDecoder) model() (*Scope, CachedModel, error) {
	s := NewScope(gorgonia.NewGraph(), d.c.Parameters)
	m := d.c.Model(s)
	if err := s.Err(); err != nil {
		return nil, nil, err
	}
	if m == nil {
		return nil, nil, errors.New("model gave nil, it needs to give a model")
	}
	return s, m, nil
}

// newCaches makes the caches that all graphs share.
func (d *batchDecoder) newCaches(m CachedModel, batch int) (err error) {
	if d.capacity == 0 {
		d.capacity = m.Context()
	}
	if d.capacity == 0 {
		return errors.New("capacity is 0, it needs to be given for a model whose context has no limit")
	}
	if d.caches, err = m.NewCaches(batch, d.capacity); err != nil {
		return err
	}
	if reads, ok := m.(SourceModel); ok {
		d.memories, err = reads.NewMemories(batch, reads.SourceContext())
	}
	return err
}

// all are the caches, and behind them the memories.
func (d *batchDecoder) all() []*ops.KVCache { return slices.Concat(d.caches, d.memories) }

// graph is that of runs of a size, which chooses tokens if asked.
func (d *batchDecoder) graph(size runSize, chooses bool) (*decoderGraph, error) {
	graphs, chooser := d.graphs, (*ops.Chooser)(nil)
	if chooses {
		graphs, chooser = d.choosing, d.chooser
	}
	if graph := graphs[size]; graph != nil {
		return graph, nil
	}
	s, m, err := d.model()
	if err != nil {
		return nil, err
	}
	graph, err := newDecoderGraph(s, m, d.all(), size, chooser)
	if err == nil {
		graphs[size] = graph
	}
	return graph, err
}

var errZeroDecoder = errors.New("it is a zero value, it needs to be what NewDecoder or NewBatchDecoder gave")

// window is that of a text, empty for one that there is not.
func (d *batchDecoder) window(text int) []int {
	if text < 0 || text >= len(d.windows) {
		return nil
	}
	return d.windows[text]
}

func (d *batchDecoder) reset() {
	for text := range d.windows {
		d.windows[text] = d.windows[text][:0]
	}
	for _, cache := range d.caches {
		cache.Reset()
	}
}

func (d *batchDecoder) truncate(text, n int) error {
	if len(d.windows) == 0 {
		return errZeroDecoder
	}
	for _, cache := range d.caches {
		if err := cache.TruncateItem(text, n); err != nil {
			return err
		}
	}
	d.windows[text] = d.windows[text][:n]
	return nil
}

func (d *batchDecoder) fork(to, from, n int) error {
	for _, cache := range d.caches {
		if err := cache.CopyItem(to, from, n); err != nil {
			return err
		}
	}
	for _, memory := range d.memories {
		if err := memory.CopyItem(to, from, memory.Lengths()[from]); err != nil {
			return err
		}
	}
	d.windows[to] = append(d.windows[to][:0], d.windows[from][:n]...)
	return nil
}

// feed adds tokens to the windows and gives, of the texts that got some, the logits, or where
// choices are given what was chosen.
func (d *batchDecoder) feed(tokens [][]int, choices []kernels.Choice) (*feeding, error) {
	if len(d.graphs) == 0 {
		return nil, errZeroDecoder
	}
	if len(tokens) != len(d.windows) {
		return nil, fmt.Errorf("there are tokens of %d texts, it needs those of the batch of %d", len(tokens), len(d.windows))
	}
	f := &feeding{batchDecoder: d, left: slices.Clone(tokens), logits: make([][]float64, len(tokens))}
	if choices != nil {
		f.choices, f.chosen = choices, slices.Repeat([]kernels.Chosen{{ID: -1}}, len(tokens))
	}
	for text, more := range tokens {
		if n := len(d.windows[text]); n+len(more) > d.capacity {
			keep := min(d.capacity, max(d.capacity/2, len(more)))
			f.left[text] = slices.Concat(d.windows[text], more)[n+len(more)-keep:]
			if err := d.truncate(text, 0); err != nil {
				return nil, err
			}
		}
	}
	for length := longestRun; length > 0; length /= 2 {
		for length <= d.capacity && f.choose(length) {
			if err := f.part(0, len(tokens), length); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// feeding is the work of one call.
type feeding struct {
	*batchDecoder
	left   [][]int // of each text, what is to be added
	taking []bool  // the texts that take part in the next runs
	logits [][]float64

	choices []kernels.Choice // nil where logits are read
	chosen  []kernels.Chosen
}

// choose finds the texts that have so many tokens left, and whether there are any.
func (f *feeding) choose(length int) bool {
	f.taking = make([]bool, len(f.left))
	for text, more := range f.left {
		f.taking[text] = len(more) >= length
	}
	return slices.Contains(f.taking, true)
}

// part adds so many tokens to the windows of the chosen ones among some neighbouring texts, in one
// run or in one for each half, whichever costs less.
func (f *feeding) part(first, texts, length int) error {
	if !slices.Contains(f.taking[first:first+texts], true) {
		return nil
	}
	half := halved(texts)
	if texts == 1 || f.cost(first, texts, length) <= f.cost(first, half, length)+f.cost(first+half, texts-half, length) &&
		slices.Contains(f.taking[first:first+half], true) && slices.Contains(f.taking[first+half:first+texts], true) {
		return f.run(first, runSize{texts, length})
	}
	if err := f.part(first, half, length); err != nil {
		return err
	}
	return f.part(first+half, texts-half, length)
}

// halved is the size of the first part of so many texts: a power of two, so that there are few
// sizes.
func halved(texts int) int {
	half := 1
	for 2*half < texts {
		half *= 2
	}
	return half
}

// cost is that of a run of some neighbouring texts, in rows, or if that is less of their parts.
func (f *feeding) cost(first, texts, length int) int {
	if !slices.Contains(f.taking[first:first+texts], true) {
		return 0
	}
	whole := max(f.freeRows, texts*length)
	if texts == 1 {
		return whole
	}
	half := halved(texts)
	return min(whole, f.cost(first, half, length)+f.cost(first+half, texts-half, length))
}

// tell lets the caches know which texts the next run is of, where they do not.
func (f *feeding) tell(first int) error {
	if f.first == first && slices.Equal(f.takes, f.taking) {
		return nil
	}
	f.takes = nil
	for _, cache := range f.all() {
		if err := errors.Join(cache.From(first), cache.Only(f.taking)); err != nil {
			return err
		}
	}
	f.first, f.takes = first, f.taking
	return nil
}

// run adds tokens to the windows of the chosen ones among some neighbouring texts, and reads the
// logits of those that then have none left.
func (f *feeding) run(first int, size runSize) error {
	graph, err := f.graph(size, f.choices != nil)
	if err != nil {
		return err
	}
	if err := f.tell(first); err != nil {
		return err
	}
	last := first + size.texts
	var ended []int
	for text := first; text < last; text++ {
		if f.taking[text] && len(f.left[text]) == size.length {
			ended = append(ended, text)
		}
	}
	if graph.choosing != nil && len(ended) > 0 {
		if err := graph.choosing.Send(f.choices[first:last]); err != nil {
			return err
		}
	}
	if err := graph.run(f.taking[first:last], f.left[first:last], f.windows[first:last]); err != nil {
		return err
	}
	for text := first; text < last; text++ {
		if f.taking[text] {
			f.windows[text] = append(f.windows[text], f.left[text][:size.length]...)
			f.left[text] = f.left[text][size.length:]
		}
	}
	if len(ended) == 0 {
		return nil
	}
	if graph.choosing != nil {
		all, err := graph.choosing.Read()
		if err != nil {
			return err
		}
		for _, text := range ended {
			f.chosen[text] = all[text-first]
		}
		return nil
	}
	rows, err := graph.read()
	if err != nil {
		return err
	}
	for _, text := range ended {
		f.memory[text] = rows(f.memory[text][:0], text-first)
		f.logits[text] = f.memory[text]
	}
	return nil
}
