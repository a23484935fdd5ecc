// Package nn makes models: layers with parameters, and the functions between them, in a Gorgonia
// graph.
//
//	func block(s *nn.Scope, x, gate nn.Tensor) nn.Tensor {
//		x = x.Add(gate.Mul(s.Attention("attn", s.LayerNorm("norm1", x), 4)))
//		return x.Add(s.MLP("mlp", s.LayerNorm("norm2", x)))
//	}
//
// What has parameters is made in a [Scope], by a name. Its sizes come from its input. What has none
// is a method of a [Tensor], which broadcasts and takes numbers. A layer of one's own is a function
// of a scope and tensors.
//
// # Where to start
//
//	Scope                         where a model is made: Linear, Attention, MLP, Embedding, LayerNorm, Block, Stack, Parameter
//	Tensor                        Add, Mul, MatMul, Softmax, Mean, Reshape, Select, CrossEntropy and more
//	Parameters                    the values of all layers: made from a seed, shared by graphs, frozen, loaded and saved
//	NewGPT, NewLlama              language models, whole: LanguageModel, with its Loss
//	NewBERT, NewViT               models that read texts and pictures, whole: Encoder, with its heads
//	NewEncoderDecoder             models that read a source and write a text, such as T5 and Whisper
//	NewContrastive                vectors of texts and images that belong together, such as CLIP
//	NewStack, NewBlock            the inside of both, with cross-attention where one reads the other
//	NewMultiHeadAttention         and NewLinear, NewMLP, NewNorm, NewEmbedding: layers that are kept as values
//	NewExperts                    a mixture of experts, for a block in the place of its MLP; Scope.BalanceLoss
//	Maker, LoRA                   layers of one's own in the place of a model's
//	Decoder                       predicts one token after another (package train/sample makes text of it)
//	Summary                       what is in a model, and how large
//	package nn/pretrained         the model folders that people have
//
// The directory's coming-from-pytorch.md has a table of names, there and here.
//
// # Layers that are kept
//
// A method of a Scope makes a layer and applies it once. A layer that is applied more than once,
// such as an embedding that two texts share, is a value: NewEmbedding(s.Sub("words"),
// EmbeddingConfig{...}), whose Forward adds it to the graph each time, over the same parameters.
// The zero value of an option in a config is what most models use, sizes excepted.
//
// # Errors
//
// The first error stays in the scope, with the line of the model that it happened in. What comes
// after it does nothing, so a model has no error handling, and nothing panics. A Loop of package
// train asks for the error. In a graph of one's own, ask [Scope.Err] once.
//
// # Parameters
//
// A parameter has a name, such as blocks.3.attn.qkv.weight, that is unique in its graph: the names
// of the scopes that it was made in, and what it is in the layer. The weights of a [Linear] are
// (in, out), those of an [Embedding] (vocabulary, features). Values come from a [Parameters], which
// makes each from its seed and the name alone, so a model starts from the same weights in whatever
// order it is built. Graphs whose scopes have the same Parameters share the values, not copies of
// them: what one graph trains, the other evaluates.
//
// # Types and devices
//
// Parameters are float32, or float64 by [Scope.DType]. Layers compute in the same type, or by
// [Scope.Compute] in bfloat16 or float16, beside parameters, sums and losses of float32. Products
// of float32 may be less exact where the graph allows it, see
// [github.com/stheno-ml/stheno/ops.Mode.AllowPrecision], and linear layers may multiply in 8 bits.
// A model computes where its parameters are, see [Parameters.MoveTo]. With Recompute a block keeps
// nothing but its input for the gradients, and computes the rest anew. A Loop of package train does
// so where a budget of memory needs it.
//
// Attention in bfloat16 adds up its values in float32 and rounds once, after the division. So its
// error does not lean to one side where several scores of a row are the largest, by which other
// trainings in bfloat16 are known to diverge (arXiv 2510.04212).
//
// # Prediction
//
// A [Decoder] runs a language model one token after another, over the same Parameters, with a cache
// of what attention has seen, so that a token costs one row of attention.
//
// # Training and evaluation
//
// Whether dropout is active is a property of the graph that a machine runs, and may change between
// runs: see [github.com/stheno-ml/stheno/ops.ModeOf]. Each dropout in a model has masks of its own,
// which follow from the seed of its Parameters, the layer's name, and the step.
package nn
