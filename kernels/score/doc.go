// Package score is the language in which users write how attention changes a score, and which pairs
// of a query and a key are visible.
//
// A [Pair] knows its score, where it lies and how long its sequence is. Expressions are made of
// these, of numbers and of tables that they look up ([Lookup]); nothing is computed while they are
// made:
//
//	slopes := func(p score.Pair) score.Expr { return p.Score.Sub(p.Position().Sub(p.Key).Abs().Float().Mul(0.5)) }
//	causal := func(p score.Pair) score.Cond { return p.Key.LessEqual(p.Position()) }
//
// [NewScore] and [NewMask] check such a function and compile it to a [Program]: a list of
// instructions without repetitions, each of which knows whether its value differs from row to row,
// from key to key, from diagonal to diagonal or from pair to pair. Backends compute what does not
// differ from pair to pair once a row, column or diagonal. The derivatives of a score, by the score
// before it and by everything that it looks up, are programs too.
//
// Of a mask, [Mask.Tiles] finds the parts of the score matrix that are hidden and those that are
// wholly visible, from the ranges of values, so that the price grows with what is visible and not
// with the square of the length.
//
// # Types
//
// Integers have 32 bits and wrap around. Their division truncates, as Go's; x/0 is 0, and the
// remainder is x. Floats have the type of the problem's sums. The two do not mix: [Expr.Float]
// converts, and numbers written in Go are of the type that stands beside them. An index outside of
// its table's axis is moved to the axis's nearer end.
//
// Gradients go through both branches of an [If], whichever is taken.
//
// The package knows neither tensors nor devices.
package score
