package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/gorgonia"
)

var kept = flag.String("kept", "", "the folder for what TestExport exports, for bench/pretrained/export.py to read")

// logits are those of a model for a few tokens.
func logits(t *testing.T, p *nn.Parameters, ids []int, model func(*nn.Scope) *nn.LanguageModel) []float32 {
	t.Helper()
	scope := nn.NewScope(gorgonia.NewGraph(), p)
	ops.ModeOf(scope.Graph()).Evaluate()
	out := model(scope).Forward(scope.Constant("tokens", data.Ints(ids, 1, -1)))
	if err := scope.Err(); err != nil {
		t.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(scope.Graph())
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out.Node().Value().Data().([]float32))
}

// A run that is exported and opened again has the same ids and logits, whatever its tokenizer is.
func TestExport(t *testing.T) {
	folders := t.TempDir()
	if *kept != "" {
		folders = *kept
	}
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("für i := range 10 {\n\tprint(i)\n}\n", 400))
	for i, c := range []struct {
		args   []string
		family string
		bound  float64 // of the logits; 0 means equal
	}{
		{nil, "gpt2", 0},
		{[]string{"-bpe", "280"}, "gpt2", 0},
		{[]string{"-recipe", "muon,linear,relu2,zero"}, "gpt2", 0},
		{[]string{"-recipe", "speedrun", "-bpe", "280", "-heads", "2"}, "qwen3", 1e-6},
	} {
		name, folder := fmt.Sprint("run", i), filepath.Join(folders, fmt.Sprint("model", i))
		for _, args := range [][]string{slices.Concat(small, []string{"-steps", "5", "-context", "128", "-out", name}, c.args), {"-export", folder, "-out", name}} {
			if err := do(t, args...); err != nil {
				t.Fatalf("%q: %v", args, err)
			}
		}
		var s settings
		ours, checkpoint, err := (&run{folder: name}).readBest(&s)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := tokenizer.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		const seed = 11
		drawn := rand.New(rand.NewPCG(seed, uint64(i)))
		for range 50 {
			text := make([]byte, drawn.IntN(40))
			for j := range text {
				text[j] = byte(drawn.Uint32())
			}
			if _, few := ours.(*tokenizer.Characters); few {
				text = []byte("für i := range 10 {\n\tprint(i)\n}\n"[drawn.IntN(2)*5:])
			}
			a, err := ours.Encode(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := theirs.Encode(string(text)); err != nil || !slices.Equal(a, b) {
				t.Errorf("%q, seed %d: %q has the ids %v, exported %v: %v", c.args, seed, text, a, b, err)
			}
			if back, err := theirs.Decode(a); err != nil || back != string(text) {
				t.Errorf("%q, seed %d: %q is decoded as %q: %v", c.args, seed, text, back, err)
			}
		}
		m, err := pretrained.Load(folder, pretrained.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := nn.NewParameters(0)
		for _, w := range checkpoint.Weights {
			if err := p.Set(w.Name, w.Value); err != nil {
				t.Fatal(err)
			}
		}
		const text = "für i := range 10 {\n\tprint("
		ids, err := ours.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		want := logits(t, p, ids, func(scope *nn.Scope) *nn.LanguageModel { return s.gpt(scope, ours.Size()) })
		have := logits(t, m.Parameters(), ids, m.LanguageModel)
		worst, largest := 0.0, 0.0
		for j, x := range want {
			worst, largest = max(worst, math.Abs(float64(have[j]-x))), max(largest, math.Abs(float64(x)))
		}
		if *kept != "" {
			decoder, err := nn.NewDecoder(nn.DecoderConfig{Parameters: p, Model: func(scope *nn.Scope) nn.CachedModel { return s.gpt(scope, ours.Size()) }})
			if err != nil {
				t.Fatal(err)
			}
			keep(t, folder, text, ids, want, decoder)
		}
		if m.Family() != c.family || len(have) != len(want) || !(worst <= c.bound*largest) {
			t.Errorf("%q: a %s, %d logits off by %.1e of %.1f, want a %s, %d logits within %.0e", c.args, m.Family(), len(have), worst, largest, c.family, len(want), c.bound)
		}
	}
	if err := do(t, slices.Concat(small, []string{"-steps", "5", "-out", "odd", "-recipe", "rotary"})...); err != nil {
		t.Fatal(err)
	}
	err := do(t, "-export", "model", "-out", "odd")
	if err == nil || !strings.Contains(err.Error(), `-export of a run with the recipe "rotary": pretrained: NewModel: field`) {
		t.Errorf("a model that transformers lacks: %v", err)
	}
}

// keep writes beside a model what it computes here: the ids of a text, the logits behind each, and
// the 100 most probable tokens behind all.
func keep(t *testing.T, folder, text string, ids []int, logits []float32, decoder *nn.Decoder) {
	t.Helper()
	var greedy []int
	for next := ids; len(greedy) < 100; {
		of, err := decoder.Logits(next)
		if err != nil {
			t.Fatal(err)
		}
		next = []int{slices.Index(of, slices.Max(of))}
		greedy = append(greedy, next...)
	}
	content, err := json.Marshal(map[string]any{"text": text, "ids": ids, "logits": logits, "greedy": greedy})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, "ours.json"), string(content))
}
