package nn_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// A Llama shares keys and values between query heads and has rotary positions.
func ExampleNewLlama() {
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
	llama := nn.NewLlama(s, nn.LlamaConfig{Vocab: 100, Context: 64, Layers: 2, Heads: 4, KVHeads: 2, Dim: 32, TiedHead: true})
	tokens := s.Constant("tokens", data.Ints([]int{1, 2, 3, 4, 5, 6}, 2, 3))
	targets := s.Constant("targets", data.Ints([]int{2, 3, 4, 5, 6, nn.IgnoreTarget}, 2, 3))
	loss := llama.Loss(tokens, targets)
	if err := s.Err(); err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(s.Graph()).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(nn.Count(s.Parameters()), "parameters")
	fmt.Printf("a loss of %.1f, about log 100\n", loss.Node().Value().Data())
	// Output:
	// 58656 parameters
	// a loss of 4.6, about log 100
}

// A BERT reads two sentences, the second of which is padded, and gives the logits of three classes
// for each.
func ExampleNewBERT() {
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
	bert := nn.NewBERT(s, nn.BERTConfig{
		Vocab: 100, Context: 64, Layers: 2, Heads: 4, Dim: 32, Norms: nn.PostNorm, EmbeddingNorm: true, Classes: 3,
	})
	tokens := s.Constant("tokens", data.Ints([]int{1, 7, 8, 9, 1, 5, 0, 0}, 2, 4))
	mask := s.Constant("mask", data.Ints([]int{1, 1, 1, 1, 1, 1, 0, 0}, 2, 4))
	h := bert.ForwardWith(tokens, nn.EncoderInputs{KeyMask: mask})
	fmt.Println("tokens", h.Shape(), "classes", bert.Classify(h).Shape(), s.Err())
	// Output: tokens (2, 4, 32) classes (2, 3) <nil>
}

// A ViT reads an image as 16 patches of 8×8 pixels.
func ExampleNewViT() {
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
	vit := nn.NewViT(s, nn.ViTConfig{Channels: 3, Height: 32, Width: 32, Patch: 8, Layers: 2, Heads: 4, Dim: 32, Classes: 10})
	h := vit.Forward(s.Constant("images", data.Floats(make([]float32, 5*3*32*32), 5, 3, 32, 32)))
	fmt.Println("patches and one token for the whole", h.Shape(), "classes", vit.Classify(h).Shape(), s.Err())
	// Output: patches and one token for the whole (5, 17, 32) classes (5, 10) <nil>
}

// An encoder and a decoder that reads it, which translate: examples/translation trains such a
// model. Both read words by one embedding.
func ExampleNewStack() {
	const words, dim = 50, 32
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(1))
	source := s.Constant("source", data.Ints([]int{3, 1, 4, 1, 5, 2, 7, 0, 0, 0}, 2, 5)) // 0 is padding
	said := s.Constant("said", data.Ints([]int{1, 8, 9, 1, 6, 0}, 2, 3))

	embed := nn.NewEmbedding(s.Sub("words"), nn.EmbeddingConfig{Vocab: words, Dim: dim})
	block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 4}}
	context := s.Stack("encoder", embed.Forward(source), 2, block)
	block.Cross, block.Attention.Options.Causal = true, kernels.CausalBottomRight
	decoder := nn.NewStack(s.Sub("decoder"), nn.StackConfig{Layers: 2, Block: block})
	h := decoder.ForwardWith(embed.Forward(said), nn.BlockInputs{Context: context, ContextMask: source})
	fmt.Println("context", context.Shape(), "next words", s.Linear("head", h, words).Shape(), s.Err())
	// Output: context (2, 5, 32) next words (2, 3, 50) <nil>
}

// LoRA trains small changes of the projections of attention, and leaves the weights of the model as
// they are.
func ExampleParameters_SetLoRA() {
	p := nn.NewParameters(1)
	if err := p.SetLoRA(nn.LoRA{Rank: 4, Alpha: 8, Match: func(linear string) bool { return strings.Contains(linear, ".attn.") }}); err != nil {
		log.Fatal(err)
	}
	s := nn.NewScope(gorgonia.NewGraph(), p)
	nn.NewGPT(s, nn.GPTConfig{Vocab: 100, Context: 64, Layers: 2, Heads: 4, Dim: 32})
	fmt.Print(nn.Summary(s.Trainable()))
	// Output:
	// name                       shape  dtype    count
	// blocks.0.attn.qkv.lora_a   32×4   float32  128
	// blocks.0.attn.qkv.lora_b   4×96   float32  384
	// blocks.0.attn.proj.lora_a  32×4   float32  128
	// blocks.0.attn.proj.lora_b  4×32   float32  128
	// blocks.1.attn.qkv.lora_a   32×4   float32  128
	// blocks.1.attn.qkv.lora_b   4×96   float32  384
	// blocks.1.attn.proj.lora_a  32×4   float32  128
	// blocks.1.attn.proj.lora_b  4×32   float32  128
	// total                                      1,536
}

// A maker makes the linear layers of a model: here those that the model would have made, after a
// look at them. What it returns may be any layer of the same shape, such as a LoRA by hand
// (examples/lora).
func ExampleMaker() {
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
	maker := func(s *nn.Scope, c nn.LinearConfig) nn.Layer {
		fmt.Println(s.Name(), "from", c.In, "to", c.Out)
		return nn.NewLinear(s, c)
	}
	nn.NewGPT(s, nn.GPTConfig{
		Vocab: 100, Context: 64, Layers: 1, Heads: 4, Dim: 32, Block: func(_ int, c *nn.BlockConfig) { c.NewLinear = maker },
	})
	// Output:
	// blocks.0.attn.qkv from 32 to 96
	// blocks.0.attn.proj from 32 to 32
	// blocks.0.mlp.fc from 32 to 128
	// blocks.0.mlp.proj from 128 to 32
}
