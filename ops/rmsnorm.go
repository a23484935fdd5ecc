package ops

import "gorgonia.org/gorgonia"

// RMSNorm divides each row of x, (..., C), by its root mean square, then multiplies by gamma, (C),
// which may be nil. [kernels.Norm] has the equations.
func RMSNorm(x, gamma *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return one(norm{eps: o.Epsilon, rms: true}.apply("RMSNorm", x, nil, gamma, nil))
}

// RMSNormStatistics is [RMSNorm] that also gives what it found in each row of x: 1/√(mean square +
// epsilon), (...). As in [LayerNormStatistics] that is a constant to a gradient.
func RMSNormStatistics(x, gamma *gorgonia.Node, o NormOptions) (y, rstd *gorgonia.Node, err error) {
	return two(norm{eps: o.Epsilon, rms: true, gives: statistics}.apply("RMSNormStatistics", x, nil, gamma, nil))
}

// AddRMSNorm is the sum of x and other, and [RMSNorm] of the sum; see [AddLayerNorm].
func AddRMSNorm(x, other, gamma *gorgonia.Node, o NormOptions) (sum, y *gorgonia.Node, err error) {
	return two(norm{eps: o.Epsilon, rms: true, gives: theSum}.apply("AddRMSNorm", x, other, gamma, nil))
}

// RMSNormOfSum is [AddRMSNorm] of a sum that nothing else reads.
func RMSNormOfSum(x, other, gamma *gorgonia.Node, o NormOptions) (*gorgonia.Node, error) {
	return one(norm{eps: o.Epsilon, rms: true, ofSum: true}.apply("RMSNormOfSum", x, other, gamma, nil))
}
