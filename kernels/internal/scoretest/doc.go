// Package scoretest draws programs of the language of scores and masks, computes attention with
// them pair by pair, and compares what a backend makes of it.
//
// [Draw] draws a well-typed [Program] over the whole language and a problem of attention. The
// interpreter here shares nothing with package score but the program's meaning: it goes through the
// nodes as a user wrote them, in float64, and takes derivatives itself. With each number it carries
// a bound of what rounding in the backend's type may do to it, so what is compared needs no
// tolerance that someone chose. Where such a bound says that rounding decides a comparison, nobody
// can say what is right: a table hides these pairs. What fails, [Shrink] makes small.
package scoretest
