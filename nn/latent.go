package nn

import (
	"math"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Latent describes the attention of DeepSeek-V2 and V3, which makes keys and values of a latent
// vector of each token:
//
//	q_h = queries_h(x), Turned + Plain numbers
//	k_h = [turned key of the token; Keys_h·latent]      v_h = Values_h·latent
//
// RoPE turns the first Turned numbers of a query, and the turned key, which all heads share. A
// cache holds the latent and the turned key, Rank + Turned numbers a token, however many heads
// there are: q_h·Keys_h·latent = (Keys_hᵀ·q_h)·latent, so that queries go to the latents instead.
//
// The parameters of its [MultiHeadAttention] are those of the linear layer q, or of qa, qb and the
// norm qanorm between them with QueryRank; of kva, whose columns are the latent and then the turned
// key, and the norm kvnorm of the latent; keys.weight, (Heads, Plain, Rank), and values.weight,
// (Heads, Values, Rank); and proj. Only qa, kva and proj have biases.
type Latent struct {
	Rank      int // of the latent
	QueryRank int // of what queries are made of; 0 means x
	Turned    int // what RoPE turns of each head
	Plain     int // what it does not
	Values    int // the size of a head's values
}

// latent is the layers that take the place of k and v.
type latent struct {
	qa, qanorm   Layer // nil for none
	kva, norm    Layer
	keys, values *gorgonia.Node
}

// completeLatent checks the config of a layer with a Latent.
func (m *MultiHeadAttention) completeLatent() bool {
	c, l := &m.c, m.c.Latent
	if !m.positive(size{"latent rank", l.Rank}, size{"latent turned", l.Turned}, size{"latent plain", l.Plain}, size{"latent values", l.Values}) {
		return false
	}
	switch {
	case l.QueryRank < 0:
		return m.refuse("latent query rank is %d, it needs to be positive, or 0 for none", l.QueryRank)
	case c.Cross || c.QKNorm || c.QKNormAll || c.Turn != nil || c.NoKeyBias:
		return m.refuse("Cross, QKNorm, QKNormAll, Turn or NoKeyBias is set, it needs to be none with Latent")
	case c.KVHeads != c.Heads:
		return m.refuse("kv heads is %d, with Latent it needs to be 0 or the %d of queries", c.KVHeads, c.Heads)
	case c.RoPE == nil || c.RoPE.RotaryDim != 0 && c.RoPE.RotaryDim != l.Turned:
		return m.refuse("RoPE is nil or turns another part, with Latent it needs to turn %d dimensions", l.Turned)
	}
	c.HeadDim = l.Turned + l.Plain
	rope := *c.RoPE
	rope.RotaryDim = l.Turned
	c.RoPE = &rope
	return true
}

// latentEpsilon is that of the norms inside, whatever the block has.
const latentEpsilon = 1e-6

// buildLatent makes the parameters of a layer with a Latent but for proj.
func (m *MultiHeadAttention) buildLatent() {
	c, l := m.c, &latent{}
	rank, turned := c.Latent.Rank, c.Latent.Turned
	add := func(part string, in, out int, bias bool) Layer {
		return m.linear(part, c.NewLinear, LinearConfig{In: in, Out: out, NoBias: !bias, Init: c.Init})
	}
	norm := func(part string, dim int) Layer {
		return m.norm(part, nil, NormConfig{Dim: dim, Epsilon: latentEpsilon, RMS: true})
	}
	if middle := c.Latent.QueryRank; middle > 0 {
		l.qa, l.qanorm = add("qa", c.Dim, middle, !c.NoBias), norm("qanorm", middle)
		m.q = add("qb", middle, c.Heads*c.HeadDim, false)
	} else {
		m.q = add("q", c.Dim, c.Heads*c.HeadDim, false)
	}
	l.kva, l.norm = add("kva", c.Dim, rank+turned, !c.NoBias), norm("kvnorm", rank)
	l.keys = m.s.Sub("keys").layer(m.kind).expertsWeight(initOr(c.Init, FanIn), c.Heads, c.Latent.Plain, rank)
	l.values = m.s.Sub("values").layer(m.kind).expertsWeight(initOr(c.Init, FanIn), c.Heads, c.Latent.Values, rank)
	m.latent = l
}

// latents are the queries' heads, the latents and the turned keys of tokens, (..., Turned).
func (m *MultiHeadAttention) latents(x Tensor) (q, latent, turned Tensor) {
	l, rank := m.latent, m.c.Latent.Rank
	q = x
	if l.qa != nil {
		q = x.Through(l.qa, l.qanorm)
	}
	both := l.kva.Forward(x)
	return m.q.Forward(q), l.norm.Forward(both.Slice(-1, 0, rank)), both.Slice(-1, rank, rank+m.c.Latent.Turned)
}

// expanded are the queries, keys and values of all heads.
func (m *MultiHeadAttention) expanded(x Tensor, turn func(Tensor) Tensor) (q, k, v Tensor) {
	q, latent, turned := m.latents(x)
	if !m.isMade() {
		return m.none(x), m.none(x), m.none(x)
	}
	q, turned = m.heads(q, m.c.Heads, nil, turn), m.heads(turned, 1, nil, turn)
	up := func(weight *gorgonia.Node) Tensor {
		w := m.weightBeside(weight, latent)
		flat := latent.MatMul(w.Reshape(-1, m.c.Latent.Rank), ops.MatMulOptions{TransposeB: true})
		return m.heads(flat, m.c.Heads, nil, nil)
	}
	return q, Concat(-1, turned.expand(withLast(q.Shape(), m.c.Latent.Turned)), up(m.latent.keys)), up(m.latent.values)
}

// weightBeside is a weight in the type that x is multiplied in.
func (m *MultiHeadAttention) weightBeside(weight *gorgonia.Node, x Tensor) Tensor {
	w := m.s.of(weight, nil)
	if w.DType() == tensor.Float32 {
		return w.Cast(x.DType())
	}
	return w
}

// attendToLatents is attention with a cache: the queries of all heads see the latents that it
// holds.
func (m *MultiHeadAttention) attendToLatents(x Tensor, cache *ops.KVCache, o ops.AttentionOptions) Tensor {
	q, latent, turned := m.latents(x)
	if !m.isMade() {
		return m.none(x)
	}
	l := m.c.Latent
	if o.Scale == 0 {
		o.Scale = 1 / math.Sqrt(float64(m.c.HeadDim))
	}
	q = m.heads(q, m.c.Heads, nil, nil)
	byHead := func(h Tensor, weight *gorgonia.Node, options ...ops.MatMulOptions) Tensor {
		return h.Permute(0, 2, 1, 3).MatMul(m.weightBeside(weight, h), options...).Permute(0, 2, 1, 3)
	}
	plain := byHead(q.Slice(-1, l.Turned, l.Turned+l.Plain), m.latent.keys)
	q = Concat(-1, q.Slice(-1, 0, l.Turned), plain)
	k, v := m.heads(Concat(-1, turned, latent), 1, nil, nil), m.heads(latent, 1, nil, nil)
	if !m.isMade() {
		return m.none(x)
	}
	out := byHead(m.s.of(ops.CachedAttention(q.n, k.n, v.n, cache, m.cached(o))), m.latent.values, ops.MatMulOptions{TransposeB: true})
	return out.Reshape(withLast(x.Shape(), m.c.Heads*l.Values)...)
}
