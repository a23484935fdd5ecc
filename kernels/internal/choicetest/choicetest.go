// Package choicetest draws problems of choosing tokens, for the tests of every device.
package choicetest

import (
	"math"
	"math/rand/v2"

	"github.com/stheno-ml/stheno/kernels"
)

// Draw draws a problem of the host over so many tokens, of one to six texts. Logits are spread out
// or equal in places, some −∞, and now and then no numbers at all.
func Draw(r *rand.Rand, tokens int) *kernels.ChooseTokens {
	texts := 1 + r.IntN(6)
	logits, settings, random := make([]float32, texts*tokens), make([]float32, 0, texts*kernels.ChoiceSettings), make([]int64, texts)
	begins, pairs := []int32{0}, []int32(nil)
	for text := range texts {
		fill(r, logits[text*tokens:][:tokens])
		c := choice(r, tokens)
		row := c.Settings()
		if r.IntN(8) == 0 { // what no choice has
			row[[]int{kernels.ChoiceTopK, kernels.ChoiceTopP, kernels.ChoiceMinP}[r.IntN(3)]] = []float32{float32(r.Float64()), 1.5, -3, float32(math.NaN())}[r.IntN(4)]
		}
		settings = append(settings, row[:]...)
		random[text] = int64(c.Random)
		for _, e := range c.Earlier {
			pairs = append(pairs, e.ID, e.Chosen)
		}
		begins = append(begins, int32(len(pairs)/2))
	}
	return &kernels.ChooseTokens{
		Logits: kernels.Of(logits, texts, tokens), Settings: kernels.Of(settings, texts, kernels.ChoiceSettings),
		Random: kernels.Of(random, texts), Earlier: kernels.Of(append(begins, pairs...), texts+1+len(pairs)),
	}
}

// fill draws the logits of a text.
func fill(r *rand.Rand, logits []float32) {
	scale := []float64{0.1, 1, 3, 3, 10, 1e30}[r.IntN(6)]
	steps := []float64{0, 0, 0.5, 4}[r.IntN(4)] // between neighbouring values; 0 for no steps
	hidden := []float64{0, 0, 0.01, 0.9}[r.IntN(4)]
	for v := range logits {
		x := scale * r.NormFloat64()
		if steps > 0 {
			x = steps * math.Round(x/steps)
		}
		if r.Float64() < hidden {
			x = math.Inf(-1)
		}
		logits[v] = float32(x)
	}
	v := r.IntN(len(logits))
	switch r.IntN(40) {
	case 0:
		logits[v] = float32(math.NaN())
	case 1:
		logits[v] = float32(math.Inf(1))
	case 2:
		logits[v] = float32(math.Copysign(0, -1))
	case 3:
		for v := range logits {
			logits[v] = float32(math.Inf(-1))
		}
	}
}

// choice draws how a token is chosen. A random number may be at an end of what there is.
func choice(r *rand.Rand, tokens int) kernels.Choice {
	one := func(list ...float64) float64 { return list[r.IntN(len(list))] }
	c := kernels.Choice{
		Temperature: one(0, 0.01, 0.7, 1, 1, 1, 3, 1e-30, 1e38, math.MaxFloat64), TopK: []int{0, 0, 1, 2, 40, tokens, r.IntN(tokens + 1), math.MaxInt}[r.IntN(8)],
		TopP: one(0, 0, 1, 0.5, 0.9, 1e-12, r.Float64()), MinP: one(0, 0, 0, 1, 0.05, 1e-9, r.Float64()),
		Repetition: one(0, 0, 1, 1.3, 0.5, 1e30), Presence: one(0, 0, 0.7, -2), Frequency: one(0, 0, 0.3, -1.1),
		Tokens: []int{0, 0, 1 + r.IntN(tokens), 2 * tokens}[r.IntN(4)], Random: r.Uint64(), LogProb: r.IntN(2) == 0,
	}
	if r.IntN(8) == 0 {
		c.Random = []uint64{0, math.MaxUint64}[r.IntN(2)]
	}
	seen := map[int32]bool{}
	for range []int{0, 0, 1, tokens / 2, min(tokens, 300)}[r.IntN(5)] {
		id := int32(r.IntN(tokens+2) - 1) // some are no tokens
		if !seen[id] {
			c.Earlier = append(c.Earlier, kernels.EarlierToken{ID: id, Chosen: int32(r.IntN(5) - 1)})
		}
		seen[id] = true
	}
	return c
}
