package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A small GPT learns to count modulo 7. Biases and the scales of norms are left out of weight
// decay, and so are the positions.
func ExampleAdamW() {
	const batch, length, vocab, steps = 4, 8, 7, 60
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(1))
	ids := func(name string, first int) nn.Tensor {
		list := make([]int, batch*length)
		for i := range list {
			list[i] = (i/length*3 + i%length + first) % vocab
		}
		return s.Constant(name, data.Ints(list, batch, length))
	}
	model := nn.NewGPT(s, nn.GPTConfig{Vocab: vocab, Context: length, Layers: 2, Heads: 2, Dim: 16})
	loss := model.Loss(ids("tokens", 0), ids("targets", 1)).Node()
	if err := s.Err(); err != nil {
		log.Fatal(err)
	}
	if _, err := gorgonia.Grad(loss, s.Parameters()...); err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(s.Graph(), gorgonia.BindDualValues(s.Parameters()...))

	opt, err := train.NewStepper(s.Parameters(), train.AdamW{WeightDecay: 0.1}, train.Options{
		Schedule: train.WarmupCosine{Peak: 1e-2, Min: 1e-3, Warmup: 10, Steps: steps},
		Groups:   []train.Group{{Match: train.Any(train.Vectors, train.Named("positions.*")), NoDecay: true}},
		ClipNorm: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	for step := range steps {
		if err := machine.RunAll(); err != nil {
			log.Fatal(err)
		}
		machine.Reset()
		report, err := opt.Step()
		if err != nil {
			log.Fatal(err)
		}
		if step == 0 || report.Step == steps {
			fmt.Printf("step %d: loss %.1f, learning rate %.4f\n", report.Step, loss.Value().Data(), report.LearningRate)
		}
	}
	// Output:
	// step 1: loss 2.0, learning rate 0.0009
	// step 60: loss 0.0, learning rate 0.0010
}

// The minimum of a parabola, found by gradient descent with momentum.
func ExampleSGD() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(1), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
	three := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(1), gorgonia.WithName("three"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{3}))))
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(x, three))))))
	if _, err := gorgonia.Grad(loss, x); err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(x))
	opt, err := train.NewStepper(gorgonia.Nodes{x}, train.SGD{Momentum: 0.5}, train.Options{Schedule: train.ConstantRate(0.1)})
	if err != nil {
		log.Fatal(err)
	}
	for range 60 {
		if err := machine.RunAll(); err != nil {
			log.Fatal(err)
		}
		machine.Reset()
		if _, err := opt.Step(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("%.4f\n", x.Value().Data())
	// Output: [3.0000]
}

// The rate rises, falls, and stays at its minimum.
func ExampleWarmupCosine() {
	s := train.WarmupCosine{Peak: 1, Min: 0.1, Warmup: 3, Steps: 11}
	for step := range 13 {
		fmt.Printf("%.2f ", s.LearningRate(step))
	}
	// Output: 0.25 0.50 0.75 1.00 0.97 0.87 0.72 0.55 0.38 0.23 0.13 0.10 0.10
}

// The same model in a loop, which reads batches from data, evaluates on the last fifth of them and
// tells a hook.
func ExampleLoop() {
	ids := make([]int, 1000)
	for i := range ids {
		ids[i] = i % 7
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		log.Fatal(err)
	}
	training, validation, err := tokens.Split(0.8)
	if err != nil {
		log.Fatal(err)
	}
	trainingBatches, err := data.Random(training, 4, 8, 1)
	if err != nil {
		log.Fatal(err)
	}
	validationBatches, err := data.Random(validation, 4, 8, 2)
	if err != nil {
		log.Fatal(err)
	}
	parameters := nn.NewParameters(1) // of the graph that trains and of the one that evaluates
	loop, err := train.NewLoop(train.LoopConfig{
		Parameters: parameters,
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			m := nn.NewGPT(s, nn.GPTConfig{Vocab: 7, Context: 8, Layers: 2, Heads: 2, Dim: 16})
			return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
		},
		Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.WarmupCosine{Peak: 1e-2, Warmup: 10, Steps: 60}, ClipNorm: 1},
		Data:  trainingBatches,
		Steps: 60, Evaluations: train.Evaluations{Every: 30, Batches: 5, Validation: validationBatches},
		Hooks: []train.Hook{{OnEval: func(e train.Evaluation) error {
			fmt.Printf("after step %d: validation loss %.1f\n", e.Done, e.Validation)
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
	// after step 0: validation loss 2.0
	// after step 30: validation loss 0.2
	// after step 60: validation loss 0.1
}
