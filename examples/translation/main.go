// Translation trains an encoder and a decoder on a toy language of other words in backward order.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
)

const words, length, rows, dim = 20, 8, 32, 64 // word 0 begins a translation, and ends both sentences as padding

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
		return data.Batch{"source": data.Ints(source, -1, length), "tokens": data.Ints(tokens, -1, length), "targets": data.Ints(targets, -1, length)}, nil
	}
}

// translator gives the logits of each word of a translation.
func translator(s *nn.Scope, in train.Inputs) nn.Tensor {
	embed := nn.NewEmbedding(s.Sub("words"), nn.EmbeddingConfig{Vocab: words, Dim: dim, Init: nn.Normal(0.5)})
	places := nn.NewPositionalEmbedding(s.Sub("places"), nn.PositionalEmbeddingConfig{Context: length, Dim: dim, Init: nn.Normal(0.5)})
	block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 4}}
	source := in.Get("source")
	context := s.Stack("encoder", source.Through(embed, places), 2, block)
	block.Cross, block.Attention.Options.Causal = true, kernels.CausalBottomRight
	write := nn.NewStack(s.Sub("decoder"), nn.StackConfig{Layers: 2, Block: block})
	h := write.ForwardWith(in.Get("tokens").Through(embed, places), nn.BlockInputs{Context: context, ContextMask: source})
	return s.Linear("out", h, words)
}

func main() {
	p := nn.NewParameters(1)
	_, err := train.Run(context.Background(), train.LoopConfig{
		Parameters: p,
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			logits, targets := translator(s, in), in.Get("targets")
			return train.Outputs{Loss: logits.CrossEntropy(targets), Metrics: []train.Metric{train.Accuracy(logits, targets)}}
		},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(2e-3)},
		Data: sentences(1), Evaluations: train.Evaluations{Every: 100, Validation: sentences(2)}, Steps: 500, Hooks: []train.Hook{watch.Progress(os.Stdout)},
	})
	check(err)
	predictor, err := train.NewPredictor(p, translator)
	check(err)
	source, said := []int{1, 2, 3, 4, 5, 0, 0, 0}, make([]int, length+1)
	for at := range length { // greedily, a word at a time
		out, err := predictor.Predict(data.Batch{"source": data.Ints(source, 1, -1), "tokens": data.Ints(said[:length], 1, -1)})
		check(err)
		logits := out.Float32s()[at*words:][:words]
		said[at+1] = slices.Index(logits, slices.Max(logits))
	}
	fmt.Println(source, "is", said[1:])
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
