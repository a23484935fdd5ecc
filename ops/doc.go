// Package ops brings Stheno's kernels into Gorgonia's graphs: each function takes nodes, adds nodes to their graph, and
// gives the node of its result, with gradients under both of Gorgonia's machines.
//
// The functions are [FlashAttention], [FlashAttentionLSE] and [FlashAttentionQKV]. They check everything that a graph
// knows when they are called and return an error that names the argument; what only a run knows, such as the lengths of
// packed sequences, is checked when the machine runs.
//
// # Running
//
// An op computes where its inputs live and leaves its result there. On a tapeMachine, gradients come from
// [gorgonia.Grad], called once with all parameters before the machine is made. A lispMachine differentiates as it runs;
// as with any graph, make a new one for each step. Whether dropout is active is a property of the graph: see [ModeOf].
//
// # Memory
//
// For its gradient an op keeps what the kernel needs from one forward run to the backward run after it: for attention,
// a copy of the output and one number a query row, in buffers that are used again in the next run. A graph that no one
// differentiates keeps nothing. Because an op has this memory, it belongs to its graph alone: a graph is run by one
// machine at a time, and a clone of a graph, whose nodes share their ops, does not run at the same time as the original.
//
// The gradient also reads the inputs again. Gorgonia keeps their values for it, as long as nothing behind Gorgonia's
// back overwrites them: an in-place operation on a Reshape of a node, for one, overwrites the node itself.
package ops

// Gorgonia's tensors refuse to start on a Go version that this module does not vouch for. Importing it here pins the
// version that accepts Go 1.26 for every program that imports Stheno.
import _ "go4.org/unsafe/assume-no-moving-gc"
