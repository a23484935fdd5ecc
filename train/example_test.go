package train_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A small GPT learns to count modulo 7. Biases and the scales of norms are left out of weight decay, and so are the
// positions.
func ExampleNewAdamW() {
	const batch, length, vocab, steps = 4, 8, 7, 60
	g := gorgonia.NewGraph()
	model, err := nn.NewGPT(g, nn.GPTConfig{Parameters: nn.NewParameters(1), Vocab: vocab, Context: length, Layers: 2, Heads: 2, Dim: 16})
	if err != nil {
		log.Fatal(err)
	}
	ids := func(name string, first int) *gorgonia.Node {
		data := make([]int, batch*length)
		for i := range data {
			data[i] = (i/length*3 + i%length + first) % vocab
		}
		return gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(batch, length), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(batch, length), tensor.WithBacking(data))))
	}
	loss := gorgonia.Must(model.Loss(ids("tokens", 0), ids("targets", 1)))
	if _, err := gorgonia.Grad(loss, model.Parameters()...); err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(model.Parameters()...))

	opt, err := train.NewAdamW(model.Parameters(), train.AdamWConfig{
		WeightDecay: 0.1,
		Options: train.Options{
			Schedule: train.WarmupCosine{Peak: 1e-2, Min: 1e-3, Warmup: 10, Steps: steps},
			Groups:   []train.Group{{Match: train.Any(train.Vectors, train.Named("positions.*")), NoDecay: true}},
			ClipNorm: 1,
		},
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
func ExampleNewSGD() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(1), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
	three := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(1), gorgonia.WithName("three"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{3}))))
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(x, three))))))
	if _, err := gorgonia.Grad(loss, x); err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(x))
	opt, err := train.NewSGD(gorgonia.Nodes{x}, train.SGDConfig{Momentum: 0.5, Options: train.Options{Schedule: train.Constant(0.1)}})
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
