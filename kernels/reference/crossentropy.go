package reference

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// CrossEntropy returns the loss, the logsumexp of each row, and the gradient of the logits for the
// gradient dLoss.
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

// CrossEntropyRows returns the loss of each row, the logsumexp of each, and the gradient of the
// logits for the gradients dLosses, of a problem without a reduction.
func CrossEntropyRows[T kernels.Float](c *kernels.CrossEntropy, dLosses []T) (losses, lse, dLogits []T) {
	return rowLosses(elements[T](c.Logits), lastAxis(c.Logits), indices(c.Targets), &c.CrossEntropyOptions, dLosses)
}

func crossEntropy[T kernels.Float](logits []T, vocabulary int, targets []int, o *kernels.CrossEntropyOptions, dLoss T) (loss T, lse, dLogits []T) {
	weights := vector[T](o.Weights, vocabulary, 1)
	var n T
	for _, target := range targets {
		if !o.Ignores(target) {
			n += weights[target]
		}
	}
	scale := T(1)
	if o.Reduction == kernels.MeanReduction {
		if scale = 0; n > 0 {
			scale = 1 / n
		}
	}
	dLosses := make([]T, len(targets))
	for i := range dLosses {
		dLosses[i] = dLoss * scale
	}
	losses, lse, dLogits := rowLosses(logits, vocabulary, targets, o, dLosses)
	for _, l := range losses {
		loss += l * scale
	}
	return loss, lse, dLogits
}

func rowLosses[T kernels.Float](logits []T, vocabulary int, targets []int, o *kernels.CrossEntropyOptions, dLosses []T) (losses, lse, dLogits []T) {
	losses, dLogits = make([]T, len(targets)), make([]T, len(logits))
	weights, smoothing := vector[T](o.Weights, vocabulary, 1), T(o.LabelSmoothing)
	var sumW T
	for _, w := range weights {
		sumW += w
	}
	for i, target := range targets {
		z := logits[i*vocabulary:][:vocabulary]
		lse = append(lse, logSumExp(z))
		if o.Ignores(target) {
			continue
		}
		// loss = (1 − ε)·w_t·(LSE − z_t) + ε·Σ w_v·(LSE − z_v)/V
		hit := (1 - smoothing) * weights[target]
		losses[i] = hit * (lse[i] - z[target])
		if smoothing > 0 {
			var sum T
			for v := range z {
				sum += weights[v] * (lse[i] - z[v])
			}
			losses[i] += smoothing * sum / T(vocabulary)
		}
		// dz_v = (exp(z_v − LSE)·((1 − ε)·w_t + ε·Σ w/V) − (1 − ε)·w_t·[v = t] − ε·w_v/V)·dLoss
		for v := range z {
			d := exp(z[v]-lse[i])*(hit+smoothing*sumW/T(vocabulary)) - smoothing*weights[v]/T(vocabulary)
			if v == target {
				d -= hit
			}
			dLogits[i*vocabulary+v] = d * dLosses[i]
		}
	}
	return losses, lse, dLogits
}

// logSumExp is log Σ exp z, with the largest taken out of the sum.
func logSumExp[T kernels.Float](z []T) T {
	most := T(math.Inf(-1))
	for _, v := range z {
		most = max(most, v)
	}
	var sum T
	for _, v := range z {
		sum += exp(v - most)
	}
	return most + T(math.Log(float64(sum)))
}
