// Package measure takes samples of several things in turns, and says what samples tell.
//
// On a machine that is shared with others, or whose clock moves, two figures taken minutes apart
// cannot be compared. So whatever is to be compared runs in turns: one sample of each contender,
// then the next round ([Interleave]). A ceiling, such as the rate of a copy, is a contender like
// any other, and a share of it is a median of ratios within rounds.
//
// Samples of times are skewed and have outliers, so everything here goes by ranks: medians and
// quartiles ([Summarize]), the interval that holds the true median ([MedianInterval]), whether two
// runs differ at all ([MannWhitney]) and by how much ([ShiftInterval]).
package measure
