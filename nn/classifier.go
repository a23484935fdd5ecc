package nn

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// PoolKind is how one vector comes to stand for a sequence.
type PoolKind int

const (
	FirstPool PoolKind = iota // that of the first token, as BERT does
	MeanPool                  // the mean of those that are not hidden
	LastPool                  // that of the last token, hidden or not
)

// Pool makes a vector of each sequence: (B, S, Dim) → (B, Dim). KeyMask, (B, S), is true where
// there is a token and no padding; none hides nothing. FirstPool and LastPool do not look at it.
func Pool(x Tensor, kind PoolKind, keyMask Tensor) Tensor {
	switch shape := x.Shape(); {
	case x.in == nil || x.failed():
		return x
	case len(shape) != 3:
		return x.fail(fmt.Errorf("Pool: x has shape %v, it needs three axes (batch, length, features)", []int(shape)))
	case kind == FirstPool:
		return x.Select(1, 0)
	case kind == LastPool:
		return x.Select(1, -1)
	case kind != MeanPool:
		return x.fail(fmt.Errorf("Pool: kind is %d, it needs to be FirstPool, MeanPool or LastPool", kind))
	}
	return meanOver(x, keyMask)
}

// meanOver is attention by queries that are zero, which weigh all keys alike: heads of features are
// the values.
func meanOver(x, keyMask Tensor) Tensor {
	const widest = 128 // of a head
	batch, length, dim := x.Dim(0), x.Dim(1), x.Dim(2)
	heads := (dim + widest - 1) / widest
	for dim%heads != 0 {
		heads++
	}
	v := x.Reshape(batch, length, heads, dim/heads)
	q := v.Select(1, 0).Mul(0).Reshape(batch, 1, heads, dim/heads)
	if q.failed() {
		return q
	}
	o := ops.AttentionOptions{Layout: ops.BSHD}
	if !keyMask.IsZero() {
		biases := tensor.Float32
		if x.DType() == tensor.Float64 {
			biases = tensor.Float64
		}
		if keyMask.n == nil {
			return keyMask
		}
		if o.Bias = x.in.of(ops.KeyMask(keyMask.n, nil, biases)).n; o.Bias == nil {
			return Tensor{in: x.in}
		}
	}
	return x.in.of(ops.FlashAttention(q.n, v.n, v.n, o)).Reshape(batch, dim)
}

// ClassifierConfig describes a [Classifier].
type ClassifierConfig struct {
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
	layer
	pool        PoolKind
	hidden, out Layer // hidden is nil for none
	drop        *Dropout
}

// NewClassifier makes a Classifier in a scope.
func NewClassifier(s *Scope, c ClassifierConfig) *Classifier {
	m := &Classifier{layer: s.layer("Classifier"), pool: c.Pool}
	if !m.positive(size{"dim", c.Dim}, size{"classes", c.Classes}) {
		return m
	}
	if c.Hidden < 0 {
		m.failf("hidden is %d, it needs to be positive, or 0 for none", c.Hidden)
		return m
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUErf
	}
	in := c.Dim
	if c.Hidden > 0 {
		m.hidden = m.linear("hidden", nil, LinearConfig{In: in, Out: c.Hidden, Activation: c.Activation, Init: c.Init})
		in = c.Hidden
	}
	m.drop = m.dropout("drop", c.Dropout)
	m.out = m.linear("out", nil, LinearConfig{In: in, Out: c.Classes, Init: c.Init})
	return m
}

// Forward gives the logits of sequences without padding.
func (m *Classifier) Forward(x Tensor) Tensor { return m.ForwardWith(x, Tensor{}) }

// ForwardWith is [Classifier.Forward] with a mask of the tokens; see [Pool].
func (m *Classifier) ForwardWith(x, keyMask Tensor) Tensor {
	if !m.given("x", x) {
		return m.none(x)
	}
	x = Pool(x, m.pool, keyMask)
	if m.hidden != nil {
		x = m.hidden.Forward(x)
	}
	return x.Through(m.drop, m.out)
}
