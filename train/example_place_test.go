package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
)

// A program that runs on a CPU, on a GPU where there is one, and on all that a launcher has started
// it on. Nothing in it is about ranks: to share sequences or weights among them is a setting of the
// place, such as one of the flags that PlaceConfig.Flags registers.
func ExamplePlaceConfig_Run() {
	learn := func(ctx context.Context, place *train.Place) error {
		ids := make([]int, 4000)
		for i := range ids {
			ids[i] = i * i % 7
		}
		tokens, err := data.FromInts(ids)
		if err != nil {
			return err
		}
		batches, err := data.Random(tokens, 2, 64, 1)
		if err != nil {
			return err
		}
		parameters, err := place.NewParameters(1)
		if err != nil {
			return err
		}
		loop, err := train.NewLoop(train.LoopConfig{
			Place: place, Parameters: parameters, Data: batches, Steps: 5,
			Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
				m := nn.NewGPT(s, nn.GPTConfig{Vocab: 7, Context: 64, Layers: 1, Heads: 2, Dim: 16})
				return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
			},
			Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(1e-2)},
		})
		if err != nil {
			return err
		}
		defer loop.Close()
		end, err := loop.Run(ctx)
		if place.Leads() {
			fmt.Println("steps:", end.Done)
		}
		return err
	}
	if err := (train.PlaceConfig{Device: "cpu"}).Run(context.Background(), learn); err != nil {
		log.Fatal(err)
	}
	// Output: steps: 5
}
