package ops

import "gorgonia.org/gorgonia"

// NormOptions are the options of [LayerNorm] and [RMSNorm].
type NormOptions struct {
	Epsilon float64 // is added to the variance or mean square; 0 means 1e-5
}

// LayerNorm normalises each row of x, (..., C), to mean 0 and variance 1, then multiplies by gamma
// and adds beta, both (C); either may be nil. [kernels.Norm] has the equations.
func LayerNorm(x, gamma, beta *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return one(norm{eps: o.Epsilon}.apply("LayerNorm", x, nil, gamma, beta))
}

// LayerNormStatistics is [LayerNorm] that also gives what it found in each row of x: the mean, and
// 1/√(variance + epsilon), both (...), in float32 where x has 16 bits. They are there to be looked
// at: to a gradient they are constants.
func LayerNormStatistics(x, gamma, beta *gorgonia.Node, o NormOptions) (y, mean, rstd *gorgonia.Node, err error) {
	outputs, err := norm{eps: o.Epsilon, gives: statistics}.apply("LayerNormStatistics", x, nil, gamma, beta)
	if err != nil {
		return nil, nil, nil, err
	}
	return outputs[0], outputs[1], outputs[2], nil
}

// AddLayerNorm is the sum of x and other, and [LayerNorm] of the sum: a residual connection and the
// norm behind it, in one pass. So is the gradient of x, which is other's too.
func AddLayerNorm(x, other, gamma, beta *gorgonia.Node, o NormOptions) (sum, y *gorgonia.Node, err error) {
	return two(norm{eps: o.Epsilon, gives: theSum}.apply("AddLayerNorm", x, other, gamma, beta))
}

// LayerNormOfSum is [AddLayerNorm] of a sum that nothing else reads.
func LayerNormOfSum(x, other, gamma, beta *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return one(norm{eps: o.Epsilon, ofSum: true}.apply("LayerNormOfSum", x, other, gamma, beta))
}
