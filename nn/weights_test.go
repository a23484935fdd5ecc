package nn_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
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
	"gpt of whole blocks": func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 203, Context: 24, Layers: 2, Heads: 2, Dim: 128})
	},
	"llama of whole blocks": func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 203, Context: 24, Layers: 2, Heads: 4, KVHeads: 2, Dim: 64, Hidden: 192})
	},
}

// suits reports whether a model's weights can be kept in a type.
func suits(name string, dtype tensor.Dtype) bool {
	return strings.HasSuffix(name, "blocks") == ops.IsPacked(dtype)
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
		if err := p.KeepEmbeddings(dtype); err != nil {
			t.Fatal(err)
		}
	}
	m := keptModels[name](nn.NewScope(gorgonia.NewGraph(), p).Compute(compute))
	for _, n := range m.Parameters() {
		value, err := wideValue(n)
		if err == nil {
			err = exact.Set(n.Name(), value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return p, exact
}

// wideValue is what a parameter counts as, in float64.
func wideValue(n *gorgonia.Node) (*tensor.Dense, error) {
	v := n.Value().(*tensor.Dense)
	if !ops.IsPacked(v.Dtype()) {
		return ops.Converted(v, tensor.Float64)
	}
	v, err := ops.Unpacked(v)
	if err == nil && n.Name() != "tokens.weight" && n.Name() != "head.weight" {
		v, err = ops.Transposed(v)
	}
	if err != nil {
		return nil, err
	}
	return ops.Converted(v, tensor.Float64)
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
	slow.Race(t)
	// A logit is behind some forty sums, one after the other, whose roundings add up as the steps
	// of a random walk do.
	bound := 2 * math.Sqrt(40) * 0x1p-24
	for name := range keptModels {
		for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16, ops.Int8, ops.Int4, ops.NF4} {
			if !suits(name, dtype) {
				continue
			}
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

// The gradients of a LoRA beside packed weights are those in float64 beside what they count as.
func TestLoRABesidePackedWeights(t *testing.T) {
	for _, name := range []string{"gpt of whole blocks", "llama of whole blocks"} {
		for _, dtype := range []tensor.Dtype{ops.Int8, ops.Int4, ops.NF4} {
			p, exact := keptParameters(t, name, dtype, tensor.Float32)
			gradients := func(p *nn.Parameters, dtype tensor.Dtype) map[string][]float64 {
				if err := p.SetLoRA(nn.LoRA{Rank: 2}); err != nil {
					t.Fatal(err)
				}
				g := gorgonia.NewGraph()
				s := nn.NewScope(g, p).DType(dtype)
				loss := must(keptModels[name](s).Loss(on(integers(g, "tokens", 203, 2, 13)), on(integers(g, "targets", 203, 2, 13))))
				trained := s.Trainable()
				for i, n := range trained {
					if strings.HasSuffix(n.Name(), "lora_a") || strings.HasSuffix(n.Name(), "lora_b") {
						r := rand.New(rand.NewPCG(uint64(i), 9))
						data := make([]float64, n.Shape().TotalSize())
						for j := range data {
							data[j] = float64(float32(r.NormFloat64() / 8))
						}
						v, err := ops.Converted(tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(data)), dtype)
						if err == nil {
							err = ops.Assign(n.Value(), v)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				if len(trained) == 0 {
					t.Fatalf("%s: nothing is trained", name)
				}
				nodes, err := gorgonia.Grad(loss, trained...)
				if err != nil {
					t.Fatal(err)
				}
				machine := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))
				if err := machine.RunAll(); err != nil {
					t.Fatal(err)
				}
				all := map[string][]float64{}
				for i, n := range nodes {
					all[trained[i].Name()] = floats(t, n.Value())
				}
				return all
			}
			have, want := gradients(p, tensor.Float32), gradients(exact, tensor.Float64)
			for parameter, values := range want {
				var off, size float64
				for i, x := range values {
					off, size = max(off, math.Abs(x-have[parameter][i])), max(size, math.Abs(x))
				}
				if !(off <= 1e-4*size) {
					t.Errorf("%s in %v: the gradient of %s is off by %.3g of its largest element", name, dtype, parameter, off/size)
				}
			}
		}
	}
}

func TestKeepWeightsErrors(t *testing.T) {
	p := nn.NewParameters(1)
	checkError(t, p.KeepWeights(tensor.Float64), "Parameters: dtype is float64, weights can be kept in BFloat16, Float16, Int8, Int4 or NF4")
	checkError(t, p.KeepEmbeddings(tensor.Int), "Parameters: dtype is int, embeddings can be kept in BFloat16, Float16, Int8, Int4 or NF4")
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
	packed := nn.NewParameters(1)
	if err := packed.KeepWeights(ops.NF4); err != nil {
		t.Fatal(err)
	}
	s := nn.NewScope(gorgonia.NewGraph(), packed)
	nn.NewLinear(s.Sub("d"), nn.LinearConfig{In: 96, Out: 3})
	checkError(t, errors.Unwrap(s.Err()), "Linear: parameter d.weight: 96 columns cannot be NF4 in blocks, they need to be a multiple of 64")
	s = nn.NewScope(gorgonia.NewGraph(), packed)
	nn.NewEmbedding(s.Sub("e"), nn.EmbeddingConfig{Vocab: 7, Dim: 5})
	l := nn.NewLinear(s.Sub("f"), nn.LinearConfig{In: 64, Out: 3})
	if err := s.Err(); err != nil || packed.Value("e.weight").Dtype() != tensor.Float32 || packed.Value("f.weight").Dtype() != ops.NF4 || nn.Count(l.Parameters()) != 195 {
		t.Errorf("an embedding is %v, a weight %v, of %d elements: %v", packed.Value("e.weight").Dtype(), packed.Value("f.weight").Dtype(), nn.Count(l.Parameters()), err)
	}
	checkError(t, packed.KeepEmbeddings(ops.Int8), "Parameters: layers have been made already, KeepEmbeddings needs to come before the first")
	checkError(t, linear(scope().Sub("c"), 4), "Linear: parameter c.weight exists as Float16 of shape [2 3], it needs float32 of shape [2 4]")
}
