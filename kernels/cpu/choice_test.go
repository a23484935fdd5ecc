package cpu_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/internal/choicetest"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Whatever the logits and the settings are, the choice is that of the definition.
func TestChooseTokens(t *testing.T) {
	chosen := 0
	count := uint64(1500)
	if slow.Racing() {
		count /= 5
	}
	for seed := range count {
		r := rand.New(rand.NewPCG(seed, 0))
		p := choicetest.Draw(r, []int{1, 2, 7, 40, 300, 2000}[seed%6])
		ids, logProbs := reference.ChooseTokens(p)
		if seed%3 == 0 {
			p.Logits = inFloat64(p.Logits)
		}
		got, gotLogProbs := make([]int64, len(ids)), make([]float32, len(ids))
		if err := cpu.New().ChooseTokens(p, kernels.ChosenTokens{IDs: kernels.Of(got, len(got)), LogProbs: kernels.Of(gotLogProbs, len(got))}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for text, id := range ids {
			if want := logProbs[text]; int(got[text]) != id || !(math.Abs(float64(gotLogProbs[text])-want) <= 1e-6*(1+math.Abs(want))) && !math.IsNaN(want) {
				t.Fatalf("seed %d: text %d gets token %d of log-probability %v, it needs %d and %v: settings %v", seed, text, got[text], gotLogProbs[text],
					id, want, kernels.Host[float32](p.Settings)[text*kernels.ChoiceSettings:][:kernels.ChoiceSettings])
			}
			if id >= 0 {
				chosen++
			}
		}
	}
	if chosen < int(count)*8/3 {
		t.Errorf("of %d problems only %d texts have a token: the draws show little", count, chosen)
	}
}

func inFloat64(x kernels.Tensor) kernels.Tensor {
	wide := make([]float64, x.Elements())
	for i, v := range kernels.Host[float32](x)[:len(wide)] {
		wide[i] = float64(v)
	}
	return kernels.Of(wide, x.Shape...)
}

func TestChooseTokensErrors(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(p *kernels.ChooseTokens, out *kernels.ChosenTokens)
	}{
		{"logits has shape [2 1 4], it needs two axes (texts, tokens)", func(p *kernels.ChooseTokens, _ *kernels.ChosenTokens) {
			p.Logits = p.Logits.Reshape(2, 1, 4)
		}},
		{"settings has shape [2 8], it needs shape [2 9]", func(p *kernels.ChooseTokens, _ *kernels.ChosenTokens) { p.Settings = p.Settings.Slice(1, 0, 8) }},
		{"earlier has shape [2], it needs one axis of at least 3", func(p *kernels.ChooseTokens, _ *kernels.ChosenTokens) { p.Earlier = p.Earlier.Slice(0, 0, 2) }},
		{"random is missing, it needs shape [2]", func(p *kernels.ChooseTokens, _ *kernels.ChosenTokens) { p.Random = kernels.Tensor{} }},
		{"ids is int32, it needs to be int64", func(_ *kernels.ChooseTokens, out *kernels.ChosenTokens) { out.IDs = kernels.Of(make([]int32, 2), 2) }},
	} {
		p := &kernels.ChooseTokens{
			Logits: kernels.Of(make([]float32, 8), 2, 4), Settings: kernels.Of(make([]float32, 18), 2, kernels.ChoiceSettings),
			Random: kernels.Of(make([]int64, 2), 2), Earlier: kernels.Of(make([]int32, 3), 3),
		}
		out := kernels.ChosenTokens{IDs: kernels.Of(make([]int64, 2), 2), LogProbs: kernels.Of(make([]float32, 2), 2)}
		c.change(p, &out)
		if err := cpu.New().ChooseTokens(p, out); err == nil || !strings.HasSuffix(err.Error(), "choose tokens: "+c.want) {
			t.Errorf("the error is %v, it needs to be %s", err, c.want)
		}
	}
}
