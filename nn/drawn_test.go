package nn_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var (
	drawnModels = flag.Int("models", 10, "how many drawn language models are compared in every way that promises the same")
	modelSeed   = flag.Uint64("model-seed", 1, "the first seed of those models")
)

// drawer draws the options of a language model.
type drawer struct{ *rand.Rand }

// one reports true once in n times.
func (d drawer) one(n int) bool { return d.IntN(n) == 0 }

func (d drawer) of(list ...int) int { return list[d.IntN(len(list))] }

func (d drawer) maybe(x float64) float64 {
	if d.one(3) {
		return x
	}
	return 0
}

func (d drawer) bias() *bool { return []*bool{nil, nil, new(true), new(false)}[d.IntN(4)] }

func (d drawer) rope(headDim int) *ops.RoPEOptions {
	o := ops.RoPEOptions{Base: d.maybe(100), Scaling: d.maybe(1.7), Interleaved: d.one(3), Amplitude: d.maybe(1.2)}
	if d.one(3) {
		o.Offset = 3
	}
	if d.one(3) {
		o.RotaryDim = 2
	}
	stretched, err := o, error(nil)
	switch d.IntN(6) {
	case 0:
		stretched, err = nn.YaRN{Factor: 2.5, Context: 30}.Apply(o, headDim)
	case 1:
		stretched, err = nn.Llama3RoPE{Factor: 3, Low: 1, High: 4, Context: 40}.Apply(o, headDim)
	}
	if err == nil {
		o = stretched
	}
	return &o
}

func (d drawer) attention() nn.MultiHeadAttentionConfig {
	c := nn.MultiHeadAttentionConfig{Dim: d.of(8, 12), Heads: d.of(1, 2, 4), HeadDim: d.of(0, 0, 4, 6), NoBias: d.one(2), NoProjBias: d.one(4), NoKeyBias: d.one(4),
		Separate: d.one(3), Clip: d.maybe(0.7), Sinks: d.one(4)}
	switch d.IntN(5) {
	case 0:
		c.QKNorm, c.QKNormKind = true, nn.QKNormKind(d.IntN(3))
	case 1:
		c.QKNormAll = true
	}
	c.NormPlusOne = (c.QKNorm || c.QKNormAll) && d.one(3)
	headDim := c.HeadDim
	if headDim == 0 {
		headDim = c.Dim / c.Heads
	}
	if d.one(2) {
		c.KVHeads = d.of(1, c.Heads)
	}
	if d.one(2) && headDim%2 == 0 {
		c.RoPE = d.rope(headDim)
	}
	o := &c.Options
	o.Causal = []kernels.Causal{kernels.CausalBottomRight, kernels.CausalBottomRight, kernels.CausalTopLeft}[d.IntN(3)]
	o.Scale, o.SoftCap, o.Dropout = d.maybe(0.4), d.maybe(1.5), ops.Drop{P: d.maybe(0.2)}
	if d.one(3) {
		o.Window = &kernels.Window{Left: d.of(-1, 0, 1, 4, 9), Right: d.of(-1, 0, 2)}
	}
	if d.one(4) {
		for h := range c.Heads {
			o.ALiBi = append(o.ALiBi, 0.4/float64(h+1))
		}
	}
	if d.one(5) {
		o.Score = score.SoftCap(2)
	}
	if d.one(5) {
		o.Mask = func(p ops.Pair) ops.Cond { return p.Key.Rem(3).Equal(0).Or(p.Position().Sub(p.Key).Less(2)) }
	}
	if d.one(6) {
		c.Latent = &nn.Latent{Rank: 5, QueryRank: d.of(0, 7), Turned: 4, Plain: 3, Values: 6}
		c.RoPE, c.HeadDim, c.KVHeads = d.rope(4), 0, 0
	}
	return c
}

func (d drawer) block() nn.BlockConfig {
	c := nn.BlockConfig{Attention: d.attention(), Hidden: d.of(5, 9), Gated: d.one(2), Activation: kernels.Activation(d.IntN(int(kernels.Tanh) + 1)), MLPBias: d.bias(),
		RMSNorm: d.one(2), NormBias: d.bias(), Norms: nn.NormPlace(d.IntN(int(nn.ParallelNorms) + 1)), Dropout: d.maybe(0.1), MLPDropout: d.maybe(0.1),
		Residual: d.maybe(0.6), Scales: d.one(4), Recompute: d.one(3)}
	c.NormPlusOne = c.RMSNorm && d.one(4)
	if c.RMSNorm {
		c.NormBias = nil
	}
	if d.one(5) {
		experts := nn.ExpertsConfig{Dim: c.Attention.Dim, Hidden: 4, Count: 4, RouterBias: d.one(2), Corrected: d.one(3), Bias: d.one(2),
			Router: kernels.RouterOptions{Chosen: d.of(1, 1, 2, 3), Normalize: d.one(2), Scores: kernels.RouterScores(d.IntN(2)), Scale: d.maybe(1.3)}}
		if d.one(2) {
			experts.Shared = nn.SharedExpert{Hidden: 3, Gated: d.one(2), Bias: d.one(2)}
		}
		if d.one(4) {
			experts.Router.Groups, experts.Router.KeptGroups, experts.Router.GroupChoice = 2, 1, kernels.GroupChoice(d.IntN(2))
		}
		c.NewMLP = func(s *nn.Scope, _ nn.MLPConfig) nn.Layer { return nn.NewExperts(s, experts) }
	}
	return c
}

func (d drawer) model() nn.LanguageModelConfig {
	c := nn.LanguageModelConfig{Vocab: decoderVocab, Context: d.of(0, 80), Layers: d.of(1, 2, 3), Block: d.block(), TokenDim: d.of(0, 0, 0, 5), Positions: d.one(3),
		NoLastNorm: d.one(5), TiedHead: d.one(2), HeadBias: d.one(3), Dropout: d.maybe(0.1), EmbeddingScale: d.maybe(1.5), EmbeddingNorm: d.one(5),
		LogitScale: d.maybe(0.8), LogitSoftCap: d.maybe(2)}
	if c.Positions {
		c.Context, c.PositionKind = 80, nn.PositionKind(d.IntN(3))
		if c.PositionKind == nn.LearnedPositions && d.one(3) {
			c.FirstPosition = 2
		}
	}
	if c.Block.Attention.Options.Score == nil && d.one(5) {
		c.Distances = &nn.DistanceConfig{Buckets: 8, Farthest: 20}
	}
	if d.one(4) {
		c.Change = func(i int, c *nn.BlockConfig) {
			if i%2 == 0 {
				c.Attention.Options.Window, c.Attention.RoPE = &kernels.Window{Left: 3, Right: -1}, nil
				if c.Attention.Latent != nil {
					c.Attention.RoPE = &ops.RoPEOptions{}
				}
			}
		}
	}
	return c
}

// drawnModel is a model over parameters of its own.
type drawnModel struct {
	c      nn.LanguageModelConfig
	p      *nn.Parameters
	trains bool // gradients are those of a training, with dropout
}

func (m drawnModel) on(g *gorgonia.ExprGraph) (*nn.LanguageModel, error) {
	s := nn.NewScope(g, m.p).DType(tensor.Float64)
	return nn.NewLanguageModel(s, m.c), s.Err()
}

// logits are those of Forward: (B, S, Vocab).
func (m drawnModel) logits(t *testing.T, texts ...[]int) []float64 {
	g := gorgonia.NewGraph()
	model, err := m.on(g)
	if err != nil {
		t.Fatal(err)
	}
	logits := must(model.Forward(on(matrixOf(g, "tokens", texts...))))
	evaluate(t, g)
	return floats(t, logits.Value())
}

func matrixOf(g *gorgonia.ExprGraph, name string, rows ...[]int) *gorgonia.Node {
	v := tensor.New(tensor.WithShape(len(rows), len(rows[0])), tensor.WithBacking(slices.Concat(rows...)))
	return gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithName(name), gorgonia.WithShape(len(rows), len(rows[0])), gorgonia.WithValue(v))
}

// loss is that of texts of one length, and its gradients by name if they are asked for.
func (m drawnModel) loss(t *testing.T, gradients bool, texts ...[]int) (float64, map[string][]float64) {
	g := gorgonia.NewGraph()
	model, err := m.on(g)
	if err != nil {
		t.Fatal(err)
	}
	targets := make([][]int, len(texts))
	for n, text := range texts {
		for i := range text {
			targets[n] = append(targets[n], next(text, i))
		}
	}
	cost := must(model.Loss(on(matrixOf(g, "tokens", texts...)), on(matrixOf(g, "targets", targets...))))
	return m.run(t, g, model, cost, gradients)
}

func (m drawnModel) run(t *testing.T, g *gorgonia.ExprGraph, model *nn.LanguageModel, cost *gorgonia.Node, gradients bool) (float64, map[string][]float64) {
	var loss gorgonia.Value
	gorgonia.Read(cost, &loss)
	if !gradients {
		evaluate(t, g)
		return loss.Data().(float64), nil
	}
	if !m.trains {
		ops.ModeOf(g).Evaluate()
	}
	var trained gorgonia.Nodes
	for _, n := range model.Parameters() {
		if !strings.HasSuffix(n.Name(), "correction") {
			trained = append(trained, n)
		}
	}
	differentiate(t, "tape", g, cost, trained)
	all := map[string][]float64{}
	for _, n := range trained {
		v, err := n.Grad()
		if err != nil {
			t.Fatalf("%s: %v", n.Name(), err)
		}
		all[n.Name()] = slices.Clone(floats(t, v))
	}
	return loss.Data().(float64), all
}

// packedLoss is that of texts that lie end to end.
func (m drawnModel) packedLoss(t *testing.T, texts ...[]int) (float64, map[string][]float64) {
	g := gorgonia.NewGraph()
	model, err := m.on(g)
	if err != nil {
		t.Fatal(err)
	}
	vector := func(name string, list []int) nn.Tensor {
		return on(gorgonia.NewVector(g, tensor.Int, gorgonia.WithName(name), gorgonia.WithShape(len(list)), gorgonia.WithValue(tensor.New(tensor.WithBacking(list)))))
	}
	var tokens, targets, positions []int
	ends := []int{0}
	for _, s := range texts {
		for i, id := range s {
			tokens, positions, targets = append(tokens, id), append(positions, i), append(targets, next(s, i))
		}
		ends = append(ends, len(tokens))
	}
	cost := must(model.LossPacked(vector("tokens", tokens), vector("targets", targets),
		nn.Packing{Ends: vector("ends", ends), Positions: vector("positions", positions)}))
	return m.run(t, g, model, cost, true)
}

// A drawn model, with changes of low rank or without, says the same of a text alone, in a batch, as
// far as it goes, piece by piece from a cache, and end to end with others; its loss is that of its
// logits, and its gradients are those of the loss.
func TestDrawnModels(t *testing.T) {
	slow.Race(t)
	slow.Emulated(t)
	refused := map[string]int{}
	for n := range *drawnModels {
		seed := *modelSeed + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := drawer{rand.New(rand.NewPCG(seed, 21))}
			m := drawnModel{c: d.model(), p: nn.NewParameters(1)}
			if d.one(3) {
				lora := nn.LoRA{Rank: 2, Alpha: 3, Embeddings: func(name string) bool { return name == "tokens" }}
				if err := m.p.SetLoRA(lora); err != nil {
					t.Fatal(err)
				}
			}
			g := gorgonia.NewGraph()
			model, err := m.on(g)
			if err == nil {
				err = model.Forward(on(matrixOf(g, "tokens", []int{1}))).Err()
			}
			if err != nil {
				refused[err.Error()]++
				return
			}
			setParameters(t, m.p, model.Parameters())
			defer func() {
				if t.Failed() {
					t.Logf("%+v", m.c)
				}
			}()
			m.check(t, d)
		})
	}
	tellRefused(t, refused)
}

// tellRefused logs why drawn models were refused, and fails where half of them were.
func tellRefused(t *testing.T, refused map[string]int) {
	t.Helper()
	sum := 0
	for what, n := range refused {
		t.Logf("%d refused: %s", n, what)
		sum += n
	}
	if sum > *drawnModels/2 {
		t.Errorf("%d of %d models were refused", sum, *drawnModels)
	}
}

func (m drawnModel) check(t *testing.T, d drawer) {
	text := func(n int) (list []int) {
		for range n {
			list = append(list, d.IntN(decoderVocab))
		}
		return list
	}
	const length = 14
	a, b := text(length), text(length)
	both := m.logits(t, a, b)
	row := func(text, i int) []float64 { return both[(text*length+i)*decoderVocab:][:decoderVocab] }
	compare(t, "a text alone", tensor.Float64, m.logits(t, b), both[length*decoderVocab:], 1)
	short := m.logits(t, a[:5])
	compare(t, "the start of a text", tensor.Float64, short, both[:5*decoderVocab], 1)

	m.checkPadding(t, a, b)

	build := func(s *nn.Scope) nn.CachedModel { return nn.NewLanguageModel(s.DType(tensor.Float64), m.c) }
	decoder, err := nn.NewDecoder(nn.DecoderConfig{Parameters: m.p, Capacity: 40, Model: build})
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < length; {
		n := min(length-at, d.of(1, 1, 2, 5))
		logits, err := decoder.Logits(a[at : at+n])
		if err != nil {
			t.Fatal(err)
		}
		at += n
		compare(t, fmt.Sprintf("a text from a cache, after %d tokens", at), tensor.Float64, logits, row(0, at-1), 1)
	}
	batch, err := nn.NewBatchDecoder(2, nn.DecoderConfig{Parameters: m.p, Capacity: 40, Model: build})
	if err != nil {
		t.Fatal(err)
	}
	i, k := 0, 0
	for i < length && k < length {
		n, o := min(length-i, d.of(0, 1, 4)), min(length-k, d.of(1, 1, 3))
		logits, err := batch.Logits([][]int{a[i : i+n], b[k : k+o]})
		if err != nil {
			t.Fatal(err)
		}
		i, k = i+n, k+o
		if n > 0 {
			compare(t, fmt.Sprintf("a text of a batch's cache, after %d tokens", i), tensor.Float64, logits[0], row(0, i-1), 1)
		}
		compare(t, fmt.Sprintf("the other text of a batch's cache, after %d tokens", k), tensor.Float64, logits[1], row(1, k-1), 1)
	}

	loss, gradients := m.loss(t, true, a, b)
	want := 0.0
	for text, list := range [][]int{a, b} {
		for i := range length - 1 {
			sum := 0.0
			for _, x := range row(text, i) {
				sum += math.Exp(x)
			}
			want += (math.Log(sum) - row(text, i)[list[i+1]]) / (2 * (length - 1))
		}
	}
	compare(t, "the loss", tensor.Float64, []float64{loss}, []float64{want}, 1)
	m.checkGradients(t, d, gradients, a, b)

	one, other := m, m
	one.trains, other.trains = true, true
	other.c.Block.Recompute = !other.c.Block.Recompute
	dropped, ofDropped := one.loss(t, true, a, b)
	again, others := other.loss(t, true, a, b)
	compare(t, "the loss with Recompute the other way", tensor.Float64, []float64{again}, []float64{dropped}, 1)
	compareAll(t, "with Recompute the other way", others, ofDropped)

	packed, ofPacked := m.packedLoss(t, a, b)
	compare(t, "the loss of packed texts", tensor.Float64, []float64{packed}, []float64{loss}, 1)
	compareAll(t, "of packed texts", ofPacked, gradients)
}

// checkPadding compares a text behind padding with the same text alone. What goes by the number of
// a position cannot be there.
func (m drawnModel) checkPadding(t *testing.T, a, b []int) {
	t.Helper()
	if m.c.Positions || m.c.Block.Attention.Options.Mask != nil {
		return
	}
	const padding = 5
	g := gorgonia.NewGraph()
	model, err := m.on(g)
	if err != nil {
		t.Fatal(err)
	}
	shown := tensor.New(tensor.WithShape(2, len(a)), tensor.WithBacking(slices.Concat(slices.Repeat([]bool{true}, len(a)),
		slices.Repeat([]bool{false}, padding), slices.Repeat([]bool{true}, len(b)-padding))))
	mask := gorgonia.NewMatrix(g, tensor.Bool, gorgonia.WithName("mask"), gorgonia.WithShape(2, len(a)), gorgonia.WithValue(shown))
	padded := slices.Concat(b[len(b)-padding:], b[:len(b)-padding])
	both := must(model.HiddenWith(on(matrixOf(g, "tokens", a, padded)), on(mask)))
	first := must(model.Hidden(on(matrixOf(g, "first", a))))
	second := must(model.Hidden(on(matrixOf(g, "second", b[:len(b)-padding]))))
	evaluate(t, g)
	got, one, other := floats(t, both.Value()), floats(t, first.Value()), floats(t, second.Value())
	compare(t, "a text beside one with padding", tensor.Float64, got[:len(one)], one, 1)
	compare(t, "a text behind padding", tensor.Float64, got[len(got)-len(other):], other, 1)
}

func compareAll(t *testing.T, what string, got, want map[string][]float64) {
	t.Helper()
	scale := 0.0
	for _, list := range want {
		for _, x := range list {
			scale = max(scale, math.Abs(x))
		}
	}
	for name, list := range want {
		worst := 0.0
		for i := range list {
			worst = max(worst, math.Abs(got[name][i]-list[i]))
		}
		if !(worst <= 1e-9*scale) {
			t.Errorf("the gradient of %s %s is %.3g off, of %.3g", name, what, worst, scale)
		}
	}
}

// checkGradients compares with a difference along a drawn direction.
func (m drawnModel) checkGradients(t *testing.T, d drawer, gradients map[string][]float64, texts ...[]int) {
	t.Helper()
	g := gorgonia.NewGraph()
	model, err := m.on(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range model.Parameters() {
		gradient, ok := gradients[n.Name()]
		if !ok {
			continue
		}
		before := slices.Clone(floats(t, n.Value()))
		direction := make([]float64, len(before))
		want := 0.0
		for i := range direction {
			direction[i] = d.NormFloat64()
			want += direction[i] * gradient[i]
		}
		at := func(size float64) float64 {
			v := dense(tensor.Float64, n.Shape(), func(i int) float64 { return before[i] + size*direction[i] })
			if err := m.p.Set(n.Name(), v); err != nil {
				t.Fatal(err)
			}
			loss, _ := m.loss(t, false, texts...)
			return loss
		}
		got := make([]float64, 0, 3)
		for _, step := range []float64{1e-5, 1e-6, 1e-7} { // a gate or a bound may change sides, or a norm be steep
			got = append(got, (at(step)-at(-step))/(2*step))
		}
		at(0)
		if !slices.ContainsFunc(got, func(x float64) bool { return math.Abs(x-want) <= 1e-5*(1+math.Abs(want)) }) {
			t.Errorf("along a direction of %s the loss rises by %.9g, by its gradient %.9g", n.Name(), got, want)
		}
	}
}

// encoder draws an encoder of texts.
func (d drawer) encoder() nn.EncoderConfig {
	c := nn.EncoderConfig{Layers: d.of(1, 2, 4), Block: d.block(), EmbeddingNorm: d.one(2), Dropout: d.maybe(0.1),
		Text:  &nn.TextConfig{Vocab: decoderVocab, Context: 30, Types: d.of(0, 2), Dim: d.of(0, 0, 5), Positions: nn.PositionKind(d.IntN(3)), NoPositions: d.one(3), Scale: d.maybe(1.4)},
		Heads: nn.EncoderHeads{Pooler: d.one(2), Classes: 3, TokenClasses: 2, Masked: d.one(2)}}
	c.Block.Attention.Options.Causal, c.Block.Attention.Latent = kernels.Causal(d.of(0, 0, 0, int(kernels.CausalBottomRight), int(kernels.CausalTopLeft))), nil
	if c.Text.Positions == nn.LearnedPositions && !c.Text.NoPositions && d.one(2) {
		c.Text.FirstPosition, c.Text.CountPadding = 2, d.one(2)
	}
	if c.Layers == 4 && d.one(2) {
		c.Blocks = 2
	}
	if c.Block.Attention.Options.Score == nil && d.one(4) {
		c.Distances = &nn.DistanceConfig{Buckets: 8, Farthest: 20}
	}
	if a := &c.Block.Attention; c.Distances == nil && d.one(5) {
		c.Disentangled = &nn.DisentangledConfig{Buckets: 6, Farthest: d.of(0, 20), Norm: d.one(2)}
		a.KVHeads, a.RoPE, a.QKNorm, a.QKNormAll, a.QKNormKind, a.NormPlusOne, a.Clip, a.Options.Score, a.Options.Scale = 0, nil, false, false, 0, false, 0, nil, 0
	}
	return c
}

// A drawn encoder makes the same of a text alone, in a batch, and before padding that is hidden by
// a mask or by lengths.
func TestDrawnEncoders(t *testing.T) {
	refused := map[string]int{}
	for n := range *drawnModels {
		seed := *modelSeed + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := drawer{rand.New(rand.NewPCG(seed, 22))}
			c, p := d.encoder(), nn.NewParameters(1)
			defer func() {
				if t.Failed() {
					t.Logf("%+v %+v", c, *c.Text)
				}
			}()
			run := func(given, lengths []int, rows ...[]int) (*nn.Encoder, [][]float64, error) {
				g := gorgonia.NewGraph()
				s := nn.NewScope(g, p).DType(tensor.Float64)
				e := nn.NewEncoder(s, c)
				if s.Err() != nil {
					return nil, nil, s.Err()
				}
				if given == nil {
					setParameters(t, p, e.Parameters())
				}
				in := nn.EncoderInputs{}
				if lengths != nil {
					in.KeyLengths = on(gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("lengths"), gorgonia.WithShape(len(lengths)),
						gorgonia.WithValue(tensor.New(tensor.WithBacking(slices.Clone(lengths))))))
				} else if given != nil {
					var shown []bool
					for _, n := range given {
						shown = append(append(shown, slices.Repeat([]bool{true}, n)...), slices.Repeat([]bool{false}, len(rows[0])-n)...)
					}
					in.KeyMask = on(gorgonia.NewMatrix(g, tensor.Bool, gorgonia.WithName("mask"), gorgonia.WithShape(len(rows), len(rows[0])),
						gorgonia.WithValue(tensor.New(tensor.WithShape(len(rows), len(rows[0])), tensor.WithBacking(shown)))))
				}
				h := e.ForwardWith(on(matrixOf(g, "tokens", rows...)), in)
				if h.Err() != nil {
					return nil, nil, h.Err()
				}
				classes, mean := must(e.Classify(h)), must(nn.Pool(h, nn.MeanPool, in.KeyMask))
				evaluate(t, g)
				return e, [][]float64{floats(t, h.Node().Value()), floats(t, classes.Value()), floats(t, mean.Value())}, nil
			}
			text := func(n int) (list []int) {
				for range n {
					list = append(list, 2+d.IntN(decoderVocab-2)) // 1 is padding
				}
				return list
			}
			const length, short = 11, 7
			a, b := text(length), text(short)
			_, alone, err := run(nil, nil, b)
			if err != nil {
				refused[err.Error()]++
				return
			}
			e, first, err := run(nil, nil, a)
			if err != nil {
				t.Fatal(err)
			}
			padded := slices.Concat(b, slices.Repeat([]int{1}, length-short))
			for _, way := range []struct {
				name    string
				lengths []int
			}{{"a mask", nil}, {"lengths", []int{length, short}}} {
				if way.lengths != nil && !e.TakesLengths() {
					continue
				}
				_, both, err := run([]int{length, short}, way.lengths, a, padded)
				if err != nil {
					t.Errorf("with %s: %v", way.name, err)
					continue
				}
				compare(t, "a text beside one with padding, by "+way.name, tensor.Float64, both[0][:len(first[0])], first[0], 1)
				compare(t, "a text before padding, by "+way.name, tensor.Float64, both[0][len(first[0]):][:len(alone[0])], alone[0], 1)
				compare(t, "classes beside padding, by "+way.name, tensor.Float64, both[1], slices.Concat(first[1], alone[1]), 1)
				if way.lengths == nil {
					compare(t, "the mean beside padding", tensor.Float64, both[2], slices.Concat(first[2], alone[2]), 1)
				}
			}
		})
	}
	tellRefused(t, refused)
}
