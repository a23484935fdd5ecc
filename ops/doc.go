// Package ops brings Stheno's kernels into Gorgonia's graphs. Each function takes nodes, adds nodes
// to their graph and returns the node of its result, with gradients under both of Gorgonia's
// machines.
//
// # Where to start
//
//	FlashAttention            attention over q, k and v; FlashAttentionQKV over the output of one projection
//	AttentionOptions          causal, windows, soft caps, biases, sinks, packed sequences, scores and masks of one's own
//	CachedAttention, KVCache  attention of one token after another
//	ListedBlocks              attention to blocks of keys that are chosen at run time
//	ListedKeysAttention       attention to single keys that are chosen at run time
//	KeyMask, Lookup           a bias of a padding mask; nodes in a score or a mask of one's own
//	AttentionWeights          the probabilities of small inputs; AttentionScores the scores, MaskPicture the mask
//	Linear, Linears, MatMul   products of matrices
//	MLP, SwiGLUMLP            two and three layers in one op
//	Route, GroupedLinear      mixtures of experts, with Dispatch, Combine and BalanceLoss
//	LayerNorm, RMSNorm        norms; AddLayerNorm with the residual sum before it
//	GELU, ReLU, SwiGLU, ...   what is between the layers
//	Add, Mul, Div, Exp, ...   arithmetic of tensors of one shape, and of scalars
//	Softmax, Max, TopK        along the last axis; Gather and Scatter take indices there
//	Embedding, RoPE           tokens and positions; TokenPositions counts them
//	Reshape, Permute, ...     the same elements with other axes
//	Slice, Concat, Pad, ...   parts of tensors; Patches what a convolution's windows see
//	ChooseTokens, Chooser     the next tokens by their logits: greedy, temperature, top-k, top-p, min-p, penalties
//	SoftmaxCrossEntropy       the loss, or LinearCrossEntropy, which never holds the logits
//	Gradients                 gradients as part of a cost: penalties, Hessian products, learning to learn
//	Recompute                 memory for time: a block is computed again for its gradients
//	EstimateRun               what a run needs, before it; ChooseRegions computes again what a budget asks for
//	HeldRows, Whole           sequences that ranks share, and weights of which each rank holds a part
//	ModeOf                    whether dropout is active, and how exact products of float32 are
//	NewMachine, ReuseMemory   a machine whose ops share memory; WritePlan prints what runs when
//	OpenDevice, Feed, Record  a GPU, what a program gives it, and a run that is queued again in one launch
//
// Layers with parameters are in package nn, the training around them in package train.
//
// The functions check what a graph knows: an error names the op and the argument. What only a run
// knows, such as ids and the lengths of packed sequences, is checked when the machine runs. Tensors
// are float32, float64 or of 16 bits ([BFloat16], [Float16]; [Cast] makes them), and have no empty
// axis. Beside 16-bit activations, parameters and their gradients may be float32. Values may be
// views: an op that needs contiguous rows copies others, and attention refuses them.
//
// # Running
//
// An op computes where its inputs live, on the host or on a [Device], and leaves its result there.
// On a tapeMachine, gradients come from [gorgonia.Grad], called once with all parameters before the
// machine is made. Its cost is a scalar of float32 or float64, as losses, [Sum] and [Mean] give; of
// one of 16 bits Grad returns no gradients and no error. A lispMachine differentiates as it runs:
// make a new one for each step. [Gradients] gives gradients that can be differentiated again.
//
// # The plan
//
// Before a graph runs, a plan is made of it: who reads a result last, which gradients are used,
// which bias's gradient is computed along with a norm's, what may be written over, and when the
// weights that ranks share are gathered. [NewMachine] makes it; for a machine made by Gorgonia
// alone, the first run does. [WritePlan] prints it.
//
// # Memory
//
// An op keeps what its gradient needs from the forward run to the backward run: attention a copy of
// the output and one number a query row, norms and cross-entropy one or two numbers a row, Linear
// what its activation is applied to. A graph that no one differentiates keeps nothing. Because an
// op has this memory, one machine at a time runs a graph, and a clone of a graph, whose nodes share
// their ops, does not run at the same time as the original.
//
// Results reuse their memory from run to run. The value of a node or a gradient is valid until the
// graph runs again: copy it to keep it. Roots of the graph, nodes that [gorgonia.Read] reads, and
// values that became the value of an input are left alone. After [ReuseMemory] a result is valid
// until its last reader has run: [Keep] what is to be looked at.
//
// Gradients read the inputs again. An in-place operation on a Reshape of Gorgonia's own overwrites
// the node itself, behind Gorgonia's back, and so spoils them. So does Gorgonia's sum of gradients
// of a node that is used several times. [Reshape] copies where that may happen.
package ops

// Gorgonia's tensors refuse to start on a Go version that this module does not vouch for. Importing
// it here pins the version that accepts Go 1.26 for every program that imports Stheno.
import _ "go4.org/unsafe/assume-no-moving-gc"
