// Package gradcheck checks gradients: of an op, a score, a layer or a whole model that someone
// built. [Graph] checks what is made of nodes, [Function] any function of numbers.
//
//	err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
//		s := nn.NewScope(g, nn.NewParameters(1)).DType(dtype)
//		y := model(s, s.Constant("x", data.Floats(...)).Cast(dtype))
//		return y.Node(), s.Trainable(), s.Err()
//	}, gradcheck.Options{})
//
// A gradient is compared with the slope of the function, by differences in float64: along single
// elements of the inputs, and along random directions through all of them, which miss no element.
// How much the two may differ follows from the function itself: from how well slopes of several
// step sizes agree, and from the rounding of sums as large as the function's. A gradient that is
// wrong by ten times that is found.
//
// With [Options.Second], second derivatives are checked, of what [ops.Gradients] can differentiate.
// Those of other functions are checked by [Function], of the first derivative.
//
// An error is a [Mismatch]. It names the input, the element and both numbers.
package gradcheck
