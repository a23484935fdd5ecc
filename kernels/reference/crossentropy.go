package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// CrossEntropy returns the loss, the logsumexp of each row, and the gradient of the logits for the gradient dLoss.
func CrossEntropy[T kernels.Float](c *kernels.CrossEntropy, dLoss T) (loss T, lse, dLogits []T) {
	return crossEntropy(elements[T](c.Logits), lastAxis(c.Logits), indices(c.Targets), &c.CrossEntropyOptions, dLoss)
}

// LinearCrossEntropy returns the loss and the gradients of hidden and weight, row-major.
func LinearCrossEntropy[T kernels.Float](c *kernels.LinearCrossEntropy) (loss T, dHidden, dWeight []T) {
	features, vocabulary := c.Hidden.Shape[1], c.Weight.Shape[0]
	hidden, weight, targets := elements[T](c.Hidden), elements[T](c.Weight), indices(c.Targets)
	logits := make([]T, len(targets)*vocabulary)
	for i := range targets {
		for v := range vocabulary {
			logits[i*vocabulary+v] = dot(hidden[i*features:][:features], weight[v*features:][:features])
		}
	}
	dLoss := vector[T](c.DLoss, 1, 1)[0]
	loss, _, dLogits := crossEntropy(logits, vocabulary, targets, &c.CrossEntropyOptions, dLoss)
	dHidden, dWeight = make([]T, len(hidden)), make([]T, len(weight))
	for i := range targets {
		for v := range vocabulary {
			d := dLogits[i*vocabulary+v]
			add(dHidden[i*features:][:features], d, weight[v*features:][:features])
			add(dWeight[v*features:][:features], d, hidden[i*features:][:features])
		}
	}
	return loss, dHidden, dWeight
}

func crossEntropy[T kernels.Float](logits []T, vocabulary int, targets []int, o *kernels.CrossEntropyOptions, dLoss T) (loss T, lse, dLogits []T) {
	dLogits = make([]T, len(logits))
	counted := 0
	for _, target := range targets {
		if !o.Ignores(target) {
			counted++
		}
	}
	scale := T(1)
	if o.Reduction == kernels.MeanReduction && counted > 0 {
		scale = 1 / T(counted)
	}
	smoothing := T(o.LabelSmoothing)
	for i, target := range targets {
		z := logits[i*vocabulary:][:vocabulary]
		// LSE = log Σ exp z, with the largest taken out of the sum
		most := T(math.Inf(-1))
		for _, v := range z {
			most = max(most, v)
		}
		var sum, sumZ T
		for _, v := range z {
			sum += exp(v - most)
			sumZ += v
		}
		lse = append(lse, most+T(math.Log(float64(sum))))
		if o.Ignores(target) {
			continue
		}
		// loss = LSE − (1 − ε)·z_t − ε·Σ z/V
		rowLoss := lse[i] - (1-smoothing)*z[target]
		if smoothing > 0 {
			rowLoss -= smoothing * sumZ / T(vocabulary)
		}
		loss += rowLoss * scale
		// dz = (exp(z − LSE) − (1 − ε)·[v = t] − ε/V)·dLoss/n
		for v := range z {
			p := exp(z[v]-lse[i]) - smoothing/T(vocabulary)
			if v == target {
				p -= 1 - smoothing
			}
			dLogits[i*vocabulary+v] = p * scale * dLoss
		}
	}
	return loss, lse, dLogits
}
