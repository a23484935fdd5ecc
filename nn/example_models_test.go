package nn_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ids is an input of token ids, a row of the batch after the other.
func ids(g *gorgonia.ExprGraph, name string, rows int, list ...int) *gorgonia.Node {
	value := tensor.New(tensor.WithShape(rows, len(list)/rows), tensor.WithBacking(list))
	return gorgonia.NodeFromAny(g, value, gorgonia.WithName(name))
}

// A Llama shares keys and values between query heads and has rotary positions.
func ExampleNewLlama() {
	g := gorgonia.NewGraph()
	llama := nn.Must(nn.NewLlama(g, nn.LlamaConfig{Vocab: 100, Context: 64, Layers: 2, Heads: 4, KVHeads: 2, Dim: 32, TiedHead: true}))
	loss, err := llama.Loss(ids(g, "tokens", 2, 1, 2, 3, 4, 5, 6), ids(g, "targets", 2, 2, 3, 4, 5, 6, nn.IgnoreTarget))
	if err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(nn.Count(llama.Parameters()), "parameters")
	fmt.Printf("a loss of %.1f, about log 100\n", loss.Value().Data())
	// Output:
	// 58656 parameters
	// a loss of 4.6, about log 100
}

// A BERT reads two sentences, the second of which is padded, and gives the logits of three classes for each.
func ExampleNewEncoder() {
	g := gorgonia.NewGraph()
	bert := nn.Must(nn.NewEncoder(g, nn.EncoderConfig{
		Vocab: 100, Context: 64, Layers: 2, Heads: 4, Dim: 32, Norms: nn.PostNorm, EmbeddingNorm: true, Classes: 3,
	}))
	h, err := bert.ForwardWith(ids(g, "tokens", 2, 1, 7, 8, 9, 1, 5, 0, 0), nn.EncoderInputs{KeyMask: ids(g, "mask", 2, 1, 1, 1, 1, 1, 1, 0, 0)})
	if err != nil {
		log.Fatal(err)
	}
	logits, err := bert.Classify(h)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tokens", h.Shape(), "classes", logits.Shape())
	// Output: tokens (2, 4, 32) classes (2, 3)
}

// A ViT reads an image as 16 patches of 8×8 pixels.
func ExampleNewVisionTransformer() {
	g := gorgonia.NewGraph()
	vit := nn.Must(nn.NewVisionTransformer(g, nn.VisionTransformerConfig{
		Channels: 3, Height: 32, Width: 32, Patch: 8, Layers: 2, Heads: 4, Dim: 32, Classes: 10,
	}))
	images := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(5, 3, 32, 32), gorgonia.WithName("images"))
	h, err := vit.Forward(images)
	if err != nil {
		log.Fatal(err)
	}
	logits, err := vit.Classify(h)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("patches and one token for the whole", h.Shape(), "classes", logits.Shape())
	// Output: patches and one token for the whole (5, 17, 32) classes (5, 10)
}

// An encoder and a decoder that reads it, which translate: examples/translation trains such a model.
func ExampleNewStack() {
	const words, dim = 50, 32
	g, p := gorgonia.NewGraph(), nn.NewParameters(1)
	block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 4}}
	encoder := nn.Must(nn.NewStack(g, nn.StackConfig{Parameters: p, Name: "encoder", Layers: 2, Block: block}))
	block.Cross, block.Attention.Options.Causal = true, kernels.CausalBottomRight
	decoder := nn.Must(nn.NewStack(g, nn.StackConfig{Parameters: p, Name: "decoder", Layers: 2, Block: block}))
	embed := nn.Must(nn.NewEmbedding(g, nn.EmbeddingConfig{Parameters: p, Name: "words", Vocab: words, Dim: dim}))
	head := nn.Must(nn.NewLinear(g, nn.LinearConfig{Parameters: p, Name: "head", In: dim, Out: words}))

	source := ids(g, "source", 2, 3, 1, 4, 1, 5, 2, 7, 0, 0, 0) // 0 is padding
	context := nn.Must(nn.Chain(source, embed, encoder))
	said := nn.Must(embed.Forward(ids(g, "said", 2, 1, 8, 9, 1, 6, 0)))
	h, err := decoder.ForwardWith(said, nn.BlockInputs{Context: context, ContextMask: source})
	if err != nil {
		log.Fatal(err)
	}
	logits := nn.Must(head.Forward(h))
	fmt.Println("context", context.Shape(), "next words", logits.Shape())
	// Output: context (2, 5, 32) next words (2, 3, 50)
}

// LoRA trains small changes of the projections of attention, and leaves the weights of the model as they are.
func ExampleParameters_SetLoRA() {
	p := nn.NewParameters(1)
	if err := p.SetLoRA(nn.LoRA{Rank: 4, Alpha: 8, Match: func(linear string) bool { return strings.Contains(linear, ".attn.") }}); err != nil {
		log.Fatal(err)
	}
	g := gorgonia.NewGraph()
	gpt := nn.Must(nn.NewGPT(g, nn.GPTConfig{Parameters: p, Vocab: 100, Context: 64, Layers: 2, Heads: 4, Dim: 32}))
	fmt.Print(nn.Summary(p.Trainable(gpt.Parameters())))
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

// A maker makes the linear layers of a model: here those that the model would have made, after a look at them. What it returns may
// be any layer of the same shape, such as a LoRA by hand (examples/lora).
func ExampleMaker() {
	g := gorgonia.NewGraph()
	maker := func(g *gorgonia.ExprGraph, c nn.LinearConfig) (nn.Layer, error) {
		fmt.Println(c.Name, "from", c.In, "to", c.Out)
		return nn.NewLinear(g, c)
	}
	nn.Must(nn.NewGPT(g, nn.GPTConfig{
		Vocab: 100, Context: 64, Layers: 1, Heads: 4, Dim: 32, Block: func(_ int, c *nn.BlockConfig) { c.NewLinear = maker },
	}))
	// Output:
	// blocks.0.attn.qkv from 32 to 96
	// blocks.0.attn.proj from 32 to 32
	// blocks.0.mlp.fc from 32 to 128
	// blocks.0.mlp.proj from 128 to 32
}
