package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// PoolKind is how one vector comes to stand for a sequence.
type PoolKind int

const (
	FirstPool PoolKind = iota // that of the first token, as BERT does
	MeanPool                  // the mean of those that are not hidden
	LastPool                  // that of the last token, hidden or not
)

// Pool makes a vector of each sequence: (B, S, Dim) → (B, Dim). KeyMask, (B, S), is true where there is a token and no padding; nil
// hides nothing. FirstPool and LastPool do not look at it.
func Pool(x *gorgonia.Node, kind PoolKind, keyMask *gorgonia.Node) (*gorgonia.Node, error) {
	switch {
	case x == nil:
		return nil, fmt.Errorf("Pool: x is nil, it needs to be a node")
	case len(x.Shape()) != 3:
		return nil, fmt.Errorf("Pool: x has shape %v, it needs three axes (batch, length, features)", []int(x.Shape()))
	case kind == FirstPool:
		return ops.Select(x, 1, 0)
	case kind == LastPool:
		return ops.Select(x, 1, x.Shape()[1]-1)
	case kind != MeanPool:
		return nil, fmt.Errorf("Pool: kind is %d, it needs to be FirstPool, MeanPool or LastPool", kind)
	}
	return meanOver(x, keyMask)
}

// meanOver is attention by queries that are zero, which weigh all keys alike: heads of features are the values.
func meanOver(x, keyMask *gorgonia.Node) (*gorgonia.Node, error) {
	const widest = 128 // of a head
	shape := x.Shape()
	heads := (shape[2] + widest - 1) / widest
	for shape[2]%heads != 0 {
		heads++
	}
	v, err := gorgonia.Reshape(x, tensor.Shape{shape[0], shape[1], heads, shape[2] / heads})
	if err != nil {
		return nil, fmt.Errorf("Pool: %w", err)
	}
	first, err := ops.Select(v, 1, 0)
	if err != nil {
		return nil, err
	}
	if first, err = ops.Scale(first, 0); err != nil {
		return nil, err
	}
	q, err := gorgonia.Reshape(first, tensor.Shape{shape[0], 1, heads, shape[2] / heads})
	if err != nil {
		return nil, fmt.Errorf("Pool: %w", err)
	}
	o := ops.AttentionOptions{Layout: ops.BSHD}
	if keyMask != nil {
		if o.Bias, err = ops.KeyMask(keyMask, nil, maskType(x.Dtype())); err != nil {
			return nil, err
		}
	}
	out, err := ops.FlashAttention(q, v, v, o)
	if err != nil {
		return nil, err
	}
	return gorgonia.Reshape(out, tensor.Shape{shape[0], shape[2]})
}

// maskType is the type of biases beside activations of a type.
func maskType(d tensor.Dtype) tensor.Dtype {
	if d == tensor.Float64 {
		return d
	}
	return tensor.Float32
}

// ClassifierConfig describes a [Classifier].
type ClassifierConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the values live; nil: new ones, from seed 0

	Dim, Classes int
	Pool         PoolKind
	Hidden       int                // of a layer between, with Activation; 0 for none
	Activation   kernels.Activation // zero means GELUErf
	Dropout      float64            // of what the last layer reads
	Init         Init               // of the weights; nil means FanIn
}

// Classifier makes logits of sequences' classes: (B, S, Dim) → (B, Classes).
//
// Its parameters are those of the linear layers out, and hidden where there is one.
type Classifier struct {
	*scope
	pool        PoolKind
	hidden, out Layer // hidden is nil for none
	drop        *Dropout
}

// NewClassifier adds the parameters of a Classifier to a graph.
func NewClassifier(g *gorgonia.ExprGraph, c ClassifierConfig) (*Classifier, error) {
	s, err := newScope("Classifier", g, c.Name, c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if err := s.positive(size{"dim", c.Dim}, size{"classes", c.Classes}); err != nil {
		return nil, err
	}
	if c.Hidden < 0 {
		return nil, s.errorf("hidden is %d, it needs to be positive, or 0 for none", c.Hidden)
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	m := &Classifier{scope: s, pool: c.Pool}
	in := c.Dim
	if c.Hidden > 0 {
		if m.hidden, err = s.linear("hidden", nil, LinearConfig{In: in, Out: c.Hidden, Activation: c.Activation, Init: c.Init}); err != nil {
			return nil, err
		}
		in = c.Hidden
	}
	if m.drop, err = s.dropout("drop", c.Dropout, nil); err != nil {
		return nil, err
	}
	m.out, err = s.linear("out", nil, LinearConfig{In: in, Out: c.Classes, Init: c.Init})
	return made(m, err)
}

// Forward gives the logits of sequences without padding.
func (m *Classifier) Forward(x *gorgonia.Node) (*gorgonia.Node, error) { return m.ForwardWith(x, nil) }

// ForwardWith is [Classifier.Forward] with a mask of the tokens; see [Pool].
func (m *Classifier) ForwardWith(x, keyMask *gorgonia.Node) (*gorgonia.Node, error) {
	if err := m.isMade(); err != nil {
		return nil, err
	}
	x, err := Pool(x, m.pool, keyMask)
	if err != nil {
		return nil, err
	}
	if m.hidden != nil {
		if x, err = m.hidden.Forward(x); err != nil {
			return nil, err
		}
	}
	return Chain(x, m.drop, m.out)
}

// Parameters lists the weights and biases.
func (m *Classifier) Parameters() gorgonia.Nodes {
	return parametersOf(m.hidden, m.out)
}
