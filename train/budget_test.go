package train_test

import (
	"context"
	"flag"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
)

// A training within a budget of memory has the bits of one without, keeps what it was given, and
// takes what was estimated.
func TestMemoryKeepsBudget(t *testing.T) {
	slow.Race(t)
	for name, build := range map[string]func(s *nn.Scope) *nn.LanguageModel{
		"GPT": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewGPT(s, nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 3, Heads: 4, Dim: 64, Dropout: 0.1})
		},
		"Llama": func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewLlama(s, nn.LlamaConfig{Vocab: countVocab, Layers: 3, Heads: 4, KVHeads: 2, Dim: 64, Hidden: 96, QKNorm: true})
		},
	} {
		run := func(budget train.Bytes) (l *train.Loop, losses []uint64, bytes float64) {
			store := nn.NewParameters(3)
			before := heapInUse()
			l = countingLoop(t, nil, func(c *train.LoopConfig) {
				c.Steps, c.Evaluations.Every, c.Evaluations.Validation = 2, 0, nil
				c.Data, c.Memory = repeated{48}, budget
				c.Parameters, c.Model = store, lossOf(build)
				c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
					losses = append(losses, math.Float64bits(s.Loss))
					return nil
				}}}
			})
			runLoop(t, l, context.Background())
			return l, losses, heapInUse() - before
		}
		free, want, bytes := run(1 << 40)
		whole, again := free.Memory()
		if len(again) > 0 {
			t.Errorf("%s: %v is computed again, the budget needs nothing", name, again)
		}
		checkBytes(t, name, whole, bytes)
		for _, part := range []float64{0.85, 0.7} {
			budget := train.Bytes(part * float64(whole))
			l, losses, bytes := run(budget)
			needs, again := l.Memory()
			t.Logf("%s: %v of %v, computed again: %v", name, needs, budget, again)
			if needs > budget || len(again) == 0 {
				t.Errorf("%s: a step needs %v of %v, with %v computed again", name, needs, budget, again)
			}
			checkBytes(t, name, needs, bytes)
			if !slices.Equal(losses, want) || !slices.Equal(bits(l), bits(free)) {
				t.Errorf("%s: losses or weights differ with a budget of %v", name, budget)
			}
		}
	}
}

// checkBytes compares an estimate with what is in use after a run: without sums of gradients, which
// Gorgonia lets go, and with the graph's own nodes and the workspaces of kernels.
func checkBytes(t *testing.T, name string, estimated train.Bytes, inUse float64) {
	t.Helper()
	const others = 1e6
	t.Logf("%s: %.2f MB were estimated, %.2f MB are in use", name, float64(estimated)/1e6, inUse/1e6)
	if off := inUse - float64(estimated); off < -0.04*inUse || off > 0.02*inUse+others {
		t.Errorf("%s: %.2f MB were estimated, %.2f MB are in use", name, float64(estimated)/1e6, inUse/1e6)
	}
}

// A budget that cannot be kept says what the least is, and that is enough.
func TestMemoryTooSmall(t *testing.T) {
	config := func(c *train.LoopConfig) {
		c.Data, c.Memory = repeated{8}, 1<<20
		c.Model = lossOf(func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewGPT(s, nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 3, Heads: 2, Dim: 32})
		})
	}
	c := countingConfig(nil)
	config(&c)
	_, err := train.NewLoop(c)
	if err == nil {
		t.Fatal("a budget of 1M is kept by a model that needs more")
	}
	_, after, found := strings.Cut(err.Error(), "needs at least ")
	text, _, _ := strings.Cut(after, ":")
	var least train.Bytes
	if !found || least.Set(text) != nil || !strings.Contains(err.Error(), "memory is 1M") {
		t.Fatalf("the error is %q, it needs to say the budget and the least", err)
	}
	c.Parameters, c.Memory = nn.NewParameters(1), least+least/1000
	l, err := train.NewLoop(c)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c.Memory = -1
	if _, err := train.NewLoop(c); err == nil || !strings.Contains(err.Error(), "memory is -1 bytes") {
		t.Errorf("the error of a negative budget is %v", err)
	}
}

func TestBytesFlag(t *testing.T) {
	for text, want := range map[string]train.Bytes{
		"24G": 24 << 30, "800M": 800 << 20, "1.5k": 1536, "12": 12, "2GiB": 2 << 30, "1tb": 1 << 40,
		"": -1, "G": -1, "-1G": -1, "many": -1, "1e30": -1, "NaN": -1, "9999999T": -1,
	} {
		flags, got := flag.NewFlagSet("", flag.ContinueOnError), train.Bytes(-1)
		flags.SetOutput(io.Discard)
		flags.Var(&got, "memory", "")
		if err := flags.Parse([]string{"-memory", text}); (err != nil) != (want < 0) || got != want {
			t.Errorf("%q gives %d and %v, it needs %d", text, got, err, want)
		}
	}
	if got := train.Bytes(3 << 29).String(); got != "1.5G" {
		t.Errorf("1.5G is written as %s", got)
	}
}
