package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// SourceModel is a [CachedModel] that reads a source first, whose memories stand behind the caches
// that ForwardCached gets: an [EncoderDecoder] is one.
type SourceModel interface {
	CachedModel
	// SourceContext is the longest source, in vectors.
	SourceContext() int
	// NewMemories is an empty cache for each layer that reads the source.
	NewMemories(batch, capacity int) ([]*ops.KVCache, error)
	// Memorise gives the keys and values of a source for each memory, one after the other.
	Memorise(source Tensor) []Tensor
}

// sourceGraph reads sources of a shape.
type sourceGraph struct {
	shape   tensor.Shape
	feed    *ops.Feed
	values  []Tensor // keys and values, one after the other
	machine gorgonia.VM
}

// Read gives the decoder a source, which it reads as a whole: tokens, (length) of int, or spectra,
// (length, bins). The window is empty then: the first tokens are those that the model's texts begin
// with.
func (d *Decoder) Read(source *tensor.Dense) error {
	if err := d.b.readSource(0, source); err != nil {
		return fmt.Errorf("Decoder: %w", err)
	}
	return nil
}

// Read gives a text of the batch its source; see [Decoder.Read].
func (d *BatchDecoder) Read(text int, source *tensor.Dense) error {
	if text < 0 || text >= d.Batch() {
		return fmt.Errorf("BatchDecoder: text is %d, it needs to be at least 0 and less than the batch of %d", text, d.Batch())
	}
	if err := d.b.readSource(text, source); err != nil {
		return fmt.Errorf("BatchDecoder: %w", err)
	}
	return nil
}

func (d *batchDecoder) readSource(text int, source *tensor.Dense) error {
	switch {
	case len(d.graphs) == 0:
		return errZeroDecoder
	case len(d.memories) == 0:
		return errors.New("a source is given, the model reads none")
	case source == nil:
		return errors.New("source is nil, it needs to be tokens or spectra")
	}
	shape := append([]int{1}, source.Shape()...)
	one := source.ShallowClone()
	if err := one.Reshape(shape...); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if d.reader == nil || !slices.Equal(d.reader.shape, shape) {
		if err := d.newReader(one); err != nil {
			return err
		}
	}
	if err := d.reader.run(one); err != nil {
		return err
	}
	for i, memory := range d.memories {
		k, v := d.reader.values[2*i].Node().Value().(*tensor.Dense), d.reader.values[2*i+1].Node().Value().(*tensor.Dense)
		if err := memory.SetItem(text, k, v); err != nil {
			return err
		}
	}
	d.reader.machine.Reset()
	return d.truncate(text, 0)
}

// newReader makes the graph for sources of the shape of one.
func (d *batchDecoder) newReader(one *tensor.Dense) error {
	s, m, err := d.model()
	if err != nil {
		return err
	}
	on := tensor.New(tensor.Of(one.Dtype()), tensor.WithShape(one.Shape()...))
	feed, err := ops.NewFeed(d.c.Parameters.Device(), on)
	if err != nil {
		return err
	}
	r := &sourceGraph{shape: slices.Clone(one.Shape()), feed: feed}
	r.values = m.(SourceModel).Memorise(s.of(feed.Node(s.g, "decoder.source"), nil))
	if s.err != nil {
		return s.err
	}
	if len(r.values) != 2*len(d.memories) {
		return fmt.Errorf("the model memorises %d tensors, it needs two for each of the %d memories", len(r.values), len(d.memories))
	}
	for _, x := range r.values {
		ops.Keep(x.n)
	}
	ops.ModeOf(s.g).Evaluate()
	if r.machine, err = ops.NewMachine(s.g); err == nil {
		d.reader = r
	}
	return err
}

func (r *sourceGraph) run(one *tensor.Dense) error {
	if err := r.feed.Fill(one); err != nil {
		return err
	}
	if err := r.feed.Send(); err != nil {
		return err
	}
	return r.machine.RunAll()
}
