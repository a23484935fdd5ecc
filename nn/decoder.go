package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CachedModel is a language model that a [Decoder] can run: a [LanguageModel] is, and so is a model
// of one's own, made of blocks, that has these methods.
type CachedModel interface {
	// Context is the longest sequence that the model takes, 0 if there is no limit.
	Context() int
	// NewCaches is an empty cache for each attention layer.
	NewCaches(batch, capacity int) ([]*ops.KVCache, error)
	// ForwardCached gives the logits of the token after the last of tokens, (B, S), which follow
	// those in the caches: (B, Vocab). Positions, (B, S), are those of tokens, counted from the
	// first in the caches.
	ForwardCached(tokens, positions Tensor, caches []*ops.KVCache) Tensor
}

// DecoderConfig describes a [Decoder].
type DecoderConfig struct {
	// Parameters are the model's, such as those that a training changes.
	Parameters *Parameters
	// Model makes the model. It is called a few times, for graphs that take one or more tokens at a
	// time.
	Model func(s *Scope) CachedModel
	// Capacity is how many tokens the decoder looks back to; 0 means the model's context, if that
	// has a limit.
	Capacity int
}

// Decoder predicts one token after another. It keeps the keys and values of the tokens that it has
// seen, so that a new token costs one row of attention and not the whole window. It has its model's
// parameters, not copies: what training changes counts from the next call on, though what is in the
// window keeps its keys and values until Reset. Dropout is off.
//
// When the window is full, the decoder starts over with its newest half: a model's positions end
// there. This happens every Capacity/2 tokens and computes as many again, so that at worst a token
// costs two.
//
// A token costs about as much as reading the parameters: [Parameters.KeepWeights] halves that.
//
// On a GPU, a run of each length is recorded once its memory is there.
//
// A Decoder is not safe for concurrent use. Do not change the parameters while it runs. [BatchDecoder]
// is for several texts at once.
type Decoder struct {
	b batchDecoder
}

// NewDecoder builds the graphs of a decoder.
func NewDecoder(c DecoderConfig) (*Decoder, error) {
	d := &Decoder{}
	if err := d.b.build(c, 1); err != nil {
		return nil, fmt.Errorf("Decoder: %w", err)
	}
	return d, nil
}

// Len is the number of tokens in the window.
func (d *Decoder) Len() int { return len(d.b.window(0)) }

// Capacity is how many tokens fit in the window.
func (d *Decoder) Capacity() int { return d.b.capacity }

// Window lists the tokens that the next one will follow.
func (d *Decoder) Window() []int { return slices.Clone(d.b.window(0)) }

// Reset empties the window.
func (d *Decoder) Reset() { d.b.reset() }

// Truncate goes back to the first n tokens of the window, to go on from there in another way: an
// answer that is taken back costs nothing to forget.
func (d *Decoder) Truncate(n int) error {
	if n < 0 || n > d.Len() {
		return fmt.Errorf("Decoder: %d tokens are to stay, it needs to be from 0 to the window's %d", n, d.Len())
	}
	if err := d.b.truncate(0, n); err != nil {
		return fmt.Errorf("Decoder: %w", err)
	}
	return nil
}

// Logits adds tokens, at least one, to the window and gives the model's logits of what comes next,
// one number for each token of the vocabulary. They hold until the next call. Tokens that do not
// fit push out the older half of the window, or as much of it as they need; of more tokens than
// Capacity only the newest count. After an error the window is empty.
func (d *Decoder) Logits(tokens []int) ([]float64, error) {
	if len(tokens) == 0 && len(d.b.graphs) > 0 {
		d.Reset()
		return nil, errors.New("Decoder: tokens is empty, it needs at least one")
	}
	all, err := d.b.feed([][]int{tokens})
	if err != nil {
		d.Reset()
		return nil, fmt.Errorf("Decoder: %w", err)
	}
	return all[0], nil
}

// BatchDecoder is a [Decoder] of several texts at once, each with a window of its own, which may be
// of any length: reading the model's parameters, which is most of the work for one token, is done
// once for all.
type BatchDecoder struct {
	b batchDecoder
}

// NewBatchDecoder builds the graphs of a decoder of so many texts.
func NewBatchDecoder(batch int, c DecoderConfig) (*BatchDecoder, error) {
	d := &BatchDecoder{}
	if err := d.b.build(c, batch); err != nil {
		return nil, fmt.Errorf("BatchDecoder: %w", err)
	}
	return d, nil
}

// Batch is how many texts there are.
func (d *BatchDecoder) Batch() int { return len(d.b.windows) }

// Capacity is how many tokens fit in the window of each text.
func (d *BatchDecoder) Capacity() int { return d.b.capacity }

// Window lists the tokens that the next one of a text will follow.
func (d *BatchDecoder) Window(text int) []int { return slices.Clone(d.b.window(text)) }

// Reset empties the windows.
func (d *BatchDecoder) Reset() { d.b.reset() }

// Truncate goes back to the first n tokens of one text's window: with 0 another text can take its
// place.
func (d *BatchDecoder) Truncate(text, n int) error {
	switch {
	case text < 0 || text >= d.Batch():
		return fmt.Errorf("BatchDecoder: text is %d, it needs to be at least 0 and less than the batch of %d", text, d.Batch())
	case n < 0 || n > len(d.b.windows[text]):
		return fmt.Errorf("BatchDecoder: %d tokens of text %d are to stay, it needs to be from 0 to the window's %d", n, text, len(d.b.windows[text]))
	}
	if err := d.b.truncate(text, n); err != nil {
		return fmt.Errorf("BatchDecoder: %w", err)
	}
	return nil
}

// Logits adds tokens to the window of each text, as [Decoder.Logits] does, and gives the logits of
// what comes next in those that got any; a text that gets none rests, and has nil. They hold until
// the next call. After an error all windows are empty.
func (d *BatchDecoder) Logits(tokens [][]int) ([][]float64, error) {
	all, err := d.b.feed(tokens)
	if err != nil {
		d.Reset()
		return nil, fmt.Errorf("BatchDecoder: %w", err)
	}
	return all, nil
}

// batchDecoder is what both have in common.
type batchDecoder struct {
	capacity int
	caches   []*ops.KVCache
	windows  [][]int // the tokens in the caches, of each text
	graphs   []*decoderGraph
	memory   [][]float64 // of the logits
}

// A decoder has graphs for 1, 2, 4, ... and longestRun tokens, so that a prompt takes few runs;
// longer runs gain little.
const longestRun = 64

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
	d.capacity = c.Capacity
	for length := longestRun; length > 0; length /= 2 {
		if d.caches != nil && length > d.capacity {
			continue
		}
		s := NewScope(gorgonia.NewGraph(), c.Parameters)
		m := c.Model(s)
		if err := s.Err(); err != nil {
			return err
		}
		if m == nil {
			return errors.New("model gave nil, it needs to give a model")
		}
		if d.caches == nil {
			if err := d.newCaches(m, batch); err != nil {
				return err
			}
		}
		if length > d.capacity {
			continue
		}
		graph, err := newDecoderGraph(s, m, d.caches, batch, length)
		if err != nil {
			return err
		}
		d.graphs = append(d.graphs, graph)
	}
	d.windows, d.memory = make([][]int, batch), make([][]float64, batch)
	return nil
}

// newCaches makes the caches that all graphs share.
func (d *batchDecoder) newCaches(m CachedModel, batch int) (err error) {
	if d.capacity == 0 {
		d.capacity = m.Context()
	}
	if d.capacity == 0 {
		return errors.New("capacity is 0, it needs to be given for a model whose context has no limit")
	}
	d.caches, err = m.NewCaches(batch, d.capacity)
	return err
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

// feed adds tokens to the windows and gives the logits of the texts that got some.
func (d *batchDecoder) feed(tokens [][]int) ([][]float64, error) {
	if len(d.graphs) == 0 {
		return nil, errZeroDecoder
	}
	if len(tokens) != len(d.windows) {
		return nil, fmt.Errorf("there are tokens of %d texts, it needs those of the batch of %d", len(tokens), len(d.windows))
	}
	left := slices.Clone(tokens)
	for text, more := range tokens {
		if n := len(d.windows[text]); n+len(more) > d.capacity {
			keep := min(d.capacity, max(d.capacity/2, len(more)))
			left[text] = slices.Concat(d.windows[text], more)[n+len(more)-keep:]
			if err := d.truncate(text, 0); err != nil {
				return nil, err
			}
		}
	}
	logits := make([][]float64, len(tokens))
	for _, graph := range d.graphs {
		for {
			taking := make([]bool, len(left))
			for text, more := range left {
				taking[text] = len(more) >= graph.length
			}
			if !slices.Contains(taking, true) {
				break
			}
			if err := d.run(graph, taking, left, logits); err != nil {
				return nil, err
			}
		}
	}
	return logits, nil
}

// run adds as many tokens as a graph takes to the windows of some texts, and reads the logits of
// those that then have none left.
func (d *batchDecoder) run(graph *decoderGraph, taking []bool, left [][]int, logits [][]float64) error {
	for _, cache := range d.caches {
		if err := cache.Only(taking); err != nil {
			return err
		}
	}
	if err := graph.run(taking, left, d.windows); err != nil {
		return err
	}
	var ended []int
	for text, takes := range taking {
		if !takes {
			continue
		}
		d.windows[text] = append(d.windows[text], left[text][:graph.length]...)
		if left[text] = left[text][graph.length:]; len(left[text]) == 0 {
			ended = append(ended, text)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	rows, err := graph.read()
	if err != nil {
		return err
	}
	for _, text := range ended {
		d.memory[text] = rows(d.memory[text][:0], text)
		logits[text] = d.memory[text]
	}
	return nil
}

// decoderGraph takes a number of tokens of each text in each run.
type decoderGraph struct {
	length            int
	tokens, positions []int // what is fed
	feeds             []*ops.Feed
	logits            *gorgonia.Node
	machine           gorgonia.VM
	device            *ops.Device // nil for the host

	// On a device, what was recorded of a run, once its memory is there.
	runs       int // unrecorded, so far
	recording  kernels.Recording
	unrecorded error // why runs cannot be recorded
}

func newDecoderGraph(s *Scope, m CachedModel, caches []*ops.KVCache, batch, length int) (*decoderGraph, error) {
	d := &decoderGraph{length: length, tokens: make([]int, batch*length), positions: make([]int, batch*length), device: s.values.Device()}
	parameters := s.Parameters()
	if len(parameters) == 0 {
		return nil, errors.New("model has no parameters, it needs at least one, which tells where it computes")
	}
	for _, n := range parameters {
		if _, holders := ops.WholeOf(n); holders != nil {
			return nil, fmt.Errorf("%s is shared out over ranks, a decoder needs parameters that are whole, such as those of a checkpoint", n.Name())
		}
	}
	var inputs []Tensor
	for _, in := range []struct {
		name string
		ids  []int
	}{{"decoder.tokens", d.tokens}, {"decoder.positions", d.positions}} {
		feed, err := ops.NewFeed(d.device, tensor.New(tensor.WithShape(batch, length), tensor.WithBacking(in.ids)))
		if err != nil {
			return nil, err
		}
		d.feeds, inputs = append(d.feeds, feed), append(inputs, s.of(feed.Node(s.g, in.name), nil))
	}
	if d.logits = m.ForwardCached(inputs[0], inputs[1], caches).n; s.err != nil {
		return nil, s.err
	}
	if d.logits == nil {
		return nil, errors.New("model gave no logits")
	}
	ops.ModeOf(s.g).Evaluate()
	var err error
	d.machine, err = ops.NewMachine(s.g)
	return d, err
}

// run adds the first tokens of what is left of some texts to the caches, behind their windows. The
// others compute something that nobody reads.
func (d *decoderGraph) run(taking []bool, left, windows [][]int) error {
	clear(d.tokens)
	for text, takes := range taking {
		first := 0
		if takes {
			first = len(windows[text])
			copy(d.tokens[text*d.length:], left[text][:d.length])
		}
		for i := range d.length {
			d.positions[text*d.length+i] = first + i
		}
	}
	for _, feed := range d.feeds {
		if err := feed.Send(); err != nil {
			return err
		}
	}
	return d.compute()
}

// compute makes a run, or what was recorded of one. A graph that cannot be recorded goes on
// unrecorded.
func (d *decoderGraph) compute() error {
	const unrecordedRuns = 2 // find out which memory a run needs
	if d.recording == nil && d.device != nil && d.runs >= unrecordedRuns && d.unrecorded == nil {
		d.recording, d.unrecorded = ops.Record(d.logits.Graph(), d.device, d.work)
	}
	if d.recording == nil || d.unrecorded != nil {
		d.runs++
		return d.work()
	}
	err := d.recording.Launch()
	if errors.Is(err, kernels.ErrOutgrown) {
		d.unrecorded = err
		return d.work()
	}
	return err
}

func (d *decoderGraph) work() error {
	defer d.machine.Reset()
	return d.machine.RunAll()
}

// read gets the logits of the last run; the function that it returns appends those of a text to a
// list.
func (d *decoderGraph) read() (func(list []float64, text int) []float64, error) {
	v, err := ops.Download(d.logits.Value())
	if err != nil {
		return nil, fmt.Errorf("the logits: %w", err)
	}
	size := v.DataSize() / (len(d.tokens) / d.length)
	switch data := v.Data().(type) {
	case []float64:
		return func(list []float64, text int) []float64 { return append(list, data[text*size:(text+1)*size]...) }, nil
	case []float32:
		return func(list []float64, text int) []float64 {
			for _, x := range data[text*size : (text+1)*size] {
				list = append(list, float64(x))
			}
			return list
		}, nil
	}
	return nil, fmt.Errorf("the logits are %v, they need to be float32 or float64", v.Dtype())
}
