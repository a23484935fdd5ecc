// Package ops brings Stheno's kernels into Gorgonia's graphs: each function takes nodes, adds nodes to their graph, and
// gives the node of its result, with gradients under both of Gorgonia's machines.
//
// # Where to start
//
//	FlashAttention            attention over q, k and v; FlashAttentionQKV over the output of one projection
//	AttentionOptions          causal, windows, soft caps, biases, sinks, packed sequences, scores and masks of one's own
//	CachedAttention, KVCache  attention of one token after another
//	Linear, MatMul            products of matrices
//	LayerNorm, RMSNorm        norms
//	GELU, SwiGLU, Dropout     what is between the layers
//	Embedding, RoPE           tokens and positions
//	SoftmaxCrossEntropy       the loss, or LinearCrossEntropy, which never holds the logits
//	HeldRows                  which rows of a sequence a rank holds that others share
//	Whole                     a weight of which each of several ranks holds a part
//	ModeOf                    whether dropout is active, and how exact products of float32 are
//	OpenDevice, Record        a GPU, and a step that is launched as a whole
//
// Layers with parameters are in package nn, the training around them in package train.
//
// Of attention there is more to see: [KeyMask] makes a bias of a padding mask, [AttentionWeights] and [AttentionScores] show the
// probabilities and the scores of small inputs. Scores and masks that are no option of it are functions of a [Pair], which may
// [Lookup] nodes; [MaskPicture] draws them. Norms also come with the residual sum before them ([AddLayerNorm]) and with what they
// found out of each row ([LayerNormStatistics]). Cross-entropy takes class weights and gives a loss for each row where it is asked
// to; [LogSoftmax] gives log-probabilities. All go together with Gorgonia's own ops.
//
// The functions check everything that a graph knows when they are called and return an error that names the op and the
// argument; what only a run knows, such as ids and the lengths of packed sequences, is checked when the machine runs.
// Tensors are float32 or float64, or of 16 bits ([BFloat16], [Float16], which [Cast] makes), and have no empty axis; beside
// 16-bit activations parameters may be float32, and so are their gradients. Their values may be views: matrix products, except for the x of
// Linear, read any strides where they lie, the other ops read rows that are contiguous, and copy a value whose rows are
// not; attention refuses one.
//
// # Running
//
// An op computes where its inputs live and leaves its result there: on the host, or on a GPU to which they were uploaded,
// see [Device]. On a tapeMachine, gradients come from
// [gorgonia.Grad], called once with all parameters before the machine is made. A lispMachine differentiates as it runs;
// as with any graph, make a new one for each step. Whether dropout is active is a property of the graph: see [ModeOf].
//
// # Memory
//
// For its gradient an op keeps what the kernel needs from one forward run to the backward run after it: for attention,
// a copy of the output and one number a query row; for the norms and cross-entropy, one or two numbers a row; for Linear
// with an activation, what that is applied to. The buffers are used again in the next run. A graph that no one
// differentiates keeps nothing. Because an op has this memory, it belongs to its graph alone: a graph is run by one
// machine at a time, and a clone of a graph, whose nodes share their ops, does not run at the same time as the original.
//
// The gradient also reads the inputs again. Gorgonia keeps their values for it, as long as nothing behind Gorgonia's
// back overwrites them: an in-place operation on a Reshape of a node, for one, overwrites the node itself.
//
// Results, too, lie where they lay in the run before, which saves clearing new memory: the value of a node, and that of a
// gradient, holds until the graph runs again. To keep one longer, copy it. Roots of the graph, nodes that
// [gorgonia.Read] reads, and values that became the value of one of the graph's inputs are left alone. After [ReuseMemory] a
// result's memory becomes that of another as soon as its last reader has run, so that a training step needs what is alive
// at once instead of the sum of all results.
//
// # On a device
//
// [OpenDevice] gives a GPU; [Feed] is an input that is written on the host before each run and read there, [ReadNumber] a loss
// that is read without waiting for it, [Record] a run that is queued again in one launch.
package ops

// Gorgonia's tensors refuse to start on a Go version that this module does not vouch for. Importing it here pins the
// version that accepts Go 1.26 for every program that imports Stheno.
import _ "go4.org/unsafe/assume-no-moving-gc"
