package reference

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// Chosen is what a router decides: the weights of the chosen, (tokens, chosen), and the four lists
// of a [kernels.Assignment].
type Chosen[T kernels.Float] struct {
	Weights                         []T
	Offsets, Experts, Order, Places []int
}

// Route lets each token choose its experts.
func Route[T kernels.Float](r *kernels.Routing) Chosen[T] {
	experts := r.Logits.Shape[1]
	logits, bias := elements[T](r.Logits), vector[T](r.Bias, experts, 0)
	var c Chosen[T]
	for t := range r.Logits.Shape[0] {
		scores := scoresOf(r.Scores, logits[t*experts:][:experts])
		chosen := choose(r, scores, bias)
		weights, _ := weigh(r, scores, chosen)
		c.Weights, c.Experts = append(c.Weights, weights...), append(c.Experts, chosen...)
	}
	c.Places = make([]int, len(c.Experts))
	for e := range experts {
		c.Offsets = append(c.Offsets, len(c.Order))
		for choice, of := range c.Experts {
			if of == e {
				c.Places[choice] = len(c.Order)
				c.Order = append(c.Order, choice)
			}
		}
	}
	c.Offsets = append(c.Offsets, len(c.Order))
	return c
}

// scoresOf is the scores of one token's logits.
func scoresOf[T kernels.Float](kind kernels.RouterScores, logits []T) []T {
	scores := make([]T, len(logits))
	if kind == kernels.SigmoidScores {
		for e, x := range logits {
			scores[e] = 1 / (1 + exp(-x))
		}
		return scores
	}
	most, sum := slices.Max(logits), T(0)
	for e, x := range logits {
		scores[e] = exp(x - most)
		sum += scores[e]
	}
	for e := range scores {
		scores[e] /= sum
	}
	return scores
}

// choose lists the chosen experts of one token, the best first.
func choose[T kernels.Float](r *kernels.Routing, scores, bias []T) []int {
	values := make([]T, len(scores))
	for e := range values {
		values[e] = scores[e] + bias[e]
	}
	var candidates []int
	if r.Groups == 0 {
		candidates = best(values, len(values))
	} else {
		size := len(values) / r.Groups
		groups := make([]T, r.Groups)
		for g := range groups {
			group := values[g*size:][:size]
			order := best(group, size)
			if groups[g] = group[order[0]]; r.GroupChoice == kernels.GroupByBestTwo {
				groups[g] += group[order[1]]
			}
		}
		kept := best(groups, r.KeptGroups)
		for _, e := range best(values, len(values)) {
			if slices.Contains(kept, e/size) {
				candidates = append(candidates, e)
			}
		}
	}
	return candidates[:r.Chosen]
}

// best lists the n largest of some values, of equal ones the first; NaN is the least.
func best[T kernels.Float](values []T, n int) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := float64(values[a]), float64(values[b])
		switch {
		case x > y || math.IsNaN(y) && !math.IsNaN(x):
			return -1
		case x < y || math.IsNaN(x) && !math.IsNaN(y):
			return 1
		}
		return 0
	})
	return order[:n]
}

// weigh is the weights of the chosen of one token, and what their scores were divided by.
func weigh[T kernels.Float](r *kernels.Routing, scores []T, chosen []int) (weights []T, divisor T) {
	divisor = 1
	if r.Normalize {
		divisor = T(r.Epsilon)
		for _, e := range chosen {
			divisor += scores[e]
		}
	}
	for _, e := range chosen {
		weights = append(weights, T(r.WeightScale())*scores[e]/divisor)
	}
	return weights, divisor
}

// RouteGrad returns the gradient of the logits for that of the weights.
func RouteGrad[T kernels.Float](r *kernels.Routing, dWeights []T) []T {
	experts := r.Logits.Shape[1]
	logits, all := elements[T](r.Logits), Route[T](r)
	dLogits := make([]T, len(logits))
	for t := range r.Logits.Shape[0] {
		scores, chosen, dw := scoresOf(r.Scores, logits[t*experts:][:experts]), all.Experts[t*r.Chosen:][:r.Chosen], dWeights[t*r.Chosen:][:r.Chosen]
		weights, divisor := weigh(r, scores, chosen)
		var mean T // of the gradients, where the scores are divided by their sum
		if r.Normalize {
			mean = dot(dw, weights) / T(r.WeightScale())
		}
		dScores := make([]T, experts)
		for j, e := range chosen {
			dScores[e] = T(r.WeightScale()) * (dw[j] - mean) / divisor
		}
		sum := dot(scores, dScores)
		for e, s := range scores {
			if r.Scores == kernels.SigmoidScores {
				dLogits[t*experts+e] = dScores[e] * s * (1 - s)
			} else {
				dLogits[t*experts+e] = s * (dScores[e] - sum)
			}
		}
	}
	return dLogits
}

// Dispatch brings the rows of tokens, x, to the places of their choices, and Combine sums rows of
// choices, (tokens·chosen, features), to tokens. Without factors all are 1.
func Dispatch[T kernels.Float](x, factors []T, a kernels.Assignment) []T {
	tokens, chosen := a.Places.Shape[0], a.Places.Shape[1]
	features := len(x) / tokens
	y := make([]T, tokens*chosen*features)
	for i, choice := range indices(a.Order) {
		add(y[i*features:][:features], factorOf(factors, choice), x[choice/chosen*features:][:features])
	}
	return y
}

// Combine is the other way; see [Dispatch].
func Combine[T kernels.Float](x, factors []T, a kernels.Assignment) []T {
	tokens, chosen := a.Places.Shape[0], a.Places.Shape[1]
	features := len(x) / (tokens * chosen)
	y := make([]T, tokens*features)
	for choice, place := range indices(a.Places) {
		add(y[choice/chosen*features:][:features], factorOf(factors, choice), x[place*features:][:features])
	}
	return y
}

func factorOf[T kernels.Float](factors []T, choice int) T {
	if factors == nil {
		return 1
	}
	return factors[choice]
}

// CombineFactors returns the gradient of Combine's factors.
func CombineFactors[T kernels.Float](x, dy []T, a kernels.Assignment) []T {
	tokens, chosen := a.Places.Shape[0], a.Places.Shape[1]
	features := len(dy) / tokens
	d := make([]T, tokens*chosen)
	for choice, place := range indices(a.Places) {
		d[choice] = dot(x[place*features:][:features], dy[choice/chosen*features:][:features])
	}
	return d
}

// BalanceLoss returns the loss, and the gradient of the logits for dLoss.
func BalanceLoss[T kernels.Float](logits, offsets kernels.Tensor, dLoss T) (loss T, dLogits []T) {
	tokens, experts := logits.Shape[0], logits.Shape[1]
	x, from := elements[T](logits), indices(offsets)
	factors := make([]T, experts) // of the mean probabilities
	for layer := range offsets.Shape[0] {
		for e := range experts {
			at := layer*(experts+1) + e
			factors[e] += T(experts) * T(from[at+1]-from[at]) / T(tokens)
		}
	}
	dLogits = make([]T, len(x))
	for t := range tokens {
		p := scoresOf(kernels.SoftmaxScores, x[t*experts:][:experts])
		sum := dot(p, factors)
		loss += sum / T(tokens)
		for e := range p {
			dLogits[t*experts+e] = dLoss * p[e] * (factors[e] - sum) / T(tokens)
		}
	}
	return loss, dLogits
}
