package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A layer with a LoRA is act(x·W + b + scale·x·A·B), in evaluation without dropout, and trains A
// and B alone.
func TestLoRA(t *testing.T) {
	const in, out, rank = 3, 4, 2
	p := nn.NewParameters(7)
	err := p.SetLoRA(nn.LoRA{
		Rank: rank, Alpha: 3, Dropout: 0.5, RankStabilized: true, Match: func(name string) bool { return name == "changed" },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		name string
		data []float64
		rows int
	}{
		{"changed.lora_a", []float64{1, -2, 0.5, 3, -1, 0.25}, in},
		{"changed.lora_b", []float64{0.5, 1, -1, 2, 0, -0.5, 3, 0.125}, rank},
	} {
		if err := p.Set(v.name, tensor.New(tensor.WithShape(v.rows, len(v.data)/v.rows), tensor.WithBacking(v.data))); err != nil {
			t.Fatal(err)
		}
	}
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p).DType(tensor.Float64)
	config := nn.LinearConfig{In: in, Out: out, Activation: kernels.SiLU}
	changed, plain := nn.NewLinear(s.Sub("changed"), config), nn.NewLinear(s.Sub("plain"), config)
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2, in),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2, in), tensor.WithBacking([]float64{1, 2, 3, -1, 0.5, 2}))))
	y := must(changed.Forward(on(x)))
	var names []string
	for _, n := range s.Trainable() {
		names = append(names, n.Name())
	}
	if want := []string{"changed.lora_a", "changed.lora_b"}; !slices.Equal(names, want) {
		t.Errorf("%v are trained, want %v", names, want)
	}
	if n := len(plain.Parameters()); n != 2 {
		t.Errorf("a layer that does not match has %d parameters", n)
	}
	var kept gorgonia.Value
	gorgonia.Read(y, &kept)
	machine := gorgonia.NewTapeMachine(g)
	defer machine.Close()
	result := func() []float64 {
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		machine.Reset()
		return slices.Clone(kept.Data().([]float64))
	}
	ops.ModeOf(g).Evaluate()
	have := result()
	element := func(name string, i, j int) float64 {
		v := p.Value(name)
		return v.Float64s()[i*v.Shape()[1]+j]
	}
	for row := range 2 {
		for column := range out {
			z := 0.0
			for i := range in {
				w := element("changed.weight", i, column)
				for k := range rank {
					w += 3 / math.Sqrt(rank) * element("changed.lora_a", i, k) * element("changed.lora_b", k, column)
				}
				z += x.Value().Data().([]float64)[row*in+i] * w
			}
			if want := z / (1 + math.Exp(-z)); !(math.Abs(have[row*out+column]-want) <= 1e-12) {
				t.Errorf("element %d, %d is %v, want %v", row, column, have[row*out+column], want)
			}
		}
	}
	ops.ModeOf(g).Train(3)
	if slices.Equal(result(), have) {
		t.Error("training drops nothing")
	}
}

// What is frozen is left out, and what was frozen before is not.
func TestFreeze(t *testing.T) {
	p := nn.NewParameters(0)
	s := nn.NewScope(gorgonia.NewGraph(), p)
	nn.NewLinear(s.Sub("l"), nn.LinearConfig{In: 2, Out: 2})
	if n := len(s.Trainable()); n != 2 {
		t.Errorf("%d parameters are trained before any are frozen", n)
	}
	for _, frozen := range []string{"l.weight", "l.bias"} {
		p.Freeze(func(name string) bool { return name == frozen })
		if list := s.Trainable(); len(list) != 1 || list[0].Name() == frozen {
			t.Errorf("with %s frozen, %v are trained", frozen, list)
		}
	}
	if p.Freeze(nil); len(s.Trainable()) != 2 {
		t.Error("nothing to freeze keeps a parameter from being trained")
	}
}

// Layers that share one A need to have as many inputs.
func TestLoRASharesEqualInputs(t *testing.T) {
	p := nn.NewParameters(0)
	if err := p.SetLoRA(nn.LoRA{Rank: 2, Shared: func(string) string { return "a" }}); err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	for _, c := range []struct {
		name  string
		in    int
		wrong bool
	}{{"a", 3, false}, {"b", 3, false}, {"c", 4, true}} {
		s := nn.NewScope(g, p)
		nn.NewLinear(s.Sub(c.name), nn.LinearConfig{In: c.in, Out: 2})
		err := s.Err()
		if c.wrong != (err != nil) || c.wrong && !strings.Contains(err.Error(), "a.lora_a has shape [3 2], to share it needs to be (4, 2)") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A gated MLP has gradients of its changes in 16 bits where nothing before it is trained, so that
// its input has none.
func TestLoRAOfAFirstMLP(t *testing.T) {
	p := nn.NewParameters(1)
	if err := p.SetLoRA(nn.LoRA{Rank: 2}); err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p).Compute(ops.BFloat16)
	x := on(gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(1, 3, 8), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Gaussian(0, 1))))
	mlp := nn.NewMLP(s, nn.MLPConfig{Dim: 8, Hidden: 16, Gated: true, NoBias: true, Activation: kernels.SiLU})
	loss := mlp.Forward(x.Cast(ops.BFloat16)).Cast(tensor.Float32).Square().Sum()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if _, err := gorgonia.Grad(must(loss), s.Trainable()...); err != nil {
		t.Fatal(err)
	}
	vm, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Trainable() {
		v, err := n.Grad()
		if err != nil {
			t.Fatal(err)
		}
		// B starts at 0, and with it the gradient of A.
		if zero := !slices.ContainsFunc(floats(t, v), func(x float64) bool { return x != 0 }); zero != strings.HasSuffix(n.Name(), "lora_a") {
			t.Errorf("the gradient of %s is 0: %v", n.Name(), zero)
		}
	}
}

// Merging that is refused, here since a weight is kept in few bits, changes nothing of what could
// be merged.
func TestRefusedMergeChangesNothing(t *testing.T) {
	p := nn.NewParameters(1)
	if err := errors.Join(p.KeepWeights(ops.Int8), p.SetLoRA(nn.LoRA{Rank: 2, Embeddings: func(string) bool { return true }})); err != nil {
		t.Fatal(err)
	}
	s := nn.NewScope(gorgonia.NewGraph(), p)
	nn.NewEmbedding(s.Sub("tokens"), nn.EmbeddingConfig{Vocab: 5, Dim: 64})
	nn.NewLinear(s.Sub("linear"), nn.LinearConfig{In: 64, Out: 64})
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	before := map[string][]float32{}
	for _, name := range []string{"tokens.lora_b", "tokens.weight", "linear.lora_b"} {
		values := p.Value(name).Float32s()
		for i := range values {
			values[i]++
		}
		before[name] = slices.Clone(values)
	}
	if err := p.MergeLoRA(); err == nil || !strings.Contains(err.Error(), "linear.weight is kept in Int8") {
		t.Errorf("merging into a weight of 8 bits: %v", err)
	}
	for name, values := range before {
		if !slices.Equal(p.Value(name).Float32s(), values) {
			t.Errorf("%s has changed", name)
		}
	}
}
