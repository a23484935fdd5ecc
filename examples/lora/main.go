// Lora teaches a GPT that counts by ones to count by threes, by LoRA written by hand: changes of
// rank 4 beside frozen weights. It is this file; learn.go is any training.
package main

import (
	"log"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/nn"
)

// lora is y = base(x) + x·a·b in the place of a linear layer.
func lora(s *nn.Scope, c nn.LinearConfig) nn.Layer {
	base := nn.NewLinear(s, c)
	a, b := s.Parameter("a", nn.FanIn, c.In, 4), s.Parameter("b", nn.Zero, 4, c.Out)
	return nn.LayerFunc(func(x nn.Tensor) nn.Tensor { return base.Forward(x).Add(x.MatMul(a).MatMul(b)) })
}

func main() {
	cli.Alone("lora trains a GPT to count by ones, and then 8,192 changes of its weights to count by threes, in some seconds.")
	p := nn.NewParameters(1)
	if err := learn(p, 1, nil); err != nil {
		log.Fatal(err)
	}
	p.Freeze(func(name string) bool { return !strings.HasSuffix(name, ".a") && !strings.HasSuffix(name, ".b") })
	if err := learn(p, 3, lora); err != nil {
		log.Fatal(err)
	}
}
