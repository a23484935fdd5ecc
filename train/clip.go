package train

import "math"

// gradientNorm is the norm of all gradients together, of their mean over the accumulated runs, and the first parameter
// with which it stops being finite, or −1.
func (o *Optimizer) gradientNorm() (norm float64, bad int, err error) {
	bad = -1
	if err := o.backend.SumSquares(o.gradients, o.sumsTensor); err != nil {
		return 0, bad, err
	}
	var total float64
	for i, sum := range o.sums {
		total += sum
		if bad < 0 && (math.IsNaN(total) || math.IsInf(total, 0)) {
			bad = i
		}
	}
	return math.Sqrt(total) / float64(o.options.Accumulation), bad, nil
}

// clipScale is the factor that brings gradients of a norm below the limit, computed as PyTorch's clip_grad_norm_ does;
// a limit of 0 is none.
func clipScale(norm, limit float64) float64 {
	if limit == 0 {
		return 1
	}
	return min(1, limit/(norm+1e-6))
}
