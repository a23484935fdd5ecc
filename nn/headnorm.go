package nn

import "github.com/stheno-ml/stheno/ops"

// QKNormKind is what normalises the heads of queries and keys.
type QKNormKind int

const (
	HeadRMSNorm    QKNormKind = iota // an RMSNorm whose weight all heads share, as in Qwen 3
	HeadLayerNorm                    // a LayerNorm whose weight and bias all heads share, as in Phi
	HeadLayerNorms                   // a LayerNorm without a bias, with a weight for each head, as in Command R+

	qkNormKinds
)

// completeNorms checks what normalises and bounds queries and keys.
func (m *MultiHeadAttention) completeNorms() bool {
	c := &m.c
	switch {
	case c.QKNormKind < HeadRMSNorm || c.QKNormKind >= qkNormKinds:
		return m.refuse("QKNormKind is %d, it needs to be HeadRMSNorm, HeadLayerNorm or HeadLayerNorms", c.QKNormKind)
	case c.QKNormKind != HeadRMSNorm && !c.QKNorm:
		return m.refuse("QKNormKind is set, it needs QKNorm")
	case c.QKNormKind != HeadRMSNorm && c.NormPlusOne:
		return m.refuse("NormPlusOne is set, QKNormKind needs to be HeadRMSNorm")
	case !m.nonNegative("clip", c.Clip, "none"):
		return false
	case c.Clip > 0 && (c.QKNorm || c.Latent != nil || c.places != nil):
		return m.refuse("Clip is set, it needs to be without QKNorm, Latent and Disentangled")
	}
	return true
}

// headNorm makes the norm of so many heads.
func (m *MultiHeadAttention) headNorm(part string, heads int) Layer {
	norm := NormConfig{Dim: m.c.HeadDim, Epsilon: m.c.Epsilon, RMS: m.c.QKNormKind == HeadRMSNorm, PlusOne: m.c.NormPlusOne}
	switch {
	case m.c.QKNormAll:
		norm.Dim *= heads
	case m.c.QKNormKind == HeadLayerNorms:
		l := m.s.Sub(part).layer("LayerNorm")
		return &headNorms{layer: l, weight: l.s.Parameter("weight", Constant(1), heads, norm.Dim), epsilon: norm.Epsilon}
	}
	return m.norm(part, nil, norm)
}

// headNorms normalises each of (..., heads, HeadDim), and scales each feature of each head. Its
// parameter is weight, (heads, HeadDim).
type headNorms struct {
	layer
	weight  Tensor
	epsilon float64
}

func (n *headNorms) Forward(x Tensor) Tensor {
	if !n.given("x", x) {
		return n.none(x)
	}
	y := n.s.of(ops.LayerNorm(x.n, nil, nil, ops.NormOptions{Epsilon: n.epsilon}))
	return y.Mul(n.weight.Cast(y.DType()))
}
