package sample_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/sample"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A small model learns a rhyme by heart, and a decoder over the same parameters recites it.
func ExampleGenerate() {
	const rhyme = "rain rain go away, come again another day. "
	letters := pieces(strings.Split(" ,.acdeghimnortwy", ""))
	ids, err := letters.Encode(rhyme + rhyme)
	if err != nil {
		log.Fatal(err)
	}
	config := nn.GPTConfig{
		Parameters: nn.NewParameters(1), DType: tensor.Float64,
		Vocab: letters.Size(), Context: len(rhyme), Layers: 1, Heads: 2, Dim: 32,
	}

	g := gorgonia.NewGraph()
	model, err := nn.NewGPT(g, config)
	if err != nil {
		log.Fatal(err)
	}
	input := func(name string, data []int) *gorgonia.Node {
		value := tensor.New(tensor.WithShape(1, len(rhyme)), tensor.WithBacking(data))
		return gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithName(name), gorgonia.WithShape(1, len(rhyme)), gorgonia.WithValue(value))
	}
	loss, err := model.Loss(input("tokens", ids[:len(rhyme)]), input("targets", ids[1:len(rhyme)+1]))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := gorgonia.Grad(loss, model.Parameters()...); err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(model.Parameters()...))
	solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01))
	for range 100 {
		if err := machine.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(model.Parameters())); err != nil {
			log.Fatal(err)
		}
		machine.Reset()
	}

	decoder, err := nn.NewDecoder(nn.DecoderConfig{
		Model: func(g *gorgonia.ExprGraph) (nn.CachedModel, error) { return nn.NewGPT(g, config) },
	})
	if err != nil {
		log.Fatal(err)
	}
	stop, err := letters.Encode(".")
	if err != nil {
		log.Fatal(err)
	}
	options := sample.Options{
		Sampler:   sample.SamplerOptions{Temperature: 0.5, TopK: 3, Seed: 1},
		MaxTokens: 100, Stop: stop,
	}
	if err := sample.Generate(context.Background(), decoder, letters, "rain rain", options, os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output: go away, come again another day
}

// Of the two tokens that are left, one is three times as probable as the other.
func ExampleSampler() {
	sampler, err := sample.NewSampler(sample.SamplerOptions{Temperature: 1, TopK: 2, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	var counts [4]int
	for range 4000 {
		id, err := sampler.Next([]float64{math.Log(3), -1, -2, 0})
		if err != nil {
			log.Fatal(err)
		}
		counts[id]++
	}
	fmt.Println(counts)
	// Output: [2966 0 0 1034]
}
