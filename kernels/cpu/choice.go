package cpu

import (
	"math"
	"math/bits"

	"github.com/stheno-ml/stheno/kernels"
)

// ChooseTokens makes a choice for each text.
func (b *Backend) ChooseTokens(c *kernels.ChooseTokens, out kernels.ChosenTokens) (err error) {
	const kernel = "choose tokens"
	defer catch(kernel, &err)
	if err := checked(kernel, c.Check(out)); err != nil {
		return err
	}
	const perToken = 50 // operations
	texts, tokens := c.Logits.Shape[0], c.Logits.Shape[1]
	b.each(texts, perToken*float64(texts*tokens), func(text int) {
		w := newWorkspace(bytesFor[float32](tokens) + bytesFor[int64](tokens))
		defer w.release()
		t := choice{x: take[float32](w, tokens), weights: take[int64](w, tokens)}
		copy(t.settings[:], kernels.Host[float32](c.Settings)[c.Settings.Offset(text, 0):])
		z := c.Logits.Slice(0, text, text+1)
		if z.DType == kernels.F32 {
			copy(t.x, kernels.Host[float32](z))
		} else {
			for v, x := range kernels.Host[float64](z)[:tokens] {
				t.x[v] = rounded(x)
			}
		}
		asked, lse := t.settings[kernels.ChoiceLogProb] != 0, 0.0
		if asked {
			lse = logSumExp(t.x)
		}
		t.penalise(kernels.Host[int32](c.Earlier)[:c.Earlier.Shape[0]], text, texts)
		id := t.choose(uint64(kernels.Host[int64](c.Random)[text]))
		logProb := 0.0
		if asked && id >= 0 {
			logProb = kernels.HostElement(z, id) - lse
		}
		kernels.Host[int64](out.IDs)[text] = int64(id)
		kernels.Host[float32](out.LogProbs)[text] = float32(logProb)
	})
	return nil
}

// rounded is a logit in float32, one beyond its range the largest number there.
func rounded(x float64) float32 {
	if math.Abs(x) > math.MaxFloat32 && !math.IsInf(x, 0) {
		return float32(math.Copysign(math.MaxFloat32, x))
	}
	return float32(x)
}

func logSumExp(x []float32) float64 {
	largest, sum := math.Inf(-1), 0.0
	for _, x := range x {
		largest = max(largest, float64(x))
	}
	for _, x := range x {
		sum += math.Exp(float64(x) - largest)
	}
	return largest + math.Log(sum)
}

// choice is that of one text.
type choice struct {
	settings [kernels.ChoiceSettings]float32
	x        []float32 // the logits, after penalties
	weights  []int64
	bins     [1 << digitBits]uint64
}

// penalise changes the logits of tokens that came before, and forbids what cannot be chosen.
func (c *choice) penalise(earlier []int32, text, texts int) {
	none := float32(math.Inf(-1))
	if n := c.settings[kernels.ChoiceTokens]; n > 0 && n < float32(len(c.x)) {
		for v := int(n); v < len(c.x); v++ {
			c.x[v] = none
		}
	}
	pairs := earlier[texts+1:]
	for i := max(0, int(earlier[text])); i < min(int(earlier[text+1]), len(pairs)/2); i++ {
		id, chosen := int(pairs[2*i]), pairs[2*i+1]
		if id < 0 || id >= len(c.x) {
			continue
		}
		if chosen < 0 {
			c.x[id] = none
			continue
		}
		x := c.x[id]
		if penalty := c.settings[kernels.ChoiceRepetition]; penalty != 0 && x > 0 {
			x /= penalty
		} else if penalty != 0 {
			x = float32(x * penalty)
		}
		if chosen > 0 {
			x -= c.settings[kernels.ChoicePresence] + float32(float32(chosen)*c.settings[kernels.ChoiceFrequency])
		}
		c.x[id] = x
	}
}

// choose gives the token, or what stands for none.
func (c *choice) choose(random uint64) int {
	best := 0
	for v, x := range c.x {
		if !(x <= math.MaxFloat32) {
			return -1 - v
		}
		if x > c.x[best] {
			best = v
		}
	}
	largest, temperature := c.x[best], c.settings[kernels.ChoiceTemperature]
	switch {
	case math.IsInf(float64(largest), -1):
		return -1 - len(c.x)
	case !(temperature > 0):
		return best
	}
	least := uint32(0) // key that is left
	if k := c.settings[kernels.ChoiceTopK]; k >= 1 && k < float32(len(c.x)) {
		least, _ = c.selected(uint64(k), func(int) uint64 { return 1 })
	}
	total := c.weigh(largest, temperature, least)
	if p := c.settings[kernels.ChoiceTopP]; p > 0 && p < 1 {
		high, low := bits.Mul64(uint64(float64(p)*(1<<32)), total)
		total = c.cut(max(1, high<<32|low>>32))
	}
	if p := min(float64(c.settings[kernels.ChoiceMinP]), 1); p > 0 {
		lightest := int64(p * (1 << 40))
		total = 0
		for v, w := range c.weights {
			if w < lightest {
				c.weights[v] = 0
			}
			total += uint64(c.weights[v])
		}
	}
	rest, _ := bits.Mul64(random, total)
	for v, w := range c.weights {
		if rest < uint64(w) {
			return v
		}
		rest -= uint64(w)
	}
	panic("the weights sum to more than their sum")
}

// weigh gives each token its weight, 0 to those below a key, and their sum.
func (c *choice) weigh(largest, temperature float32, least uint32) (total uint64) {
	lightest := -28.5 * temperature // less than ln 2⁻⁴¹
	for v, x := range c.x {
		c.weights[v] = 0
		if x-largest >= lightest && keyOf(x) >= least {
			w := kernels.ChoiceWeight(x, largest, temperature)
			c.weights[v] = int64(w)
			total += w
		}
	}
	return total
}

// cut leaves the first tokens whose weights sum to enough, and gives their sum.
func (c *choice) cut(enough uint64) (total uint64) {
	least, rest := c.selected(enough, func(v int) uint64 { return uint64(c.weights[v]) })
	for v, x := range c.x {
		w := uint64(c.weights[v])
		switch key := keyOf(x); {
		case key < least || key == least && rest == 0:
			c.weights[v] = 0
			continue
		case key == least:
			rest -= min(rest, w)
		}
		total += w
	}
	return total
}

// digitBits are those of a digit of a key, but for the last digit, which has what is left.
const digitBits = 11

// selected finds the largest key such that what the tokens of this key and larger ones count sums
// to enough, and how much of that those of this key need to have.
func (c *choice) selected(enough uint64, count func(v int) uint64) (key uint32, rest uint64) {
	for shift, known := 32-digitBits, 32; ; shift = max(0, shift-digitBits) {
		clear(c.bins[:])
		for v, x := range c.x {
			if of := keyOf(x); of>>known == key>>known {
				c.bins[of>>shift&(1<<(known-shift)-1)] += count(v)
			}
		}
		digit := len(c.bins) - 1
		for ; c.bins[digit] < enough && digit > 0; digit-- {
			enough -= c.bins[digit]
		}
		key |= uint32(digit) << shift
		if known = shift; shift == 0 {
			return key, enough
		}
	}
}

// keyOf is a number that is larger for a larger x, and the same for both zeros.
func keyOf(x float32) uint32 {
	key := math.Float32bits(x + 0)
	if key>>31 == 1 {
		return ^key
	}
	return key | 1<<31
}
