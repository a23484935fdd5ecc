package nn_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/tensor"
)

// drawnChoice is one of many ways to choose a token.
func drawnChoice(r *rand.Rand, vocab int) kernels.Choice {
	c := kernels.Choice{
		Temperature: []float64{0, 0.5, 1, 2}[r.IntN(4)], TopK: []int{0, 0, 3, 40}[r.IntN(4)], TopP: []float64{0, 0.9, 0.3}[r.IntN(3)],
		MinP: []float64{0, 0, 0.1}[r.IntN(3)], Repetition: []float64{0, 1.3}[r.IntN(2)], Presence: []float64{0, 0.5}[r.IntN(2)], Frequency: []float64{0, 0.2}[r.IntN(2)],
		Tokens: []int{0, vocab - 3}[r.IntN(2)], Random: r.Uint64(), LogProb: r.IntN(2) == 0,
	}
	for id := range r.IntN(3) * vocab / 4 {
		c.Earlier = append(c.Earlier, kernels.EarlierToken{ID: int32(id), Chosen: int32(r.IntN(4) - 1)})
	}
	return c
}

// chosenBy makes a choice by logits of the host.
func chosenBy(t *testing.T, c kernels.Choice, logits []float64) (id int, logProb float64) {
	t.Helper()
	settings, earlier := c.Settings(), []int32{0, int32(len(c.Earlier))}
	for _, e := range c.Earlier {
		earlier = append(earlier, e.ID, e.Chosen)
	}
	ids, logProbs := make([]int64, 1), make([]float32, 1)
	if err := cpu.New().ChooseTokens(&kernels.ChooseTokens{
		Logits: kernels.Of(logits, 1, len(logits)), Settings: kernels.Of(settings[:], 1, len(settings)),
		Random: kernels.Of([]int64{int64(c.Random)}, 1), Earlier: kernels.Of(earlier, len(earlier)),
	}, kernels.ChosenTokens{IDs: kernels.Of(ids, 1), LogProbs: kernels.Of(logProbs, 1)}); err != nil {
		t.Fatal(err)
	}
	return int(ids[0]), float64(logProbs[0])
}

// compareChoices lets one decoder choose tokens, in another way each time, and compares with the
// choices by the logits of another decoder of the same model and device.
func compareChoices(t *testing.T, choosing, telling *nn.BatchDecoder, vocab, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 5))
	next := make([][]int, choosing.Batch())
	for text := range next {
		for range 1 + r.IntN(20) {
			next[text] = append(next[text], r.IntN(vocab))
		}
	}
	for step := range steps {
		tokens, choices := slices.Clone(next), make([]kernels.Choice, len(next))
		for text := range choices {
			if choices[text] = drawnChoice(r, vocab); step > 0 && r.IntN(4) == 0 {
				tokens[text] = nil
			}
		}
		chosen, err := choosing.Choose(tokens, choices)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		logits, err := telling.Logits(tokens)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for text, c := range chosen {
			if tokens[text] == nil {
				if c.ID != -1 || c.Err != nil {
					t.Fatalf("step %d: text %d, which rests, has %+v", step, text, c)
				}
				continue
			}
			id, logProb := chosenBy(t, choices[text], logits[text])
			if c.ID != id || c.Err != nil || !(max(c.LogProb-logProb, logProb-c.LogProb) <= 1e-4) {
				t.Fatalf("step %d: text %d has %+v, it needs token %d of log-probability %v by %+v", step, text, c, id, logProb, choices[text])
			}
			next[text] = []int{id}
		}
	}
}

// What a decoder chooses is what its logits say, whatever the choice of each text is.
func TestDecoderChooses(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		for _, batch := range []int{1, 3} {
			p := nn.NewParameters(1)
			config := nn.DecoderConfig{Parameters: p, Capacity: 40, Model: func(s *nn.Scope) nn.CachedModel { return decoderModels["llama, gqa"](s.DType(dtype)) }}
			var decoders []*nn.BatchDecoder
			for range 2 {
				d, err := nn.NewBatchDecoder(batch, config)
				if err != nil {
					t.Fatal(err)
				}
				decoders = append(decoders, d)
			}
			compareChoices(t, decoders[0], decoders[1], decoderVocab, 60)
		}
	}
}

// A choice that cannot be made is an error of its text alone, and of a decoder's one text.
func TestDecoderChoosesNothing(t *testing.T) {
	config := nn.DecoderConfig{Parameters: nn.NewParameters(1), Capacity: 40, Model: func(s *nn.Scope) nn.CachedModel { return decoderModels["gpt"](s) }}
	none := kernels.Choice{}
	for id := range int32(decoderVocab) {
		none.Earlier = append(none.Earlier, kernels.EarlierToken{ID: id, Chosen: kernels.Forbidden})
	}
	const want = "all logits are -Inf, at least one needs to be finite"
	several, err := nn.NewBatchDecoder(2, config)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := several.Choose([][]int{{1}, {2}}, []kernels.Choice{none, {}})
	if err != nil || chosen[0].ID != -1 || chosen[0].Err == nil || chosen[0].Err.Error() != want || chosen[1].ID < 0 || chosen[1].Err != nil {
		t.Errorf("the texts have %+v and the error is %v", chosen, err)
	}
	alone, err := nn.NewDecoder(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		call func() error
	}{
		{"Decoder: " + want, func() error { _, err := alone.Choose([]int{1}, none); return err }},
		{"Decoder: tokens is empty", func() error { _, err := alone.Choose(nil, kernels.Choice{}); return err }},
		{"Chooser: text 0: top k is -1", func() error { _, err := alone.Choose([]int{1}, kernels.Choice{TopK: -1}); return err }},
		{"BatchDecoder: there are 1 choices, it needs one for each of the batch of 2", func() error {
			_, err := several.Choose([][]int{{1}, nil}, make([]kernels.Choice, 1))
			return err
		}},
		{"it is a zero value", func() error { _, err := new(nn.Decoder).Choose([]int{1}, kernels.Choice{}); return err }},
	} {
		if err := c.call(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, it needs to say %q", err, c.want)
		}
	}
}
