// Package nn has the layers that transformers are made of: each is some parameters in a Gorgonia graph, and a Forward
// that adds the ops of package ops to it.
//
// # Where to start
//
//	GPT, Llama                    language models, whole: NewGPT(g, GPTConfig{...}), then Loss
//	Decoder                       predicts one token after another (package train/sample makes text of it)
//	Encoder                       reads texts: BERT, with its heads
//	VisionTransformer             reads pictures: ViT; or PatchEmbedding, Stack and Classifier, put together
//	Stack, Block                  the inside of encoders and decoders, with cross-attention where one reads the other
//	MultiHeadAttention            and MLP, Linear, LayerNorm, RMSNorm, Embedding: what blocks are made of
//	Maker, LoRA                   layers of one's own in the place of a model's
//	Parameters                    the values of all layers: made from a seed, shared by graphs or out over ranks, frozen, loaded and saved
//	Summary                       what is in a model, and how large
//	package nn/pretrained         the model folders that people have
//
// The directory's coming-from-pytorch.md has a table of names, there and here.
//
// A layer is made by NewX(g, XConfig{...}), which adds its parameters to the graph g, and used by calling Forward on a
// node of g; each call adds the layer once more, over the same parameters. The zero value of an option in a config is
// what most models use, sizes excepted. [GPT] and [Llama] are whole models; their Loss is what a training graph
// differentiates with respect to Parameters().
//
// # Parameters
//
// A parameter has a name, such as blocks.3.attn.qkv.weight, that is unique in its graph: the layer's Name and what it
// is in the layer. The weights of a [Linear] are (in, out), those of an [Embedding] (vocabulary, features). Values come
// from a [Parameters], which makes each from its seed and the name alone, so that a model starts from the same weights
// in whatever order it is built. Layers of several graphs that are given the same Parameters share the values, not
// copies of them: what one graph trains, the other evaluates.
//
// # Types and devices
//
// Parameters are float32, or float64 by the DType of a config. What layers compute is of their type, or by Compute of a model
// bfloat16 or float16 beside parameters, sums and losses of float32; float16 needs a loss scale, which package train has. Products of
// float32 may be less exact where the graph allows it, see [github.com/stheno-ml/stheno/ops.Mode.AllowPrecision]. A model computes
// where its parameters are, see [Parameters.MoveTo]. With Recompute a block keeps nothing but its input for the gradients, and
// computes the rest anew.
//
// # Prediction
//
// A [Decoder] runs a model one token after another, over the same Parameters, with a cache of what attention has seen, so
// that a token costs one row of attention. Package train/sample makes text of it.
//
// # Training and evaluation
//
// Whether dropout is active is a property of the graph that a machine runs, and may change between runs:
// see [github.com/stheno-ml/stheno/ops.ModeOf]. Each dropout in a model has masks of its own, which follow from the
// seed of its Parameters, the layer's name, and the step.
package nn
