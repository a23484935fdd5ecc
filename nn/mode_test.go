package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trained is a model with dropout whose graph can be run in either mode.
type trained struct {
	g      *gorgonia.ExprGraph
	logits *gorgonia.Node
	m      gorgonia.VM
}

func newTrained(t *testing.T, p *nn.Parameters, dropout float64) trained {
	t.Helper()
	g := gorgonia.NewGraph()
	m := nn.NewGPT(nn.NewScope(g, p).DType(tensor.Float64), nn.GPTConfig{Vocab: 13, Context: 7, Layers: 2, Heads: 2, Dim: 8, Dropout: dropout})
	return trained{g, must(m.Forward(on(integers(g, "tokens", 13, 2, 7)))), gorgonia.NewTapeMachine(g)}
}

func (r trained) run(t *testing.T) []float64 {
	t.Helper()
	if err := r.m.RunAll(); err != nil {
		t.Fatal(err)
	}
	r.m.Reset()
	return slices.Clone(floats(t, r.logits.Value()))
}

// TestDropoutOfModels checks that dropout follows the mode of the graph that runs, and its masks
// the seed and the step.
func TestDropoutOfModels(t *testing.T) {
	p := nn.NewParameters(5)
	plain := newTrained(t, p, 0).run(t)
	r, again, other := newTrained(t, p, 0.3), newTrained(t, p, 0.3), newTrained(t, nn.NewParameters(6), 0.3)
	ops.ModeOf(r.g).Evaluate()
	if !slices.Equal(r.run(t), plain) {
		t.Error("evaluation is not what the model without dropout gives")
	}
	ops.ModeOf(r.g).Train(3)
	third := r.run(t)
	if slices.Equal(third, plain) {
		t.Error("training drops nothing")
	}
	ops.ModeOf(again.g).Train(3)
	if !slices.Equal(again.run(t), third) {
		t.Error("another graph of the same model has other masks in the same step")
	}
	ops.ModeOf(r.g).Train(4)
	if slices.Equal(r.run(t), third) {
		t.Error("two steps have the same masks")
	}
	if other.run(t); slices.Equal(other.run(t), third) {
		t.Error("two seeds have the same result")
	}
}

// TestDropoutMasks checks that each dropout, and each call of one, has masks of its own, of the
// right density.
func TestDropoutMasks(t *testing.T) {
	g, p := gorgonia.NewGraph(), nn.NewParameters(1)
	ones := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(50, 80), gorgonia.WithName("ones"), gorgonia.WithInit(gorgonia.Ones()))
	var out gorgonia.Nodes
	for _, name := range []string{"a", "b"} {
		d := nn.NewDropout(nn.NewScope(g, p).Sub(name), 0.25)
		out = append(out, must(d.Forward(on(ones))), must(d.Forward(on(ones))))
	}
	ops.ModeOf(g).Train(0)
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		t.Fatal(err)
	}
	for i, n := range out {
		if mean, _ := moments(floats(t, n.Value())); !(math.Abs(mean-1) <= 0.05) {
			t.Errorf("the mean of mask %d is %v, want about 1", i, mean)
		}
		for j := range i {
			if slices.Equal(floats(t, n.Value()), floats(t, out[j].Value())) {
				t.Errorf("masks %d and %d are equal", j, i)
			}
		}
	}
}

// TestWeightsWithDropout checks that the weights that one looks at are those that attention used.
func TestWeightsWithDropout(t *testing.T) {
	c := attentionCases["self"]
	c.c.Options.Dropout.P = 0.5
	p := nn.NewParameters(1)
	a := c.build(t, p, tensor.Float64, tensor.Bool)
	out, weights := a.m.ForwardWithWeights(on(a.x), a.in)
	// With the identity as the projection of the output and of the values, the output is weights
	// times x.
	setIdentity(t, p, "proj.weight", 0)
	setIdentity(t, p, "qkv.weight", 16)
	ops.ModeOf(a.g).Train(2)
	if err := gorgonia.NewTapeMachine(a.g).RunAll(); err != nil {
		t.Fatal(err)
	}
	w, x, want := floats(t, must(weights).Value()), floats(t, a.x.Value()), make([]float64, 3*6*8)
	dropped := 0
	for b := range 3 {
		for i := range 6 {
			for j := range 6 {
				for feature := range 8 {
					weight := w[((b*2+feature/4)*6+i)*6+j]
					want[(b*6+i)*8+feature] += weight * x[(b*6+j)*8+feature]
					if weight == 0 {
						dropped++
					}
				}
			}
		}
	}
	compare(t, "the output", tensor.Float64, floats(t, must(out).Value()), want, 0)
	if dropped == 0 {
		t.Error("no weight is dropped")
	}
}

// setIdentity writes an identity matrix over the 8 columns of a parameter from the given one on.
func setIdentity(t *testing.T, p *nn.Parameters, name string, from int) {
	t.Helper()
	v := p.Value(name)
	columns := v.Shape()[1]
	for row := range 8 {
		for column := range 8 {
			v.Float64s()[row*columns+from+column] = 0
		}
		v.Float64s()[row*columns+from+row] = 1
	}
}

// TestPackedSequences checks that sequences that lie end to end do not see each other.
func TestPackedSequences(t *testing.T) {
	for _, qknorm := range []bool{false, true} {
		p := nn.NewParameters(1)
		config := nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: 2, QKNorm: qknorm, Options: causal}
		ends := []int{0, 4, 9}

		g := gorgonia.NewGraph()
		lens := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("lens"), gorgonia.WithValue(tensor.New(tensor.WithBacking(ends))))
		c := config
		c.Options.QLens, c.Options.KVLens = lens, lens
		m := nn.NewMultiHeadAttention(nn.NewScope(g, p).DType(tensor.Float64), c)
		setParameters(t, p, m.Parameters())
		out := must(m.Forward(on(input(g, tensor.Float64, "x", 9, 8))))
		evaluate(t, g)
		for i, end := range ends[1:] {
			start := ends[i]
			g := gorgonia.NewGraph()
			m := nn.NewMultiHeadAttention(nn.NewScope(g, p).DType(tensor.Float64), config)
			v := dense(tensor.Float64, []int{1, end - start, 8}, func(i int) float64 { return value("x", start*8+i) })
			x := gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithShape(v.Shape()...), gorgonia.WithName("x"), gorgonia.WithValue(v))
			alone := must(m.Forward(on(x)))
			evaluate(t, g)
			compare(t, "a packed sequence", tensor.Float64, floats(t, out.Value())[start*8:end*8], floats(t, alone.Value()), 0)
		}
	}
}
