package nn

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// decoderGraph takes a number of tokens of some neighbouring texts in each run.
type decoderGraph struct {
	size              runSize
	tokens, positions []int // what is fed
	feeds             []*ops.Feed
	logits            *gorgonia.Node
	choosing          *ops.Choosing // nil where the logits are read
	machine           gorgonia.VM
	device            *ops.Device // nil for the host

	// On a device, what was recorded of a run, once its memory is there.
	runs       int // unrecorded, so far
	recording  kernels.Recording
	unrecorded error // why runs cannot be recorded
}

// newDecoderGraph makes a graph whose logits are read, or from which a chooser chooses if it is
// given.
func newDecoderGraph(s *Scope, m CachedModel, caches []*ops.KVCache, size runSize, chooser *ops.Chooser) (*decoderGraph, error) {
	rows := size.texts * size.length
	d := &decoderGraph{size: size, tokens: make([]int, rows), positions: make([]int, rows), device: s.values.Device()}
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
		feed, err := ops.NewFeed(d.device, tensor.New(tensor.WithShape(size.texts, size.length), tensor.WithBacking(in.ids)))
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
	if !s.g.To(inputs[1].n.ID()).Next() {
		d.feeds = d.feeds[:1] // nothing reads the positions
	}
	var err error
	if chooser != nil {
		if d.choosing, err = chooser.Add(d.logits); err != nil {
			return nil, err
		}
	}
	ops.ReuseMemory(s.g)
	ops.ModeOf(s.g).Evaluate()
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
			copy(d.tokens[text*d.size.length:], left[text][:d.size.length])
		}
		for i := range d.size.length {
			d.positions[text*d.size.length+i] = first + i
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
	size := v.DataSize() / d.size.texts
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
