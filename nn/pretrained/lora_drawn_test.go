package pretrained

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
)

var (
	drawnAdapters = flag.Int("adapters", 30, "how many adapters of any family are drawn, saved, merged and loaded again")
	adapterSeed   = flag.Uint64("adapter-seed", 1, "the first seed of those adapters")
)

// goldenOutputs are what the model of that name makes of its golden inputs.
func goldenOutputs(t *testing.T, m *Model, name string) []float32 {
	t.Helper()
	want, s := readGolden(t, name), m.scope()
	var outputs []nn.Tensor
	switch {
	case slices.Contains(languageModels, name):
		outputs = []nn.Tensor{m.LanguageModel(s).Forward(ids(s, "tokens", want.Tokens))}
	case slices.Contains(encoders, name):
		e := m.Encoder(s)
		outputs = headsOf(e, name, s, e.ForwardWith(ids(s, "tokens", want.Tokens), want.inputs(s)), want)
	case slices.Contains(visions, name):
		outputs = seen(s, m.Encoder(s), want)
	case slices.Contains(pairs, name):
		outputs, _ = paired(s, m.Contrastive(s), want)
	default:
		logits, _ := written(s, m.EncoderDecoder(s), want)
		outputs = []nn.Tensor{logits}
	}
	run(t, s)
	var all []float32
	for _, x := range outputs {
		all = append(all, value(t, x).Data().([]float32)...)
	}
	return all
}

// drawAdapter draws an adapter of a model.
func drawAdapter(r *rand.Rand, m *Model) LoRA {
	one := func(n int) bool { return r.IntN(n) == 0 }
	l := LoRA{Rank: 1 + r.IntN(4), RankStabilized: one(3), Decomposed: one(4), Biases: Biases(r.IntN(3))}
	if one(2) {
		l.Alpha = []float64{0.5, 3, 16}[r.IntN(3)]
	}
	var modules []string
	for _, link := range m.arch.links {
		if module, isWeight := strings.CutSuffix(link.theirs, ".weight"); isWeight && (link.linear || link.embedding && !l.Decomposed) {
			modules = append(modules, module)
		}
	}
	some := func() (list []string) {
		for range 1 + r.IntN(3) {
			module := modules[r.IntN(len(modules))]
			if one(2) {
				module = module[strings.LastIndexByte(module, '.')+1:]
			}
			list = append(list, module)
		}
		return list
	}
	if one(2) {
		l.Targets = some()
	}
	if one(4) {
		l.Exclude = some()
	}
	if one(4) {
		l.Layers = []int{r.IntN(2)}
	}
	for one(3) {
		l.Sizes = append(l.Sizes, LoRASize{Module: some()[0], Rank: r.IntN(5), Alpha: []float64{0, 2, 7}[r.IntN(3)]})
	}
	if one(5) {
		l.Whole = some()[:1]
	}
	return l
}

// An adapter of any family computes the same after it was saved and loaded, and after it was merged
// into the model, and that saved and loaded. Taken out, it leaves what was before.
func TestDrawnAdapters(t *testing.T) {
	slow.Race(t)
	refused := map[string]int{}
	names := slices.Concat(languageModels, encoders, visions, pairs, writers)
	for seed := *adapterSeed; seed < *adapterSeed+uint64(*drawnAdapters); seed++ {
		r := rand.New(rand.NewPCG(seed, 5))
		name := names[r.IntN(len(names))]
		t.Run(fmt.Sprint(seed, " ", name), func(t *testing.T) {
			from := filepath.Join("testdata", name)
			m := load(t, from, Options{})
			l := drawAdapter(r, m)
			defer func() {
				if t.Failed() {
					t.Logf("%+v", l)
				}
			}()
			plain := goldenOutputs(t, m, name)
			if err := m.AddLoRA(l); err != nil {
				refused[err.Error()]++
				if !slices.Equal(goldenOutputs(t, m, name), plain) {
					t.Errorf("the adapter was refused, and changes what the model computes: %v", err)
				}
				return
			}
			for _, p := range m.Parameters().Names() {
				if values := m.Parameters().Value(p); strings.HasSuffix(p, ".lora_b") || strings.HasSuffix(p, ".lora_m") {
					for i, list := 0, values.Float32s(); i < len(list); i++ {
						list[i] += 0.1 * (float32(r.Float64()) - 0.5)
					}
				}
			}
			want := goldenOutputs(t, m, name)
			folder := t.TempDir()
			if err := m.SaveLoRA(folder); err != nil {
				t.Fatal(err)
			}
			again := load(t, from, Options{})
			if err := again.LoadLoRA(folder); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(goldenOutputs(t, again, name), want) {
				t.Error("the adapter that was saved computes something else when it is loaded")
			}
			if err := m.UseLoRA(""); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(goldenOutputs(t, m, name), plain) {
				t.Error("without the adapter the model computes something else than before")
			}
			if err := m.UseLoRA(defaultName); err != nil {
				t.Fatal(err)
			}
			before := clones(m)
			if err := m.Parameters().MergeLoRA(); err != nil {
				refused[err.Error()]++
				for p, value := range before {
					if !slices.Equal(m.Parameters().Value(p).Float32s(), value) {
						t.Errorf("merging was refused, and has changed %s: %v", p, err)
					}
				}
				return
			}
			near(t, "what the merged model computes", goldenOutputs(t, m, name), wide(want), 2e-5)
			merged := t.TempDir()
			if err := m.Save(merged, SaveOptions{ShardSize: int64(r.IntN(2)) * 5000}); err != nil {
				t.Fatal(err)
			}
			near(t, "what the saved model computes", goldenOutputs(t, load(t, merged, Options{}), name), wide(want), 2e-5)
			if err := m.Parameters().UnmergeLoRA(); err != nil {
				t.Fatal(err)
			}
			near(t, "what the model computes that was taken apart", goldenOutputs(t, m, name), wide(want), 2e-5)
			for p, value := range before {
				near(t, p, m.Parameters().Value(p).Float32s(), wide(value), 2e-6)
			}
		})
	}
	for err, n := range refused {
		t.Logf("refused %d times: %s", n, err)
	}
}
