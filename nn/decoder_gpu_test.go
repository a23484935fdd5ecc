//go:build gpu

package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// decodes is a way to decode on a device.
type decodes struct {
	name             string
	compute, weights tensor.Dtype
	bound            float64      // of the largest error of a logit, relative to the largest logit
	embeddings       tensor.Dtype // none for as weights are
}

var waysToDecode = []decodes{
	{name: "float32", compute: tensor.Float32, weights: tensor.Float32, bound: 1e-5},
	{name: "bfloat16", compute: ops.BFloat16, weights: tensor.Float32, bound: 0.05},
	{name: "bfloat16 weights", compute: ops.BFloat16, weights: ops.BFloat16, bound: 0.05},
	{name: "float16 weights", compute: ops.Float16, weights: ops.Float16, bound: 0.02},
}

func openDevice(t testing.TB) *ops.Device {
	t.Helper()
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// config describes a decoder of a Llama, on the host where the device is nil.
func (w decodes) config(t testing.TB, d *ops.Device, capacity int, shape nn.LlamaConfig) nn.DecoderConfig {
	t.Helper()
	return w.of(t, d, capacity, func(s *nn.Scope) nn.CachedModel { return nn.NewLlama(s, shape) })
}

// of describes a decoder of a model.
func (w decodes) of(t testing.TB, d *ops.Device, capacity int, model func(s *nn.Scope) nn.CachedModel) nn.DecoderConfig {
	t.Helper()
	p := nn.NewParameters(1)
	if w.weights != tensor.Float32 {
		if err := p.KeepWeights(w.weights); err != nil {
			t.Fatal(err)
		}
	}
	if w.embeddings != (tensor.Dtype{}) {
		if err := p.KeepEmbeddings(w.embeddings); err != nil {
			t.Fatal(err)
		}
	}
	if d != nil {
		if err := p.MoveTo(d); err != nil {
			t.Fatal(err)
		}
	}
	return nn.DecoderConfig{Parameters: p, Capacity: capacity, Model: func(s *nn.Scope) nn.CachedModel { return model(s.Compute(w.compute)) }}
}

// compareLogits compares those of a device with those of the host.
func (w decodes) compareLogits(t *testing.T, what string, got, want []float64) {
	t.Helper()
	var worst, largest float64
	for i := range want {
		e := math.Abs(got[i] - want[i])
		if math.IsNaN(e) {
			e = math.Inf(1)
		}
		worst, largest = max(worst, e), max(largest, math.Abs(want[i]))
	}
	if worst > w.bound*largest || len(got) != len(want) {
		t.Fatalf("%s: %s: the largest error is %.3g of %.3g", w.name, what, worst, largest)
	}
}

// A decoder on a device, whose runs are recorded, gives the logits of one on the host, while the
// window grows, when it is full, and after tokens were taken back; a batch of texts too, of which
// some rest.
func TestDecodersOnTheDevice(t *testing.T) {
	d := openDevice(t)
	shape := nn.LlamaConfig{Vocab: 1000, Layers: 3, Heads: 8, KVHeads: 2, Dim: 512, Hidden: 1024, TiedHead: true}
	for _, w := range waysToDecode {
		t.Run(w.name, func(t *testing.T) {
			const capacity = 100
			host := decodes{compute: tensor.Float32, weights: tensor.Float32}
			there, err := nn.NewDecoder(w.config(t, d, capacity, shape))
			if err != nil {
				t.Fatal(err)
			}
			here, err := nn.NewDecoder(host.config(t, nil, capacity, shape))
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(3, 3))
			for step := range 160 {
				tokens := make([]int, 1)
				if step%40 == 0 {
					tokens = make([]int, 37)
				}
				for i := range tokens {
					tokens[i] = random.IntN(shape.Vocab)
				}
				if step == 30 {
					for _, x := range []*nn.Decoder{there, here} {
						if err := x.Truncate(20); err != nil {
							t.Fatal(err)
						}
					}
				}
				got, err := there.Logits(tokens)
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				want, err := here.Logits(tokens)
				if err != nil {
					t.Fatal(err)
				}
				w.compareLogits(t, fmt.Sprintf("step %d", step), got, want)
			}

			const batch = 3
			several, err := nn.NewBatchDecoder(batch, w.config(t, d, capacity, shape))
			if err != nil {
				t.Fatal(err)
			}
			beside, err := nn.NewBatchDecoder(batch, host.config(t, nil, capacity, shape))
			if err != nil {
				t.Fatal(err)
			}
			for step := range 60 {
				tokens := make([][]int, batch)
				for text := range tokens {
					for range []int{1, step % 2, (step % 7) / 5}[text] {
						tokens[text] = append(tokens[text], random.IntN(shape.Vocab))
					}
				}
				if step == 40 { // one text goes on from another
					for _, x := range []*nn.BatchDecoder{several, beside} {
						if err := x.Fork(2, 0, 20); err != nil {
							t.Fatal(err)
						}
					}
				}
				got, err := several.Logits(tokens)
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				want, err := beside.Logits(tokens)
				if err != nil {
					t.Fatal(err)
				}
				for text := range tokens {
					if tokens[text] != nil {
						w.compareLogits(t, fmt.Sprintf("step %d of text %d", step, text), got[text], want[text])
					}
				}
			}
		})
	}
}

// Models whose caches or blocks are others than a Llama's have on a device the logits of the host:
// caches of latents, experts, and memories of sources, of each text its own and read again.
func TestOtherDecodersOnTheDevice(t *testing.T) {
	d := openDevice(t)
	const vocab, capacity, texts = 31, 60, 2
	llama := func(block func(c *nn.BlockConfig)) func(s *nn.Scope) nn.CachedModel {
		return func(s *nn.Scope) nn.CachedModel { return smallLlama(block)(s).(*nn.LanguageModel) }
	}
	for name, model := range map[string]func(s *nn.Scope) nn.CachedModel{
		"latents": llama(latents), "experts": llama(experts),
		"sources": func(s *nn.Scope) nn.CachedModel { return nn.NewEncoderDecoder(s, translatorConfig(vocab, 100)) },
	} {
		for _, w := range waysToDecode {
			if name == "experts" && w.compute != tensor.Float32 {
				continue // others may be chosen
			}
			t.Run(name+"/"+w.name, func(t *testing.T) {
				there, err := nn.NewBatchDecoder(texts, w.of(t, d, capacity, model))
				if err != nil {
					t.Fatal(err)
				}
				here, err := nn.NewBatchDecoder(texts, decodes{compute: tensor.Float32, weights: tensor.Float32}.of(t, nil, capacity, model))
				if err != nil {
					t.Fatal(err)
				}
				random := rand.New(rand.NewPCG(4, 4))
				drawn := func(n int) []int {
					list := make([]int, n)
					for i := range list {
						list[i] = random.IntN(vocab)
					}
					return list
				}
				for step := range 40 {
					if text := step / 10 % texts; name == "sources" && (step < texts || step%10 == 0) {
						if step < texts {
							text = step
						}
						source := tensor.New(tensor.WithBacking(drawn(5 + 20*step%33)))
						for _, x := range []*nn.BatchDecoder{there, here} {
							if err := x.Read(text, source); err != nil {
								t.Fatal(err)
							}
						}
						if step == 0 {
							continue // the other text has none yet
						}
					}
					tokens := [][]int{drawn(1), drawn(1 + step%20/19*6)}
					got, err := there.Logits(tokens)
					if err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
					want, err := here.Logits(tokens)
					if err != nil {
						t.Fatal(err)
					}
					for text := range tokens {
						w.compareLogits(t, fmt.Sprintf("step %d of text %d", step, text), got[text], want[text])
					}
				}
			})
		}
	}
}

// Weights that are kept packed give on a device the logits of the host, which widens the same.
func TestPackedDecodersOnTheDevice(t *testing.T) {
	d := openDevice(t)
	shape := nn.LlamaConfig{Vocab: 100, Layers: 2, Heads: 4, KVHeads: 2, Dim: 256, Hidden: 512}
	for _, weights := range []tensor.Dtype{ops.Int8, ops.Int4, ops.NF4} {
		for _, w := range []decodes{
			{name: "float32", compute: tensor.Float32, weights: weights, bound: 1e-5},
			{name: "bfloat16", compute: ops.BFloat16, weights: weights, bound: 0.05},
			{name: "float16", compute: ops.Float16, weights: weights, bound: 0.01},
			{name: "float32 with embeddings", compute: tensor.Float32, weights: weights, embeddings: weights, bound: 1e-5},
			{name: "bfloat16 with embeddings", compute: ops.BFloat16, weights: weights, embeddings: weights, bound: 0.05},
		} {
			t.Run(fmt.Sprint(weights, " in ", w.name), func(t *testing.T) {
				there, err := nn.NewDecoder(w.config(t, d, 60, shape))
				if err != nil {
					t.Fatal(err)
				}
				host := decodes{compute: tensor.Float32, weights: weights, embeddings: w.embeddings}
				here, err := nn.NewDecoder(host.config(t, nil, 60, shape))
				if err != nil {
					t.Fatal(err)
				}
				random := rand.New(rand.NewPCG(5, 5))
				for step := range 30 {
					tokens := make([]int, 1)
					if step%15 == 0 {
						tokens = make([]int, 20)
					}
					for i := range tokens {
						tokens[i] = random.IntN(shape.Vocab)
					}
					got, err := there.Logits(tokens)
					if err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
					want, err := here.Logits(tokens)
					if err != nil {
						t.Fatal(err)
					}
					w.compareLogits(t, fmt.Sprintf("step %d", step), got, want)
				}

				const batch = 11
				several, err := nn.NewBatchDecoder(batch, w.config(t, d, 60, shape))
				if err != nil {
					t.Fatal(err)
				}
				beside, err := nn.NewBatchDecoder(batch, host.config(t, nil, 60, shape))
				if err != nil {
					t.Fatal(err)
				}
				for step := range 12 {
					tokens := make([][]int, batch)
					for text := range tokens {
						tokens[text] = []int{random.IntN(shape.Vocab)}
					}
					got, err := several.Logits(tokens)
					if err != nil {
						t.Fatalf("step %d of several: %v", step, err)
					}
					want, err := beside.Logits(tokens)
					if err != nil {
						t.Fatal(err)
					}
					for text := range tokens {
						w.compareLogits(t, fmt.Sprintf("step %d of text %d", step, text), got[text], want[text])
					}
				}
			})
		}
	}
}

// A decoder on a device chooses by its logits what the host would, in another way in each run of
// one recording.
func TestDecoderChoosesOnTheDevice(t *testing.T) {
	d := openDevice(t)
	shape := nn.LlamaConfig{Vocab: 20_000, Layers: 2, Heads: 8, KVHeads: 2, Dim: 256, Hidden: 512}
	for _, w := range waysToDecode {
		t.Run(w.name, func(t *testing.T) {
			var decoders []*nn.BatchDecoder
			for range 2 {
				x, err := nn.NewBatchDecoder(3, w.config(t, d, 100, shape))
				if err != nil {
					t.Fatal(err)
				}
				decoders = append(decoders, x)
			}
			compareChoices(t, decoders[0], decoders[1], shape.Vocab, 80)
		})
	}
}

// cheapInit draws numbers in little time.
func cheapInit([]int, *rand.Rand) func() float64 {
	n := uint32(0)
	return func() float64 {
		n = n*1664525 + 1013904223
		return 0.04 * (float64(n>>8)/(1<<24) - 0.5)
	}
}

// BenchmarkDecoderOnTheDevice decodes one token after another with a model of TinyLlama's shape,
// with 16-bit weights, behind a prompt of 1,024 tokens: for one text and for sixteen. The logits
// come to the host each time, or a token that is chosen there.
func BenchmarkDecoderOnTheDevice(b *testing.B) {
	d := openDevice(b)
	shape := nn.LlamaConfig{Vocab: 32000, Context: 2048, Layers: 22, Heads: 32, KVHeads: 4, Dim: 2048, Hidden: 5632,
		Block: func(_ int, c *nn.BlockConfig) { c.Init, c.ProjInit = cheapInit, cheapInit }}
	config := decodes{compute: ops.BFloat16, weights: ops.BFloat16}.config(b, d, 2048, shape)
	for _, chooses := range []bool{false, true} {
		for _, texts := range []int{1, 16} {
			b.Run(fmt.Sprintf("texts=%d/chooses=%t", texts, chooses), func(b *testing.B) { timeDecoder(b, config, shape.Vocab, texts, chooses) })
		}
	}
}

// BenchmarkLargeDecoderOnTheDevice does so with a model of Llama-3's shape of 8B and each type of
// weights, where a token is chosen on the device. All blocks have the numbers of one.
func BenchmarkLargeDecoderOnTheDevice(b *testing.B) {
	d := openDevice(b)
	shape := nn.LlamaConfig{Vocab: 128256, Context: 2048, Layers: 32, Heads: 32, KVHeads: 8, Dim: 4096, Hidden: 14336, TiedHead: true,
		Block: func(_ int, c *nn.BlockConfig) { c.Init, c.ProjInit = cheapInit, cheapInit }}
	for _, kept := range []struct{ weights, embeddings tensor.Dtype }{
		{ops.BFloat16, ops.BFloat16}, {ops.Int8, ops.BFloat16}, {ops.Int8, ops.Int8}, {ops.Int4, ops.BFloat16}, {ops.Int4, ops.Int8},
	} {
		var config nn.DecoderConfig
		for _, texts := range []int{1, 16} {
			b.Run(fmt.Sprintf("weights=%v/embeddings=%v/texts=%d", kept.weights, kept.embeddings, texts), func(b *testing.B) {
				if config.Parameters == nil {
					w := decodes{compute: ops.BFloat16, weights: kept.weights, embeddings: kept.embeddings}
					config = w.config(b, d, 2048, shape)
					repeatBlocks(b, config.Parameters, w, shape)
				}
				timeDecoder(b, config, shape.Vocab, texts, true)
			})
		}
	}
}

// repeatBlocks gives all blocks of a Llama the numbers of one.
func repeatBlocks(b *testing.B, p *nn.Parameters, w decodes, shape nn.LlamaConfig) {
	b.Helper()
	one := shape
	one.Layers = 1
	w.compute = tensor.Float32
	host := w.config(b, nil, 16, one)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	numbers, draw := make([]float32, shape.Vocab*shape.Dim), cheapInit(nil, nil)
	for i := range numbers {
		numbers[i] = float32(draw())
	}
	tokens := tensor.New(tensor.WithShape(shape.Vocab, shape.Dim), tensor.WithBacking(numbers))
	if !ops.IsPacked(w.embeddings) { // else the layer packs them
		var err error
		tokens, err = ops.Converted(tokens, w.embeddings)
		must(err)
	}
	must(host.Parameters.Set("tokens.weight", tokens))
	_, err := nn.NewDecoder(host)
	must(err)
	for name, value := range host.Parameters.Values() {
		names := []string{name}
		if rest, ok := strings.CutPrefix(name, "blocks.0."); ok {
			names = nil
			for n := range shape.Layers {
				names = append(names, fmt.Sprintf("blocks.%d.%s", n, rest))
			}
		}
		for _, name := range names {
			must(p.Set(name, value))
		}
	}
}

// timeDecoder times the tokens of some texts behind a prompt.
func timeDecoder(b *testing.B, config nn.DecoderConfig, vocab, texts int, chooses bool) {
	const prompt, tokens = 1024, 128
	decoder, err := nn.NewBatchDecoder(texts, config)
	if err != nil {
		b.Fatal(err)
	}
	feed := func(n int) {
		list := make([][]int, texts)
		for text := range list {
			for i := range n {
				list[text] = append(list[text], (text*7+i*13)%vocab)
			}
		}
		if chooses {
			if _, err := decoder.Choose(list, slices.Repeat([]kernels.Choice{{Temperature: 1, TopK: 50, TopP: 0.9, Random: uint64(n) << 40}}, texts)); err != nil {
				b.Fatal(err)
			}
		} else if _, err := decoder.Logits(list); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	feed(prompt)
	filled := time.Since(began)
	for range 4 {
		feed(1)
	}
	began = time.Now()
	for range tokens {
		feed(1)
	}
	each := time.Since(began).Seconds() / tokens
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(each*1e3, "ms/token")
	b.ReportMetric(float64(texts)/each, "tokens/s")
	b.ReportMetric(float64(texts*prompt)/filled.Seconds(), "prompt-tokens/s")
}
