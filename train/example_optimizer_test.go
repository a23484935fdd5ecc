package train_test

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

// signMomentum is an optimiser of a program's own: weights move by the learning rate along the sign
// of a momentum.
type signMomentum struct{ beta float32 }

func (signMomentum) Name() string                  { return "sign momentum" }
func (signMomentum) State() []string               { return []string{"m"} }
func (signMomentum) Validate(kernels.DType) error  { return nil }
func (s signMomentum) Update(u train.Update) error { return u.EachOnHost(s.step) }

func (s signMomentum) step(p train.Parameter) error {
	w, g, m := p.Weights.Float32s(), p.Gradient.Float32s(), p.State[0].Float32s()
	for i := range w {
		m[i] = s.beta*m[i] + (1-s.beta)*g[i]
		w[i] -= float32(math.Copysign(p.LearningRate, float64(m[i])))
	}
	return nil
}

// An optimiser of one's own has a name, a list of what it remembers, and a function that changes
// one parameter. The Loop clips its gradients, follows the schedule, keeps its state in
// checkpoints, and shows its steps, as it does with AdamW.
func ExampleOptimizer() {
	ids := make([]int, 1000)
	for i := range ids {
		ids[i] = i % 7
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		log.Fatal(err)
	}
	batches, err := data.Random(tokens, 4, 8, 1)
	if err != nil {
		log.Fatal(err)
	}
	parameters := nn.NewParameters(1)
	loop, err := train.NewLoop(train.LoopConfig{
		Parameters: parameters,
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			m := nn.NewGPT(s, nn.GPTConfig{Vocab: 7, Context: 8, Layers: 1, Heads: 2, Dim: 16})
			return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
		},
		Data: batches, Steps: 60,
		Optimizer: signMomentum{beta: 0.9}, Options: train.Options{Schedule: train.LinearDecay{From: 1e-2, Steps: 60}},
		Hooks: []train.Hook{{OnStep: func(s train.Step) error {
			if s.Done%30 == 0 {
				fmt.Printf("step %d: loss %.1f, learning rate %.4f\n", s.Done, s.Loss, s.LearningRate)
			}
			return nil
		}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loop.Close()
	if _, err := loop.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// step 30: loss 0.1, learning rate 0.0052
	// step 60: loss 0.0, learning rate 0.0002
}
