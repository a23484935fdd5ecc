package nn_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trainingOf builds a model for ids of a shape, with gradients, where some regions are computed
// again.
func trainingOf(model func(*nn.Scope) *nn.LanguageModel, rows, length int) func(names []string) (*gorgonia.ExprGraph, error) {
	store := nn.NewParameters(1)
	return func(names []string) (*gorgonia.ExprGraph, error) {
		g := gorgonia.NewGraph()
		ops.RecomputeRegions(g, names...)
		s := nn.NewScope(g, store)
		ids := func(name string) nn.Tensor {
			return s.Tensor(gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(rows, length), gorgonia.WithName(name)), nil)
		}
		loss := model(s).Loss(ids("tokens"), ids("targets"))
		if err := s.Err(); err != nil {
			return nil, err
		}
		ops.ReuseMemory(g)
		_, err := gorgonia.Grad(loss.Node(), s.Trainable()...)
		return g, err
	}
}

func bytesOf(e ops.Estimate) int { return e.Inputs + e.Results }

// Over drawn models and budgets, what is chosen keeps the budget wherever some choice does, and
// costs hardly more than the cheapest of all choices.
func TestRegionsBesideAllChoices(t *testing.T) {
	slow.Race(t)
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 1))
	const models, budgets, layers = 1, 3, 3
	for range models {
		heads, dim := 1+r.IntN(2), 16*(1+r.IntN(3))
		rows, length, hidden := 1+r.IntN(3), 8*(1+r.IntN(6)), 16*(1+r.IntN(8))
		change := func(i int, c *nn.BlockConfig) { // blocks of two sizes
			if i == 1 {
				c.Hidden = hidden
			}
		}
		var model func(s *nn.Scope) *nn.LanguageModel
		if r.IntN(2) == 0 {
			model = func(s *nn.Scope) *nn.LanguageModel {
				return nn.NewGPT(s, nn.GPTConfig{Vocab: 50, Context: length, Layers: layers, Heads: heads, Dim: dim, Dropout: 0.1, Block: change})
			}
		} else {
			model = func(s *nn.Scope) *nn.LanguageModel {
				return nn.NewLlama(s, nn.LlamaConfig{Vocab: 50, Layers: layers, Heads: heads, Dim: dim, Hidden: 64, QKNorm: true, Block: change})
			}
		}
		build := trainingOf(model, rows, length)
		estimate := func(names []string) ops.Estimate {
			g, err := build(names)
			if err != nil {
				t.Fatal(err)
			}
			e, err := ops.EstimateRun(g)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		all := []ops.Estimate{}
		for _, first := range waysOf("blocks.0") {
			for _, second := range waysOf("blocks.1") {
				for _, third := range waysOf("blocks.2") {
					all = append(all, estimate(slices.Concat(first, second, third)))
				}
			}
		}
		plain := all[0]
		least := bytesOf(slices.MinFunc(all, func(a, b ops.Estimate) int { return bytesOf(a) - bytesOf(b) }))
		for i := range budgets {
			budget := least + i*(bytesOf(plain)-least)/budgets
			best := ops.Estimate{}
			for _, e := range all {
				if bytesOf(e) <= budget && (best.Work == 0 || e.Work < best.Work) {
					best = e
				}
			}
			names, chosen, err := ops.ChooseRegions(budget, build, bytesOf)
			if i == 0 && err != nil { // what a budget needs at least is near to the least of all
				var of *ops.BudgetError
				if !errors.As(err, &of) || float64(of.Least) > 1.05*float64(least) {
					t.Errorf("seed %d: a budget of %d bytes, the least: %v", seed, budget, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: budget %d: %v", seed, budget, err)
			}
			more := chosen.Work/plain.Work - 1
			cheapest := best.Work/plain.Work - 1
			t.Logf("%d of %d bytes: %v costs %.1f%%, the cheapest %.1f%%", bytesOf(chosen), budget, names, 100*more, 100*cheapest)
			if bytesOf(chosen) > budget || bytesOf(estimate(names)) != bytesOf(chosen) {
				t.Errorf("seed %d: %v takes %d bytes of %d", seed, names, bytesOf(chosen), budget)
			}
			if more > cheapest+0.04 {
				t.Errorf("seed %d: %v costs %.1f%% more than nothing computed again, the cheapest choice %.1f%%", seed, names, 100*more, 100*cheapest)
			}
		}
	}
}

// waysOf are the ways to compute parts of a block again.
func waysOf(block string) [][]string {
	const kept = "/keeps-attention"
	return [][]string{
		{}, {block + ".attn"}, {block + ".mlp"}, {block + ".attn", block + ".mlp"}, {block},
		{block + ".attn" + kept}, {block + ".attn" + kept, block + ".mlp"}, {block + kept},
	}
}

// A run that fits needs nothing, and the estimate of a graph that keeps its memory is refused.
func TestRegionsOfRunThatFits(t *testing.T) {
	build := trainingOf(func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 20, Context: 8, Layers: 1, Heads: 1, Dim: 16})
	}, 2, 8)
	names, e, err := ops.ChooseRegions(1<<30, build, bytesOf)
	if err != nil || len(names) > 0 {
		t.Errorf("%v is computed again of a run that fits, and the error is %v", names, err)
	}
	var offered []string
	for _, r := range e.Regions {
		if offered = append(offered, r.Name); r.Bytes <= 0 || r.Work <= 0 {
			t.Errorf("%s keeps %d bytes and costs %v, both need to be positive", r.Name, r.Bytes, r.Work)
		}
	}
	if want := []string{"blocks.0.attn", "blocks.0.mlp", "blocks.0"}; !slices.Equal(offered, want) {
		t.Errorf("%v are offered, it needs to be %v", offered, want)
	}
	for g, want := range map[*gorgonia.ExprGraph]string{
		nil:                 "EstimateRun: g is nil, it needs to be a graph",
		gorgonia.NewGraph(): "EstimateRun: the graph's ops keep their memory, it needs ReuseMemory",
	} {
		if _, err := ops.EstimateRun(g); err == nil || err.Error() != want {
			t.Errorf("the error is %v, it needs to be %q", err, want)
		}
	}
}

// Over long sequences a budget keeps what attention has computed, and computes the rest again.
func TestRegionsKeepAttention(t *testing.T) {
	build := trainingOf(func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: 50, Layers: 4, Heads: 2, Dim: 32, Hidden: 96})
	}, 1, 16<<10)
	_, plain, err := ops.ChooseRegions(math.MaxInt, build, bytesOf)
	if err != nil {
		t.Fatal(err)
	}
	all, least, err := ops.ChooseRegions(bytesOf(plain)*45/100, build, bytesOf)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v costs %.1f%%", all, 100*(least.Work/plain.Work-1))
	attention, kept := 0.0, 0
	for _, r := range plain.Regions {
		if strings.HasSuffix(r.Name, ".attn") {
			attention += r.Work
		}
	}
	for _, name := range all {
		if strings.HasSuffix(name, "/keeps-attention") {
			kept++
		}
	}
	if more := least.Work - plain.Work; kept != 4 || !(more < attention/4) {
		t.Errorf("%v costs %v, attention in all blocks %v: each block needs to keep it", all, more, attention)
	}
}

// Gradients have the bits of those of a model that keeps everything, whatever is computed again.
func TestRegionsHaveTheSameBits(t *testing.T) {
	for name, model := range map[string]func(s *nn.Scope) *nn.LanguageModel{
		"GPT": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewGPT(s, nn.GPTConfig{Vocab: 20, Context: 24, Layers: 2, Heads: 2, Dim: 16, Dropout: 0.2})
		},
		"Llama": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewLlama(s, nn.LlamaConfig{Vocab: 20, Layers: 2, Heads: 4, KVHeads: 2, Dim: 32, Hidden: 48, QKNorm: true})
		},
	} {
		var want [][]uint32
		for _, names := range waysOf("blocks.0") {
			got := gradientsIn(t, model, append(names, "blocks.1/keeps-attention"))
			if want == nil {
				want = gradientsIn(t, model, nil)
			}
			if !slices.EqualFunc(got, want, slices.Equal[[]uint32]) {
				t.Errorf("%s: gradients differ with %v computed again", name, names)
			}
		}
	}
}

// gradientsIn are the bits of the loss and all gradients in the second of two runs.
func gradientsIn(t *testing.T, model func(*nn.Scope) *nn.LanguageModel, again []string) (bits [][]uint32) {
	t.Helper()
	g, random := gorgonia.NewGraph(), rand.New(rand.NewPCG(4, 4))
	ops.RecomputeRegions(g, again...)
	s := nn.NewScope(g, nn.NewParameters(1))
	ids := func(name string) nn.Tensor {
		list := make([]int, 2*24)
		for i := range list {
			list[i] = random.IntN(20)
		}
		n := gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(2, 24), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(2, 24), tensor.WithBacking(list))))
		return s.Tensor(n, nil)
	}
	loss := model(s).Loss(ids("tokens"), ids("targets"))
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	ops.ReuseMemory(g)
	ops.ModeOf(g).Train(5)
	parameters := s.Trainable()
	if _, err := gorgonia.Grad(loss.Node(), parameters...); err != nil {
		t.Fatal(err)
	}
	m, err := ops.NewMachine(g, gorgonia.BindDualValues(parameters...))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 2 {
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		m.Reset()
	}
	for _, n := range append(gorgonia.Nodes{loss.Node()}, parameters...) {
		v := n.Value()
		if n != loss.Node() {
			if v, err = n.Grad(); err != nil {
				t.Fatal(err)
			}
		}
		var list []uint32
		switch x := v.Data().(type) {
		case float32:
			list = append(list, math.Float32bits(x))
		case []float32:
			for _, x := range x {
				list = append(list, math.Float32bits(x))
			}
		}
		bits = append(bits, list)
	}
	return bits
}
