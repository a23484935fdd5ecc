// Classifier trains a BERT on padded sentences: which of two kinds of words comes more often?
package main

import (
	"context"
	"log"
	"math/rand/v2"
	"os"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/watch"
)

const vocab, length, rows, dim = 40, 24, 32, 64

// review gives sentences of 5 to 24 words after a first token that stands for them: words 2 to 9
// praise, 10 to 17 blame.
func review(seed uint64) data.Func {
	return func(n int) (data.Batch, error) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		tokens, mask, labels := make([]int, rows*length), make([]bool, rows*length), make([]int, rows)
		for i := range labels {
			praise := 0
			for at := range 5 + r.IntN(length-4) {
				word := 1
				if at > 0 {
					word = 2 + r.IntN(vocab-2)
					praise += [...]int{1, -1, 0, 0, 0}[(word-2)/8]
				}
				tokens[i*length+at], mask[i*length+at] = word, true
			}
			labels[i] = min(max(praise, 0), 1)
		}
		return data.Batch{
			"tokens": data.Ints(tokens, rows, length), "mask": data.Bools(mask, rows, length), "labels": data.Ints(labels, rows),
		}, nil
	}
}

func classifier(s *nn.Scope, tokens, mask nn.Tensor) nn.Tensor {
	bert := nn.NewBERT(s, nn.BERTConfig{Vocab: vocab, Context: length, Layers: 2, Heads: 4, Dim: dim, Classes: 2})
	return bert.Classify(bert.ForwardWith(tokens, nn.EncoderInputs{KeyMask: mask}))
}

func main() {
	_, err := train.Run(context.Background(), train.LoopConfig{
		Parameters: nn.NewParameters(1),
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			logits, labels := classifier(s, in.Get("tokens"), in.Get("mask")), in.Get("labels")
			return train.Outputs{Loss: logits.CrossEntropy(labels), Metrics: []train.Metric{train.Accuracy(logits, labels)}}
		},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-3)},
		Data: review(1), Evaluations: train.Evaluations{Every: 100, Validation: review(2)}, Steps: 400, Hooks: []train.Hook{watch.Progress(os.Stdout)},
	})
	if err != nil {
		log.Fatal(err)
	}
}
