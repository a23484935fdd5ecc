//go:build gpu

package nn_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// 500 tokens, each the likeliest that is none of the hundred before it, are those of the host: by
// their logits and by the device's own choice, in float32.
func TestGreedyTokensOnTheDevice(t *testing.T) {
	d := openDevice(t)
	shape := nn.LlamaConfig{Vocab: 2000, Layers: 4, Heads: 8, KVHeads: 2, Dim: 256, Hidden: 704}
	w := decodes{compute: tensor.Float32, weights: tensor.Float32}
	for _, chooses := range []bool{false, true} {
		there, err := nn.NewDecoder(w.config(t, d, 512, shape))
		if err != nil {
			t.Fatal(err)
		}
		here, err := nn.NewDecoder(w.config(t, nil, 512, shape))
		if err != nil {
			t.Fatal(err)
		}
		tokens := []int{3, 1, 4, 1, 5}
		var earlier []kernels.EarlierToken
		for step := range 500 {
			last := earlier[max(0, len(earlier)-100):]
			want := likeliest(t, here, tokens, last)
			got := -1
			if chooses {
				c, err := there.Choose(tokens, kernels.Choice{Earlier: last})
				if err != nil {
					t.Fatal(err)
				}
				got = c.ID
			} else {
				got = likeliest(t, there, tokens, last)
			}
			if got != want {
				t.Fatalf("chooses %v: token %d is %d, the host's is %d", chooses, step, got, want)
			}
			tokens, earlier = []int{want}, append(earlier, kernels.EarlierToken{ID: int32(want), Chosen: kernels.Forbidden})
		}
	}
}

// likeliest feeds tokens and gives the number of the largest logit but those of earlier tokens.
func likeliest(t *testing.T, d *nn.Decoder, tokens []int, but []kernels.EarlierToken) int {
	t.Helper()
	logits, err := d.Logits(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range but {
		logits[e.ID] = math.Inf(-1)
	}
	return greedy(logits)
}

// A decoder takes no more memory, of the device and the host, after 10,000 tokens than after 1,000,
// far beyond its window.
func TestMemoryOfADecoderOnTheDevice(t *testing.T) {
	d := openDevice(t)
	raw, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	shape := nn.LlamaConfig{Vocab: 1000, Layers: 2, Heads: 8, KVHeads: 2, Dim: 256, Hidden: 512}
	decoder, err := nn.NewDecoder(decodes{compute: ops.BFloat16, weights: ops.BFloat16}.config(t, d, 300, shape))
	if err != nil {
		t.Fatal(err)
	}
	type use struct{ live, peak, recorded, heap int }
	now := func() use {
		runtime.GC()
		var host runtime.MemStats
		runtime.ReadMemStats(&host)
		m := raw.Memory()
		return use{m.Live, m.Peak, m.Recorded, int(host.HeapAlloc)}
	}
	var early use
	random := rand.New(rand.NewPCG(1, 1))
	for n := range 10_000 {
		if _, err := decoder.Choose([]int{random.IntN(shape.Vocab)}, kernels.Choice{Temperature: 1, Random: uint64(n)}); err != nil {
			t.Fatal(err)
		}
		if n == 1000 {
			early = now()
		}
	}
	late := now()
	t.Logf("after 1,000 tokens %+v, after 10,000 %+v", early, late)
	if late.live > early.live || late.peak > early.peak || late.recorded > early.recorded || late.heap > early.heap+1<<20 {
		t.Errorf("after 1,000 tokens %+v, after 10,000 %+v", early, late)
	}
}
