// Package reference is the definition of every kernel: plain loops in float64, one query row at a
// time, with no tiles and no cleverness. It is meant to be read beside the equations of
// [kernels.Attention], and it is the oracle of all tests. Nothing but tests should import it.
//
// # How a kernel is judged
//
// Floating point sums differ with their order, so "equal to the reference" is not a useful demand
// on a kernel below float64. The demand is that a kernel is about as exact as the obvious program
// of the same precision. With x what the kernel computed, ref the reference and pt the loops of
// this package run in the kernel's own precision ([Arithmetic]), a tensor passes when
//
//	max|x − ref| ≤ 2·max|pt − ref| + 1e-6·max|ref|
//
// with 3 in place of 2 where a soft cap is set. In float32, where the unfused errors are themselves
// some 3e-7 of the largest element, the floor is float32's own step, 2⁻²³·max|ref|, so that it
// hardly ever decides; and what softmax weighs has 3 in place of 2, for kernels take exponentials
// of base 2, which round the scale and the logsumexp once more; the gradient of a bias, which sums
// over rows that each have one such error in common, has 4. Where pt has errors in fewer than 64
// elements or fewer than 8 rows, such as in the gradient of sinks, the bound is 10·max|pt − ref|
// and 4 steps of the arithmetic: the largest of a few errors is a matter of luck. In arithmetic
// coarser than float32 two roundings are everyone's, of the weight of a term and of the result,
// half a step each. So o, dq, dk and dv may be a step of the largest element off, even where the
// roundings of pt, which are more, happen to cancel. Tests tell with -margins what decided.
//
// # Values that are not finite
//
// The loops compute on exactly the pairs that the mask shows, so a NaN or an infinity reaches what
// it should reach and nothing else. That makes the reference the judge of which rows may be
// poisoned by a value and which may not.
package reference
