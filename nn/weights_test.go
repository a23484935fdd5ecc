package nn_test

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// keptModels are large enough for every way in which the weights of a token's products are read.
var keptModels = map[string]func(s *nn.Scope) *nn.LanguageModel{
	"gpt": func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 203, Context: 24, Layers: 2, Heads: 3, Dim: 72})
	},
	"llama": func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 203, Context: 24, Layers: 2, Heads: 4, KVHeads: 2, Dim: 64, Hidden: 100})
	},
}

// keptParameters have random values, rounded if they are kept in 16 bits; exact are the same in
// float64.
func keptParameters(t *testing.T, name string, dtype, compute tensor.Dtype) (p, exact *nn.Parameters) {
	t.Helper()
	p, exact = nn.NewParameters(7), nn.NewParameters(7)
	if dtype != tensor.Float32 {
		if err := p.KeepWeights(dtype); err != nil {
			t.Fatal(err)
		}
	}
	m := keptModels[name](nn.NewScope(gorgonia.NewGraph(), p).Compute(compute))
	for _, n := range m.Parameters() {
		value, err := ops.Converted(n.Value(), tensor.Float64)
		if err == nil {
			err = exact.Set(n.Name(), value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return p, exact
}

// keptDecoder predicts by a model's parameters, and uncached does it by the whole window anew.
func keptDecoder(t *testing.T, name string, p *nn.Parameters, dtype, compute tensor.Dtype) (d *nn.Decoder, uncached func(tokens []int) []float64) {
	t.Helper()
	d, err := nn.NewDecoder(nn.DecoderConfig{Parameters: p, Model: func(s *nn.Scope) nn.CachedModel {
		return keptModels[name](s.DType(dtype).Compute(compute))
	}})
	if err != nil {
		t.Fatal(err)
	}
	return d, func(tokens []int) []float64 {
		g := gorgonia.NewGraph()
		m := keptModels[name](nn.NewScope(g, p).DType(dtype).Compute(compute))
		ids := gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, len(tokens)), gorgonia.WithName("tokens"),
			gorgonia.WithValue(tensor.New(tensor.WithShape(1, len(tokens)), tensor.WithBacking(slices.Clone(tokens)))))
		logits := must(m.Forward(on(ids)))
		evaluate(t, g)
		all := floats(t, logits.Value())
		return all[len(all)-203:]
	}
}

func greedy(logits []float64) int { return slices.Index(logits, slices.Max(logits)) }

// A model with weights in 16 bits gives the logits of the rounded weights as exactly as float32
// does, and the tokens of a graph without a cache, whatever the number of threads.
func TestKeepWeights(t *testing.T) {
	// A logit is behind some forty sums, one after the other, whose roundings add up as the steps
	// of a random walk do.
	bound := 2 * math.Sqrt(40) * 0x1p-24
	for name := range keptModels {
		for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
			p, exact := keptParameters(t, name, dtype, tensor.Float32)
			d, uncached := keptDecoder(t, name, p, tensor.Float32, tensor.Float32)
			_, want := keptDecoder(t, name, exact, tensor.Float64, tensor.Float64)
			if w := p.Value("tokens.weight"); w.Dtype() != dtype {
				t.Fatalf("%s: the embedding is %v, want %v", name, w.Dtype(), dtype)
			}
			next, worst := []int{5, 17, 140}, 0.0
			for len(d.Window()) < 12 {
				logits, err := d.Logits(next)
				if err != nil {
					t.Fatal(err)
				}
				off, size := 0.0, 0.0
				for i, x := range want(d.Window()) {
					off, size = max(off, math.Abs(x-logits[i])), max(size, math.Abs(x))
				}
				worst = max(worst, off/size)
				next = []int{greedy(logits)}
				if again := greedy(uncached(d.Window())); again != next[0] {
					t.Errorf("%s in %v: token %d follows %v, without a cache %d does", name, dtype, next[0], d.Window(), again)
				}
			}
			t.Logf("%s in %v: errors up to %.3g of the largest logit", name, dtype, worst)
			if !(worst <= bound) || 10*worst <= bound {
				t.Errorf("%s in %v: errors are up to %.3g of the largest logit, the bound is %.3g, and a tenth of it too much for a bound", name, dtype, worst, bound)
			}

			// One thread gives the bits of all.
			var each [2][]float64
			for i := range each {
				if i == 1 {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
				}
				d.Reset()
				for _, tokens := range [][]int{{3, 1, 4, 1, 5}, {9}, {2}} {
					logits, err := d.Logits(tokens)
					if err != nil {
						t.Fatal(err)
					}
					each[i] = append(each[i], logits...)
				}
			}
			if !slices.Equal(each[0], each[1]) {
				t.Errorf("%s in %v: one thread gives other bits than %d", name, dtype, runtime.NumCPU())
			}
		}
	}
}

// Weights in 16 bits go with activations of the same type, and are left as they are while a LoRA
// beside them is trained.
func TestKeepWeightsBesideOthers(t *testing.T) {
	p, _ := keptParameters(t, "llama", ops.BFloat16, ops.BFloat16)
	d, uncached := keptDecoder(t, "llama", p, tensor.Float32, ops.BFloat16)
	for _, tokens := range [][]int{{3, 1, 4}, {1}, {5}} {
		logits, err := d.Logits(tokens)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range uncached(d.Window()) {
			if !(math.Abs(logits[i]-want) <= 0x1p-6) { // of numbers around 1, whose activations have 8 bits
				t.Fatalf("logit %d after %v is %v, without a cache %v", i, d.Window(), logits[i], want)
			}
		}
	}

	for _, name := range []string{"gpt", "llama"} {
		p := nn.NewParameters(7)
		if err := p.KeepWeights(ops.BFloat16); err != nil {
			t.Fatal(err)
		}
		if err := p.SetLoRA(nn.LoRA{Rank: 2}); err != nil {
			t.Fatal(err)
		}
		g := gorgonia.NewGraph()
		s := nn.NewScope(g, p)
		loss := must(keptModels[name](s).Loss(on(integers(g, "tokens", 203, 1, 6)), on(integers(g, "targets", 203, 1, 6))))
		trained := s.Trainable()
		gradients, err := gorgonia.Grad(loss, trained...)
		if err != nil || len(trained) == 0 || len(gradients) != len(trained) {
			t.Fatalf("%s: %d gradients of %d parameters: %v", name, len(gradients), len(trained), err)
		}
		machine := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		if x, err := ops.ReadNumber(loss.Value()); err != nil {
			t.Error(err)
		} else if x, err := x.Float64(); err != nil || math.Abs(x-math.Log(203)) > 0.5 {
			t.Errorf("%s: the loss of a model that knows nothing is %v, %v", name, x, err)
		}
		checkError(t, p.MergeLoRA(), "Parameters: merging blocks.0.attn."+map[string]string{"gpt": "qkv", "llama": "q"}[name]+".lora_b: blocks.0.attn."+
			map[string]string{"gpt": "qkv", "llama": "q"}[name]+".weight is kept in BFloat16, which would round away much of what is added")
	}
}

func TestKeepWeightsErrors(t *testing.T) {
	p := nn.NewParameters(1)
	checkError(t, p.KeepWeights(tensor.Float64), "Parameters: dtype is float64, weights can be kept in BFloat16 or Float16")
	linear := func(s *nn.Scope, out int) error {
		nn.NewLinear(s, nn.LinearConfig{In: 2, Out: out})
		return errors.Unwrap(s.Err())
	}
	scope := func() *nn.Scope { return nn.NewScope(gorgonia.NewGraph(), p) }
	if err := linear(scope().Sub("a"), 3); err != nil {
		t.Fatal(err)
	}
	checkError(t, p.KeepWeights(ops.BFloat16), "Parameters: layers have been made already, KeepWeights needs to come before the first")
	if d := p.Value("a.weight").Dtype(); d != tensor.Float32 {
		t.Errorf("the weight is %v", d)
	}
	p = nn.NewParameters(1)
	if err := p.KeepWeights(ops.Float16); err != nil {
		t.Fatal(err)
	}
	checkError(t, linear(scope().DType(tensor.Float64).Sub("b"), 3), "Linear: parameter b.weight is float64, KeepWeights is for float32")
	if err := linear(scope().Sub("c"), 3); err != nil || p.Value("c.weight").Dtype() != ops.Float16 || p.Value("c.bias").Dtype() != tensor.Float32 {
		t.Errorf("weight and bias are %v and %v: %v", p.Value("c.weight").Dtype(), p.Value("c.bias").Dtype(), err)
	}
	checkError(t, linear(scope().Sub("c"), 4), "Linear: parameter c.weight exists as Float16 of shape [2 3], it needs float32 of shape [2 4]")
}
