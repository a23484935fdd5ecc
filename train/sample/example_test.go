package sample_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/data"
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
	gpt := func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s.DType(tensor.Float64), nn.GPTConfig{Vocab: letters.Size(), Context: len(rhyme), Layers: 1, Heads: 2, Dim: 32})
	}

	parameters := nn.NewParameters(1)
	s := nn.NewScope(gorgonia.NewGraph(), parameters)
	input := func(name string, ids []int) nn.Tensor { return s.Constant(name, data.Ints(ids, 1, -1)) }
	loss := gpt(s).Loss(input("tokens", ids[:len(rhyme)]), input("targets", ids[1:len(rhyme)+1])).Node()
	if err := s.Err(); err != nil {
		log.Fatal(err)
	}
	if _, err := gorgonia.Grad(loss, s.Parameters()...); err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(s.Graph(), gorgonia.BindDualValues(s.Parameters()...))
	solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01))
	for range 100 {
		if err := machine.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(s.Parameters())); err != nil {
			log.Fatal(err)
		}
		machine.Reset()
	}

	decoder, err := nn.NewDecoder(nn.DecoderConfig{
		Parameters: parameters, Model: func(s *nn.Scope) nn.CachedModel { return gpt(s) },
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
	if err := sample.Generate(context.Background(), decoder, letters, "rain rain", options, sample.Write(os.Stdout)); err != nil {
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
	// Output: [3018 0 0 982]
}
