package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// CachedModel is a language model that a [Decoder] can run: [GPT] and [Llama] are, and so is a model of one's own, made of
// blocks, that has these methods.
type CachedModel interface {
	// Parameters lists the parameters.
	Parameters() gorgonia.Nodes
	// Context is the longest sequence that the model takes, 0 if there is no limit.
	Context() int
	// NewCaches is an empty cache for each attention layer.
	NewCaches(batch, capacity int) ([]*ops.KVCache, error)
	// ForwardCached gives the logits of the token after the last of tokens, (B, S), which follow those in the caches:
	// (B, Vocab). Positions, (B, S), are those of tokens, counted from the first in the caches.
	ForwardCached(tokens, positions *gorgonia.Node, caches []*ops.KVCache) (*gorgonia.Node, error)
}

// DecoderConfig describes a [Decoder].
type DecoderConfig struct {
	// Model adds the model to a graph. It is called a few times, for graphs that take one or more tokens at a time, and
	// needs to make the model over the same Parameters each time.
	Model func(g *gorgonia.ExprGraph) (CachedModel, error)
	// Capacity is how many tokens the decoder looks back to; 0 means the model's context, if that has a limit.
	Capacity int
}

// Decoder predicts one token after another. It keeps the keys and values of the tokens that it has seen, so that a new
// token costs one row of attention and not the whole window. It has its model's parameters, not copies: what training
// changes counts from the next call on, though what is in the window keeps its keys and values until Reset. Dropout is
// off.
//
// When the window is full, the decoder starts over with its newest half: a model's positions end there. This happens
// every Capacity/2 tokens and computes as many again, so that at worst a token costs two.
//
// A Decoder belongs to one goroutine, and does not run while something changes the parameters.
type Decoder struct {
	capacity int
	caches   []*ops.KVCache
	window   []int // the tokens in the caches
	graphs   []*decoderGraph
	logits   []float64
}

// A decoder has graphs for 1, 2, 4, ... and longestRun tokens, so that a prompt takes few runs; longer runs gain little.
const longestRun = 64

// NewDecoder builds the graphs of a decoder.
func NewDecoder(c DecoderConfig) (*Decoder, error) {
	d := &Decoder{capacity: c.Capacity}
	if err := d.build(c); err != nil {
		return nil, fmt.Errorf("Decoder: %w", err)
	}
	return d, nil
}

func (d *Decoder) build(c DecoderConfig) error {
	if c.Model == nil {
		return errors.New("model is nil, it needs to be a function")
	}
	if c.Capacity < 0 {
		return fmt.Errorf("capacity is %d, it needs to be positive, or 0 for the model's context", c.Capacity)
	}
	var first gorgonia.Nodes
	for length := longestRun; length > 0; length /= 2 {
		g := gorgonia.NewGraph()
		m, err := c.Model(g)
		if err != nil {
			return err
		}
		if m == nil {
			return errors.New("model gave nil, it needs to give a model")
		}
		if length == longestRun {
			first = m.Parameters()
			if d.capacity == 0 {
				d.capacity = m.Context()
			}
			if d.capacity == 0 {
				return errors.New("capacity is 0, it needs to be given for a model whose context has no limit")
			}
			if d.caches, err = m.NewCaches(1, d.capacity); err != nil {
				return err
			}
		}
		if err := shareValues(first, m.Parameters()); err != nil {
			return err
		}
		if length > d.capacity {
			continue
		}
		graph, err := newDecoderGraph(g, m, d.caches, length)
		if err != nil {
			return err
		}
		d.graphs = append(d.graphs, graph)
	}
	return nil
}

// shareValues makes sure that two graphs have the same parameters, not copies.
func shareValues(a, b gorgonia.Nodes) error {
	same := func(x, y *gorgonia.Node) bool { return x.Name() == y.Name() && x.Value() == y.Value() }
	if !slices.EqualFunc(a, b, same) {
		return errors.New("model made the parameters anew in its second call, it needs to make them over one nn.Parameters")
	}
	return nil
}

// Len is the number of tokens in the window.
func (d *Decoder) Len() int { return len(d.window) }

// Capacity is how many tokens fit in the window.
func (d *Decoder) Capacity() int { return d.capacity }

// Window lists the tokens that the next one will follow.
func (d *Decoder) Window() []int { return slices.Clone(d.window) }

// Reset empties the window.
func (d *Decoder) Reset() {
	d.window = d.window[:0]
	for _, cache := range d.caches {
		cache.Reset()
	}
}

// Truncate goes back to the first n tokens of the window, to go on from there in another way: an answer that is taken back costs
// nothing to forget.
func (d *Decoder) Truncate(n int) error {
	if n < 0 || n > len(d.window) {
		return fmt.Errorf("Decoder: %d tokens are to stay, it needs to be from 0 to the window's %d", n, len(d.window))
	}
	for _, cache := range d.caches {
		if err := cache.Truncate(n); err != nil {
			return fmt.Errorf("Decoder: %w", err)
		}
	}
	d.window = d.window[:n]
	return nil
}

// Logits adds tokens, at least one, to the window and gives the model's logits of what comes next, one number for each
// token of the vocabulary. They hold until the next call. Tokens that do not fit push out the older half of the window,
// or as much of it as they need; of more tokens than Capacity only the newest count. After an error the window is empty.
func (d *Decoder) Logits(tokens []int) ([]float64, error) {
	if err := d.feed(tokens); err != nil {
		d.Reset()
		return nil, fmt.Errorf("Decoder: %w", err)
	}
	return d.logits, nil
}

// feed adds tokens to the window and leaves the logits.
func (d *Decoder) feed(tokens []int) error {
	if len(d.graphs) == 0 {
		return errors.New("it is a zero value, it needs to be what NewDecoder gave")
	}
	if len(tokens) == 0 {
		return errors.New("tokens is empty, it needs at least one")
	}
	if len(d.window)+len(tokens) > d.capacity {
		keep := min(d.capacity, max(d.capacity/2, len(tokens)))
		all := slices.Concat(d.window, tokens)
		tokens = all[len(all)-keep:]
		d.Reset()
	}
	var last *decoderGraph
	for _, graph := range d.graphs {
		for n := len(graph.tokens); len(tokens) >= n; tokens = tokens[n:] {
			if err := graph.run(tokens[:n], len(d.window)); err != nil {
				return err
			}
			d.window, last = append(d.window, tokens[:n]...), graph
		}
	}
	logits, err := last.logitsTo(d.logits[:0])
	d.logits = logits
	return err
}

// decoderGraph takes a number of tokens in each run.
type decoderGraph struct {
	tokens, positions []int // what is fed
	feeds             []*ops.Feed
	logits            *gorgonia.Node
	machine           gorgonia.VM
}

func newDecoderGraph(g *gorgonia.ExprGraph, m CachedModel, caches []*ops.KVCache, length int) (*decoderGraph, error) {
	d := &decoderGraph{tokens: make([]int, length), positions: make([]int, length)}
	device, err := ops.DeviceOf(m.Parameters()[0].Value())
	if err != nil {
		return nil, err
	}
	var inputs gorgonia.Nodes
	for _, in := range []struct {
		name string
		ids  []int
	}{{"decoder.tokens", d.tokens}, {"decoder.positions", d.positions}} {
		feed, err := ops.NewFeed(device, tensor.New(tensor.WithShape(1, length), tensor.WithBacking(in.ids)))
		if err != nil {
			return nil, err
		}
		d.feeds, inputs = append(d.feeds, feed), append(inputs, feed.Node(g, in.name))
	}
	if d.logits, err = m.ForwardCached(inputs[0], inputs[1], caches); err != nil {
		return nil, err
	}
	ops.ModeOf(g).Evaluate()
	if d.machine, err = ops.NewMachine(g); err != nil {
		return nil, err
	}
	return d, nil
}

// run adds tokens to the caches, the first of them at the given position.
func (d *decoderGraph) run(tokens []int, position int) error {
	copy(d.tokens, tokens)
	for i := range d.positions {
		d.positions[i] = position + i
	}
	for _, feed := range d.feeds {
		if err := feed.Send(); err != nil {
			return err
		}
	}
	defer d.machine.Reset()
	return d.machine.RunAll()
}

// logitsTo appends the logits of the last run.
func (d *decoderGraph) logitsTo(list []float64) ([]float64, error) {
	v, err := ops.Download(d.logits.Value())
	if err != nil {
		return list, fmt.Errorf("the logits: %w", err)
	}
	switch data := v.Data().(type) {
	case []float64:
		return append(list, data...), nil
	case []float32:
		for _, x := range data {
			list = append(list, float64(x))
		}
		return list, nil
	}
	return list, fmt.Errorf("the logits are %v, they need to be float32 or float64", v.Dtype())
}
