// Package kernels says what Stheno computes, apart from where and how fast.
//
// It holds the vocabulary that every floor above and every device below shares: [Tensor], a typed view of memory with
// a shape and strides; [Attention], one attention problem with all of its options, its validation and its cost;
// [Backend], the seam that a device implements; and [Philox], the random generator whose bits are the same everywhere.
//
// Nothing in here knows Gorgonia, and nothing in here computes attention. Package reference defines the results in
// plain float64 loops, package cpu computes them on the host.
//
// # Ownership
//
// A Tensor does not own memory; whoever allocated it does, and it must stay alive and unmoved while a backend works on
// it. A backend reads inputs and writes outputs only during a call, and keeps neither.
package kernels
