package reference

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// ChooseTokens returns the choice of each text and the log-probability of its token, where it is
// asked for.
func ChooseTokens(c *kernels.ChooseTokens) (ids []int, logProbs []float64) {
	width := c.Logits.Shape[1]
	settings, random, z := elements[float32](c.Settings), indices(c.Random), elements[float64](c.Logits)
	for text := range c.Logits.Shape[0] {
		s := settings[text*kernels.ChoiceSettings:][:kernels.ChoiceSettings]
		logits := z[text*width:][:width]
		id, logProb := chooseToken(penalised(c, text, s, logits), s, uint64(random[text])), 0.0
		if id >= 0 && s[kernels.ChoiceLogProb] != 0 {
			largest, sum := slices.Max(logits), 0.0
			for _, x := range logits {
				sum += math.Exp(x - largest)
			}
			logProb = logits[id] - largest - math.Log(sum)
		}
		ids, logProbs = append(ids, id), append(logProbs, logProb)
	}
	return ids, logProbs
}

// penalised is what a token is chosen by: the logits in float32, after penalties.
func penalised(c *kernels.ChooseTokens, text int, s []float32, logits []float64) []float32 {
	x := make([]float32, len(logits))
	for v, z := range logits {
		x[v] = float32(z)
		if !math.IsInf(z, 0) && math.IsInf(float64(x[v]), 0) {
			x[v] = float32(math.Copysign(math.MaxFloat32, z))
		}
		if n := int(s[kernels.ChoiceTokens]); n > 0 && v >= n {
			x[v] = float32(math.Inf(-1))
		}
	}
	earlier, texts := indices(c.Earlier), c.Logits.Shape[0]
	pairs := earlier[texts+1:]
	for i := max(0, earlier[text]); i < min(earlier[text+1], len(pairs)/2); i++ {
		id, chosen := pairs[2*i], pairs[2*i+1]
		if id < 0 || id >= len(x) {
			continue
		}
		switch penalty := s[kernels.ChoiceRepetition]; {
		case chosen < 0:
			x[id] = float32(math.Inf(-1))
			continue
		case penalty == 0:
		case x[id] > 0:
			x[id] /= penalty
		default:
			x[id] = float32(x[id] * penalty)
		}
		if chosen > 0 {
			x[id] -= s[kernels.ChoicePresence] + float32(float32(chosen)*s[kernels.ChoiceFrequency])
		}
	}
	return x
}

// chooseToken is the definition: sort, cut, draw.
func chooseToken(x, s []float32, random uint64) int {
	for v, of := range x {
		if math.IsNaN(float64(of)) || math.IsInf(float64(of), 1) {
			return -1 - v
		}
	}
	order := make([]int, len(x))
	for v := range order {
		order[v] = v
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[b], x[a]) })
	largest, temperature := x[order[0]], s[kernels.ChoiceTemperature]
	switch {
	case math.IsInf(float64(largest), -1):
		return -1 - len(x)
	case !(temperature > 0):
		return order[0]
	}
	if k := int(s[kernels.ChoiceTopK]); k > 0 && k < len(order) {
		for k < len(order) && x[order[k]] == x[order[k-1]] {
			k++
		}
		order = order[:k]
	}
	weight := func(v int) uint64 { return kernels.ChoiceWeight(x[v], largest, temperature) }
	if p := s[kernels.ChoiceTopP]; p > 0 && p < 1 {
		high, low := bits.Mul64(uint64(float64(p)*(1<<32)), sum(order, weight))
		enough, taken := high<<32|low>>32, uint64(0)
		for n, v := range order {
			if taken += weight(v); taken >= enough {
				order = order[:n+1]
				break
			}
		}
	}
	if least := min(float64(s[kernels.ChoiceMinP]), 1); least > 0 {
		order = slices.DeleteFunc(order, func(v int) bool { return weight(v) < uint64(least*(1<<40)) })
	}
	slices.Sort(order)
	rest, _ := bits.Mul64(random, sum(order, weight))
	for _, v := range order {
		if w := weight(v); rest < w {
			return v
		} else {
			rest -= w
		}
	}
	panic("the weights sum to more than their sum")
}

func sum(list []int, weight func(v int) uint64) uint64 {
	total := uint64(0)
	for _, v := range list {
		total += weight(v)
	}
	return total
}
