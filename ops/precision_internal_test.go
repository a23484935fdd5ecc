package ops

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// precise is a backend that remembers how exact products were asked to be.
type precise struct {
	kernels.Backend
	products, attentions, losses []kernels.Precision
}

func (p *precise) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	p.products = append(p.products, m.Precision)
	return p.Backend.MatMul(m, out)
}

func (p *precise) LinearCrossEntropy(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) error {
	p.losses = append(p.losses, c.Precision)
	return p.Backend.LinearCrossEntropy(c, out)
}

func (p *precise) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	p.attentions = append(p.attentions, a.Precision)
	return p.Backend.AttentionForward(a, out)
}

func (p *precise) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	p.attentions = append(p.attentions, a.Precision)
	return p.Backend.AttentionBackward(a, g)
}

// What a graph allows holds for every product in it, forward and backward, but for attention that
// asks for something itself. 8 bits are for linear layers alone.
func TestGraphsAllowPrecision(t *testing.T) {
	backend := host
	defer func() { host = backend }()
	for _, allowed := range []kernels.Precision{kernels.PrecisionAuto, kernels.PrecisionTF32, kernels.PrecisionFloat8} {
		p := &precise{Backend: backend}
		host = p
		g := gorgonia.NewGraph()
		var parameters gorgonia.Nodes
		in := func(name string, shape ...int) *gorgonia.Node {
			n := gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(gorgonia.GlorotN(1)))
			parameters = append(parameters, n)
			return n
		}
		must := gorgonia.Must
		h := must(Linear(in("x", 6, 8), in("weight", 8, 8), in("bias", 8), LinearOptions{}))
		h = must(MLP(h, in("up", 8, 16), in("up bias", 16), in("down", 16, 8), in("down bias", 8), MLPOptions{Activation: kernels.GELUTanh}))
		h = must(MatMul(h, in("square", 8, 8), MatMulOptions{}))
		heads := must(gorgonia.Reshape(h, tensor.Shape{1, 2, 6, 4}))
		heads = must(FlashAttention(heads, heads, heads, AttentionOptions{}))
		heads = must(FlashAttention(heads, heads, heads, AttentionOptions{Precision: kernels.PrecisionFloat32}))
		targets := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(6), gorgonia.WithName("targets"), gorgonia.WithValue(tensor.New(tensor.WithBacking([]int{0, 4, 2, 1, 3, 0}))))
		loss := must(LinearCrossEntropy(must(gorgonia.Reshape(heads, tensor.Shape{6, 8})), in("head", 5, 8), targets, LinearCrossEntropyOptions{}))
		if err := ModeOf(g).AllowPrecision(allowed); err != nil {
			t.Fatal(err)
		}
		if _, err := gorgonia.Grad(loss, parameters...); err != nil {
			t.Fatal(err)
		}
		if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
			t.Fatal(err)
		}
		// Three ops with a product or two of their own, and twice as many for their gradients,
		// which come in the opposite order. The last of the ops is no linear layer.
		beside := allowed.OrSixteenBits()
		want := slices.Repeat([]kernels.Precision{allowed}, 4+2*4)
		want[3], want[4], want[5] = beside, beside, beside
		if !slices.Equal(p.products, want) {
			t.Errorf("the products have the precisions %v, want %v", p.products, want)
		}
		if want := []kernels.Precision{beside, kernels.PrecisionFloat32, kernels.PrecisionFloat32, beside}; !slices.Equal(p.attentions, want) {
			t.Errorf("attention has the precisions %v, want %v", p.attentions, want)
		}
		if !slices.Equal(p.losses, []kernels.Precision{beside}) {
			t.Errorf("the loss has the precisions %v", p.losses)
		}
	}
	const want = "AllowPrecision: precision is 99, it needs to be PrecisionAuto, PrecisionFloat32, PrecisionTF32, PrecisionBFloat16, PrecisionFloat16 or PrecisionFloat8"
	if err := ModeOf(nil).AllowPrecision(99); err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}
