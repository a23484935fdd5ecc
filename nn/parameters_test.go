package nn_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestParametersAreShared checks that graphs over one Parameters read and write the same memory.
func TestParametersAreShared(t *testing.T) {
	for name, build := range languageModels {
		p := nn.NewParameters(7)
		models := [2]*nn.LanguageModel{build(nn.NewScope(gorgonia.NewGraph(), p)), build(nn.NewScope(gorgonia.NewGraph(), p))}
		first, second := models[0].Parameters(), models[1].Parameters()
		for i, n := range first {
			if n.Value() != second[i].Value() || n.Value() != gorgonia.Value(p.Value(n.Name())) {
				t.Errorf("%s: the graphs have values of their own for %s", name, n.Name())
			}
		}
		if len(p.Names()) != len(first) {
			t.Errorf("%s: Parameters has %d names, the model %d parameters", name, len(p.Names()), len(first))
		}
	}
}

// TestSeedDecidesValues checks that values follow from the seed and the name alone.
func TestSeedDecidesValues(t *testing.T) {
	values := func(seed uint64, dtype tensor.Dtype, names ...string) map[string][]float64 {
		p, g := nn.NewParameters(seed), gorgonia.NewGraph()
		for _, name := range names {
			nn.NewLinear(nn.NewScope(g, p).DType(dtype).Sub(name), nn.LinearConfig{In: 5, Out: 4})
		}
		all := map[string][]float64{}
		for _, name := range names {
			all[name] = floats(t, p.Value(name+".weight"))
		}
		return all
	}
	there, back := values(3, tensor.Float64, "a", "b"), values(3, tensor.Float64, "b", "a")
	other, narrow := values(4, tensor.Float64, "a", "b"), values(3, tensor.Float32, "a")
	if !slices.Equal(there["a"], back["a"]) || !slices.Equal(there["b"], back["b"]) {
		t.Error("values depend on the order in which layers are made")
	}
	if slices.Equal(there["a"], there["b"]) || slices.Equal(there["a"], other["a"]) {
		t.Error("two names or two seeds have the same values")
	}
	for i, x := range there["a"] {
		if float64(float32(x)) != narrow["a"][i] {
			t.Errorf("element %d is %v in float64 and %v in float32", i, x, narrow["a"][i])
		}
	}
}

// TestInitialValues checks mean and standard deviation of a model's parameters.
func TestInitialValues(t *testing.T) {
	gpt := nn.NewGPT(nn.NewScope(gorgonia.NewGraph(), nil), nn.GPTConfig{Vocab: 300, Context: 100, Layers: 8, Heads: 2, Dim: 64})
	llama := nn.NewLlama(nn.NewScope(gorgonia.NewGraph(), nil), nn.LlamaConfig{Vocab: 300, Layers: 2, Heads: 2, Dim: 64, QKNorm: true})
	for model, parameters := range map[string]gorgonia.Nodes{"gpt": gpt.Parameters(), "llama": llama.Parameters()} {
		for _, n := range parameters {
			mean, std := 0.0, 0.02
			switch name := n.Name(); {
			case strings.HasSuffix(name, "bias"):
				std = 0
			case strings.Contains(name, "norm"):
				mean, std = 1, 0
			case model == "gpt" && strings.Contains(name, "proj"):
				std = 0.02 / 4 // 8 layers with two residual connections each
			}
			gotMean, gotStd := moments(floats(t, n.Value()))
			if error := 5 * std / math.Sqrt(float64(n.Shape().TotalSize())); !(math.Abs(gotMean-mean) <= error) || !(math.Abs(gotStd-std) <= error) {
				t.Errorf("%s: %s has mean %.4g and standard deviation %.4g, want %.4g and %.4g", model, n.Name(), gotMean, gotStd, mean, std)
			}
		}
	}
}

// TestStacksBeginByDepth looks at what blocks of a stack add to x at first: the less, the deeper it
// is, unless someone has said how weights begin.
func TestStacksBeginByDepth(t *testing.T) {
	fanIn := func(factor float64) func(in int) float64 {
		return func(in int) float64 { return factor / math.Sqrt(float64(in)) }
	}
	for name, c := range map[string]struct {
		layers int
		change func(*nn.BlockConfig)
		want   func(in int) float64 // the deviation of what adds to x
	}{
		"two blocks":       {2, func(*nn.BlockConfig) {}, fanIn(1.0 / 2)},
		"eight blocks":     {8, func(*nn.BlockConfig) {}, fanIn(1.0 / 4)},
		"norms behind":     {8, func(b *nn.BlockConfig) { b.Norms = nn.PostNorm }, fanIn(1)},
		"an Init":          {8, func(b *nn.BlockConfig) { b.Init = nn.FanIn }, fanIn(1)},
		"another ProjInit": {8, func(b *nn.BlockConfig) { b.ProjInit = nn.Normal(0.3) }, func(int) float64 { return 0.3 }},
	} {
		s := nn.NewScope(gorgonia.NewGraph(), nil)
		stack := nn.NewStack(s, nn.StackConfig{
			Layers: c.layers, Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 64, Heads: 2}},
			Change: func(_ int, b *nn.BlockConfig) { c.change(b) },
		})
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		adding := 0
		for _, n := range stack.Parameters() {
			if len(n.Shape()) != 2 {
				continue
			}
			want := fanIn(1)(n.Shape()[0])
			if strings.HasSuffix(n.Name(), "proj.weight") {
				want = c.want(n.Shape()[0])
				adding++
			}
			if _, std := moments(floats(t, n.Value())); !(math.Abs(std/want-1) < 0.05) {
				t.Errorf("%s: %s begins with a deviation of %.4f, want %.4f", name, n.Name(), std, want)
			}
		}
		if adding != 2*c.layers {
			t.Errorf("%s: %d weights add to x, want two for each of %d blocks", name, adding, c.layers)
		}
	}
}

func moments(data []float64) (mean, std float64) {
	for _, x := range data {
		mean += x / float64(len(data))
	}
	for _, x := range data {
		std += (x - mean) * (x - mean) / float64(len(data))
	}
	return mean, math.Sqrt(std)
}

// TestSizes counts the parameters of a published model.
func TestSizes(t *testing.T) {
	if testing.Short() {
		t.Skip("makes all weights of GPT-2")
	}
	m := nn.NewGPT(nn.NewScope(gorgonia.NewGraph(), nil), nn.GPTConfig{Vocab: 50257, Context: 1024, Layers: 12, Heads: 12, Dim: 768})
	if n := nn.Count(m.Parameters()); n != 124439808 {
		t.Errorf("GPT-2 has %d parameters, want 124439808", n)
	}
}

func TestSet(t *testing.T) {
	p := nn.NewParameters(0)
	own := dense(tensor.Float32, []int{2, 3}, func(i int) float64 { return float64(i) })
	if err := p.Set("weight", own); err != nil {
		t.Fatal(err)
	}
	l := nn.NewLinear(nn.NewScope(gorgonia.NewGraph(), p), nn.LinearConfig{In: 2, Out: 3})
	if l.Parameters()[0].Value() != gorgonia.Value(own) {
		t.Error("a layer does not use the value that was set before")
	}
	transposed := dense(tensor.Float32, []int{3, 2}, func(i int) float64 { return float64(10 + i) })
	if err := transposed.T(); err != nil {
		t.Fatal(err)
	}
	if err := p.Set("weight", transposed); err != nil {
		t.Fatal(err)
	}
	if want := []float64{10, 12, 14, 11, 13, 15}; l.Parameters()[0].Value() != gorgonia.Value(own) || !slices.Equal(floats(t, own), want) {
		t.Errorf("the layer has %v, want its own memory with %v", own.Data(), want)
	}
}

func TestParametersFromManyGoroutines(t *testing.T) {
	p := nn.NewParameters(1)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			s := nn.NewScope(gorgonia.NewGraph(), p)
			if newLlama(s); s.Err() != nil {
				t.Error(s.Err())
			}
			p.Names()
		})
	}
	wait.Wait()
}

func TestCountAndSummary(t *testing.T) {
	m := nn.NewMLP(nn.NewScope(gorgonia.NewGraph(), nil).DType(tensor.Float64).Sub("mlp"), nn.MLPConfig{Dim: 100, NoBias: true})
	if n := nn.Count(m.Parameters()); n != 80000 {
		t.Errorf("the count is %d, want 80000", n)
	}
	want := `name             shape    dtype    count
mlp.fc.weight    100×400  float64  40,000
mlp.proj.weight  400×100  float64  40,000
total                              80,000
`
	if got := nn.Summary(m.Parameters()); got != want {
		t.Errorf("the summary is\n%swant\n%s", got, want)
	}
}
