// Package kernels says what Stheno computes, apart from where and how fast.
//
// It holds the vocabulary that every floor above and every device below shares: [Tensor], a typed
// view of memory with a shape and strides; [Attention], one attention problem with all of its
// options, its validation and its cost; [Backend], the seam that a device implements; and [Philox],
// the random generator whose bits are the same everywhere.
//
// Nothing in here knows Gorgonia, and nothing in here computes attention. Package reference defines
// the results in plain float64 loops; package cpu computes them on the host and package cuda on
// NVIDIA GPUs, and package ring computes attention over several devices. Package score is the
// language of scores and masks of one's own.
//
// # Ownership
//
// A Tensor over the host's memory does not own it; whoever allocated it does, and it must stay
// alive and unmoved while a backend works on it. A device's memory lives for as long as something
// refers to Tensor.Owner. A backend of the host reads inputs and writes outputs only during a call,
// and keeps neither; a device may do its work later, in the order of the calls.
package kernels
