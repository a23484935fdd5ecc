package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ChooseTokens chooses the next token of each of B texts by its logits, (B, V): see
// [kernels.ChooseTokens], which says what the other inputs are. It gives the tokens, (B) of int64,
// and their log-probabilities, (B) of float32, and has no gradient. A [Chooser] feeds it.
func ChooseTokens(logits, settings, random, earlier *gorgonia.Node) (ids, logProbs *gorgonia.Node, err error) {
	problem := func(in tensors) *kernels.ChooseTokens {
		return &kernels.ChooseTokens{Logits: in[0], Settings: in[1], Random: in[2], Earlier: in[3]}
	}
	outputs, err := applyAll("ChooseTokens", kernel{
		describe: func(in tensors) (description, error) {
			if err := problem(in).Validate(); err != nil {
				return description{}, err
			}
			texts := in[0].Shape[0]
			return description{outputs: tensors{kernels.Contiguous(nil, kernels.I64, texts), kernels.Contiguous(nil, kernels.F32, texts)}, gradients: noGradient}, nil
		},
		forward: func(r *run, in, out tensors) error {
			return r.ChooseTokens(problem(in), kernels.ChosenTokens{IDs: out[0], LogProbs: out[1]})
		},
	}, input{name: "logits", node: logits, form: constantForm}, input{name: "settings", node: settings, form: constantForm},
		input{name: "random", node: random, form: indexForm}, input{name: "earlier", node: earlier, form: indexForm})
	if err != nil {
		return nil, nil, err
	}
	return outputs[0], outputs[1], nil
}

// Chooser feeds graphs that choose tokens, of up to so many texts each, with how they are chosen.
type Chooser struct {
	device  *Device
	texts   int
	earlier *Feed   // of all graphs, of which one runs at a time; nil until there is one
	list    []int32 // its elements
	sent    bool    // the last list had pairs
}

// NewChooser makes one for graphs on a device, or on the host where the device is nil.
func NewChooser(d *Device, texts int) (*Chooser, error) {
	const most = 1 << 16
	if texts < 1 || texts > most {
		return nil, fmt.Errorf("Chooser: texts is %d, it needs to be from 1 to %d", texts, most)
	}
	return &Chooser{device: d, texts: texts}, nil
}

// Choosing is the choice of tokens in one graph.
type Choosing struct {
	of               *Chooser
	tokens           int
	ids, logProbs    *gorgonia.Node
	settings, random *Feed
	ofSettings       []float32
	ofRandom         []int64
	asked            bool // for log-probabilities
}

var errZeroChoosing = errors.New("Chooser: the choosing is a zero value, it needs to be what Add gave")

// Add adds the choice by logits, (B, V), to a graph. All graphs of a chooser have the same V.
func (c *Chooser) Add(logits *gorgonia.Node) (*Choosing, error) {
	const op = "Chooser"
	if logits == nil || logits.Dims() != 2 || logits.Shape()[0] > c.texts {
		return nil, fmt.Errorf("%s: logits needs to be a node of shape (texts, tokens), of at most %d texts", op, c.texts)
	}
	texts, tokens := logits.Shape()[0], logits.Shape()[1]
	if err := c.makeEarlier(tokens); err != nil {
		return nil, err
	}
	g := &Choosing{of: c, tokens: tokens, ofSettings: make([]float32, texts*kernels.ChoiceSettings), ofRandom: make([]int64, texts)}
	var err error
	if g.settings, err = NewFeed(c.device, tensor.New(tensor.WithShape(texts, kernels.ChoiceSettings), tensor.WithBacking(g.ofSettings))); err != nil {
		return nil, err
	}
	if g.random, err = NewFeed(c.device, tensor.New(tensor.WithShape(texts), tensor.WithBacking(g.ofRandom))); err != nil {
		return nil, err
	}
	// A run may come before the first Send: that of a prompt's beginning, whose choice nobody
	// reads.
	if err := errors.Join(g.settings.Send(), g.random.Send()); err != nil {
		return nil, err
	}
	graph := logits.Graph()
	g.ids, g.logProbs, err = ChooseTokens(logits, g.settings.Node(graph, "choice.settings"), g.random.Node(graph, "choice.random"), c.earlier.Node(graph, "choice.earlier"))
	if err != nil {
		return nil, err
	}
	return g, nil
}

// makeEarlier makes the list of earlier tokens, if it is not there. It has room for every token of
// every text; what a run reads of it is sent.
func (c *Chooser) makeEarlier(tokens int) (err error) {
	if size := c.texts + 1 + 2*c.texts*tokens; c.earlier == nil {
		c.list = make([]int32, size)
		if c.earlier, err = NewFeed(c.device, tensor.New(tensor.WithShape(size), tensor.WithBacking(c.list))); err != nil {
			return err
		}
		return c.earlier.SendFirst(c.texts + 1)
	} else if size != len(c.list) {
		return fmt.Errorf("Chooser: logits are of %d tokens, they need to be of as many in all graphs", tokens)
	}
	return nil
}

// Send says how the tokens of the next run are chosen, one choice a text.
func (g *Choosing) Send(choices []kernels.Choice) error {
	if g.of == nil {
		return errZeroChoosing
	}
	if len(choices) != len(g.ofRandom) {
		return fmt.Errorf("Chooser: there are %d choices, it needs one for each of the %d texts", len(choices), len(g.ofRandom))
	}
	before := slices.Clone(g.ofSettings)
	draws := false
	g.asked = false
	for text := range choices {
		c := &choices[text]
		if err := c.Validate(); err != nil {
			return fmt.Errorf("Chooser: text %d: %w", text, err)
		}
		row := c.Settings()
		copy(g.ofSettings[text*kernels.ChoiceSettings:], row[:])
		g.ofRandom[text] = int64(c.Random)
		draws, g.asked = draws || c.Temperature != 0, g.asked || c.LogProb
	}
	if !slices.Equal(before, g.ofSettings) {
		if err := g.settings.Send(); err != nil {
			return err
		}
	}
	if draws {
		if err := g.random.Send(); err != nil {
			return err
		}
	}
	return g.of.send(choices, g.tokens)
}

// send hands on the earlier tokens of each text.
func (c *Chooser) send(choices []kernels.Choice, tokens int) error {
	at := len(choices) + 1
	pairs := at
	for text := range choices {
		c.list[text] = int32((at - pairs) / 2)
		if n := len(choices[text].Earlier); n > tokens {
			return fmt.Errorf("Chooser: text %d has %d earlier tokens, it needs to have each of the %d tokens once", text, n, tokens)
		}
		for _, e := range choices[text].Earlier {
			c.list[at], c.list[at+1] = e.ID, e.Chosen
			at += 2
		}
	}
	some := at > pairs
	c.list[len(choices)] = int32((at - pairs) / 2)
	if !some && !c.sent {
		return nil
	}
	if !some {
		clear(c.list[:c.texts+1]) // also for graphs of more texts
		at = c.texts + 1
	}
	c.sent = some
	return c.earlier.SendFirst(at)
}

// Read gives the tokens that the last run chose, one a text.
func (g *Choosing) Read() ([]kernels.Chosen, error) {
	if g.of == nil {
		return nil, errZeroChoosing
	}
	v, err := Download(g.ids.Value())
	if err != nil {
		return nil, fmt.Errorf("Chooser: the tokens: %w", err)
	}
	list := make([]kernels.Chosen, len(g.ofRandom))
	for text, id := range v.Data().([]int64) {
		if list[text].ID = int(id); id < 0 {
			list[text] = kernels.Chosen{ID: -1, Err: kernels.ChoiceError(int(id), g.tokens)}
		}
	}
	if !g.asked {
		return list, nil
	}
	if v, err = Download(g.logProbs.Value()); err != nil {
		return nil, fmt.Errorf("Chooser: the log-probabilities: %w", err)
	}
	for text, x := range v.Data().([]float32) {
		list[text].LogProb = float64(x)
	}
	return list, nil
}
