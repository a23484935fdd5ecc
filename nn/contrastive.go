package nn

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ContrastiveConfig describes a [Contrastive].
type ContrastiveConfig struct {
	Text, Image TowerConfig // whose vectors have one width
	// Sigmoid asks of each pair whether it belongs together, as SigLIP does, with a bias of the
	// logits. Otherwise each text asks which image is its own and each image which text, as in
	// CLIP.
	Sigmoid bool
}

// TowerConfig describes one side of a [Contrastive].
type TowerConfig struct {
	Encoder EncoderConfig
	Pool    PoolKind // which vector stands for the whole
	End     *int     // in the place of Pool, of texts: the first token of that id, or if it is negative of the highest id
	Probe   bool     // in the place of Pool: attention of one learned query, and an MLP behind it
	Dim     int      // of the linear layer behind; 0 for none
	Bias    bool     // that layer has one
}

// Contrastive gives texts and images vectors that point the same way where the two belong
// together: CLIP and SigLIP.
//
// Its parts are called text and image, which are an [Encoder] each with the linear layer projection
// and, with Probe, probe, attn, probenorm and mlp. Its parameters are logitscale, whose exponential
// multiplies cosines, and with Sigmoid logitbias.
type Contrastive struct {
	layer
	text, image *tower
	sigmoid     bool
	scale, bias Tensor // (1); there is no bias without sigmoid
}

// NewContrastive makes a Contrastive in a scope.
func NewContrastive(s *Scope, c ContrastiveConfig) *Contrastive {
	m := &Contrastive{layer: s.layer("Contrastive"), sigmoid: c.Sigmoid}
	if c.Text.Encoder.Text == nil || c.Image.Encoder.Patches == nil || c.Image.End != nil {
		m.failf("the encoders read something else, it needs one of Text, and one of Patches without End")
		return m
	}
	if text, image := c.Text.width(), c.Image.width(); text != image {
		m.failf("vectors of texts have %d features and those of images %d, it needs one number", text, image)
		return m
	}
	m.text, m.image = newTower(s.Sub("text"), c.Text), newTower(s.Sub("image"), c.Image)
	start := math.Log(1 / 0.07) // CLIP's
	if c.Sigmoid {
		start = math.Log(10)
		m.bias = s.Parameter("logitbias", Constant(-10), 1)
	}
	m.scale = s.Parameter("logitscale", Constant(start), 1)
	return m
}

// width is that of the vectors.
func (c *TowerConfig) width() int {
	if c.Dim > 0 {
		return c.Dim
	}
	return c.Encoder.Block.Attention.Dim
}

// Texts gives texts their vectors, of length 1: (B, S) → (B, Dim).
func (m *Contrastive) Texts(tokens Tensor) Tensor { return m.TextsWith(tokens, EncoderInputs{}) }

// TextsWith is [Contrastive.Texts] with a mask of the padding.
func (m *Contrastive) TextsWith(tokens Tensor, in EncoderInputs) Tensor {
	if !m.given("tokens", tokens) {
		return m.none(tokens)
	}
	return m.text.forward(tokens, in)
}

// Images gives images, (B, Channels, Height, Width), their vectors, of length 1: (B, Dim).
func (m *Contrastive) Images(images Tensor) Tensor {
	if !m.given("images", images) {
		return m.none(images)
	}
	return m.image.forward(images, EncoderInputs{})
}

// Logits says how well each image goes with each text, of what Images and Texts gave: (images,
// texts). A softmax along texts gives the probability of each for an image; of a model with Sigmoid
// a sigmoid gives that of each pair.
func (m *Contrastive) Logits(images, texts Tensor) Tensor {
	if !m.given("images", images) || !m.given("texts", texts) {
		return m.none(images)
	}
	cosines := images.MatMul(texts, ops.MatMulOptions{TransposeB: true}).Cast(m.s.dtype)
	logits := cosines.Mul(m.scale.Exp())
	if m.sigmoid {
		logits = logits.Add(m.bias)
	}
	return logits
}

// Loss is what training makes small, of the logits of as many images as texts, of which those of
// one number belong together.
func (m *Contrastive) Loss(logits Tensor) Tensor {
	n := logits.Dim(0)
	if !m.given("logits", logits) {
		return m.none(logits)
	}
	if len(logits.Shape()) != 2 || logits.Dim(1) != n {
		return m.failf("logits has shape %v, it needs as many images as texts", []int(logits.Shape()))
	}
	if m.sigmoid {
		same := m.s.constant(m.s.child("pairs"), func() *tensor.Dense {
			return denseOf(m.s.dtype, []int{n, n}, func(i int) float64 {
				if i%(n+1) == 0 {
					return 1
				}
				return 0
			})
		})
		return logits.BinaryCrossEntropy(same).Mul(n)
	}
	targets := m.ids("pairs", 1, 2*n, func(_, i int) int { return i % n })
	return Concat(0, logits, logits.Permute(1, 0)).CrossEntropy(targets.Reshape(2 * n))
}

// tower is one side.
type tower struct {
	*Encoder
	c          TowerConfig
	project    Layer // nil for none
	probe      *Embedding
	attn       *MultiHeadAttention
	norm, then Layer
}

func newTower(s *Scope, c TowerConfig) *tower {
	t := &tower{Encoder: NewEncoder(s, c.Encoder), c: c}
	block := c.Encoder.Block
	dim := block.Attention.Dim
	if !t.isMade() {
		return t
	}
	if c.Probe {
		t.probe = NewEmbedding(s.Sub("probe"), EmbeddingConfig{Vocab: 1, Dim: dim})
		t.attn = NewMultiHeadAttention(s.Sub("attn"), MultiHeadAttentionConfig{Dim: dim, Heads: block.Attention.Heads, Cross: true, Init: block.Init})
		t.norm = t.layer.norm("probenorm", nil, block.norm())
		t.then = NewMLP(s.Sub("mlp"), MLPConfig{Dim: dim, Hidden: block.Hidden, Activation: block.Activation, Init: block.Init})
	}
	if c.Dim > 0 {
		t.project = t.linear("projection", nil, LinearConfig{In: dim, Out: c.Dim, NoBias: !c.Bias, Init: block.Init})
	}
	return t
}

// forward gives vectors of length 1.
func (t *tower) forward(x Tensor, in EncoderInputs) Tensor {
	h := t.ForwardWith(x, in)
	if !t.isMade() {
		return t.none(x)
	}
	switch {
	case t.c.Probe:
		h = t.attend(h, in)
	case t.c.End != nil:
		h = t.chosen(x).Cast(h.DType()).MatMul(h).Reshape(h.Dim(0), t.dim)
	case t.c.Pool == MeanPool && !in.KeyLengths.IsZero():
		return t.failf("key lengths are given, and vectors are their mean: it needs a KeyMask")
	default:
		h = Pool(h, t.c.Pool, in.KeyMask)
	}
	if t.project != nil {
		h = t.project.Forward(h)
	}
	// The root of the mean square is 1/√width of the length.
	const least = 1e-30
	return h.apply(func(h *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.RMSNorm(h, nil, ops.NormOptions{Epsilon: least})
	}).
		Mul(1 / math.Sqrt(float64(t.c.width())))
}

// attend is what the probe reads of all that is not hidden.
func (t *tower) attend(h Tensor, in EncoderInputs) Tensor {
	probe := t.probe.Forward(t.ids("probe.ids", h.Dim(0), 1, func(int, int) int { return 0 }))
	h = t.attn.ForwardWith(probe, AttentionInputs{Context: h, KeyMask: in.KeyMask, KeyLengths: in.KeyLengths})
	return h.Add(t.norm.Forward(h).Through(t.then)).Select(1, 0)
}

// chosen is 1 at the token that stands for a text and 0 elsewhere, (B, 1, S): the first of the
// highest rank, which is 0 or 1, or the id itself.
func (t *tower) chosen(tokens Tensor) Tensor {
	vocab, end := t.c.Encoder.Text.Vocab, *t.c.End
	return t.firstHighest(tokens, vocab, func(id int) int {
		if end < 0 {
			return id
		}
		if id == end {
			return 1
		}
		return 0
	})
}

// firstHighest is 1 at the first token of the highest rank in each text and 0 elsewhere, (B, 1, S).
// Ranks and places are so far apart that one has all of their softmax.
func (l layer) firstHighest(tokens Tensor, vocab int, rank func(id int) int) Tensor {
	const apart = 1000 // e^-apart is 0 in float64, too
	batch, length := tokens.Dim(0), tokens.Dim(1)
	ranks := l.s.constant(l.s.child("ranks"), func() *tensor.Dense {
		return denseOf(l.s.dtype, []int{vocab, 1}, func(id int) float64 { return float64(rank(id)) })
	})
	places := l.s.constant(l.s.child(fmt.Sprintf("places.%d", length)), func() *tensor.Dense {
		return denseOf(l.s.dtype, []int{1, 1, length}, func(at int) float64 { return float64(-at) })
	})
	if ranks.failed() || places.failed() {
		return l.none(tokens)
	}
	order := l.s.of(ops.Embedding(ranks.n, tokens.n)).Reshape(batch, 1, length).Mul(length).Add(places).Mul(apart)
	return order.LogSoftmax().Add(1).ReLU()
}
