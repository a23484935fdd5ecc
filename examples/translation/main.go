// Translation trains an encoder and a decoder on a toy language, in which sentences run backwards in other words, and translates.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

const words, length, rows, dim = 20, 8, 32, 64 // word 0 begins a translation, and ends both sentences as padding

func array(ids []int) *tensor.Dense {
	return tensor.New(tensor.WithShape(len(ids)/length, length), tensor.WithBacking(ids))
}

// sentences gives sources of 3 to 8 words, what the decoder reads, and what it is to say.
func sentences(seed uint64) data.Func {
	return func(n int) (data.Batch, error) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		source, tokens, targets := make([]int, rows*length), make([]int, rows*length), make([]int, rows*length)
		for row := range rows {
			count := 3 + r.IntN(length-2)
			for at := range count {
				word := 1 + r.IntN(words-1)
				source[row*length+at] = word
				targets[row*length+count-1-at] = (word+6)%(words-1) + 1
			}
			copy(tokens[row*length+1:][:length-1], targets[row*length:])
		}
		return data.Batch{"source": array(source), "tokens": array(tokens), "targets": array(targets)}, nil
	}
}

// translator gives the logits of each word of a translation.
func translator(g *G.ExprGraph, p *nn.Parameters, in train.Inputs) (*G.Node, error) {
	block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 4}}
	read := nn.Must(nn.NewStack(g, nn.StackConfig{Parameters: p, Name: "encoder", Layers: 2, Block: block}))
	block.Cross, block.Attention.Options.Causal = true, kernels.CausalBottomRight
	write := nn.Must(nn.NewStack(g, nn.StackConfig{Parameters: p, Name: "decoder", Layers: 2, Block: block}))
	embed := nn.Must(nn.NewEmbedding(g, nn.EmbeddingConfig{Parameters: p, Name: "words", Vocab: words, Dim: dim, Init: nn.Normal(0.5)}))
	places := nn.Must(nn.NewPositionalEmbedding(g, nn.PositionalEmbeddingConfig{Parameters: p, Name: "places", Context: length, Dim: dim, Init: nn.Normal(0.5)}))
	out := nn.Must(nn.NewLinear(g, nn.LinearConfig{Parameters: p, Name: "out", In: dim, Out: words}))
	context := nn.Must(nn.Chain(in["source"], embed, places, read))
	h := nn.Must(write.ForwardWith(nn.Must(nn.Chain(in["tokens"], embed, places)), nn.BlockInputs{Context: context, ContextMask: in["source"]}))
	return out.Forward(h)
}

func main() {
	p := nn.NewParameters(1)
	loop := nn.Must(train.NewLoop(train.LoopConfig{Data: sentences(1), Validation: sentences(2), Steps: 500, EvalEvery: 100,
		Hooks:     []train.Hook{watch.Progress(os.Stdout)},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(2e-3)},
		Model: func(g *G.ExprGraph, in train.Inputs) (train.Outputs, error) {
			logits := nn.Must(translator(g, p, in))
			loss, err := ops.SoftmaxCrossEntropy(logits, in["targets"], ops.CrossEntropyOptions{})
			return train.Outputs{Loss: loss, Parameters: p.Nodes(g), Metrics: []train.Metric{train.Accuracy(logits, in["targets"])}}, err
		}}))
	defer loop.Close()
	nn.Must(loop.Run(context.Background()))
	predictor := nn.Must(train.NewPredictor(func(g *G.ExprGraph, in train.Inputs) (*G.Node, error) { return translator(g, p, in) }, nil))
	source, said := []int{1, 2, 3, 4, 5, 0, 0, 0}, make([]int, length+1)
	for at := range length { // greedily, a word at a time
		logits := nn.Must(predictor.Predict(data.Batch{"source": array(source), "tokens": array(said[:length])})).Float32s()
		said[at+1] = slices.Index(logits[at*words:][:words], slices.Max(logits[at*words:][:words]))
	}
	fmt.Println(source, "is", said[1:])
}
