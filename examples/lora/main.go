// Lora teaches a GPT that counts by ones to count by threes, by LoRA written by hand: changes of rank 4
// beside frozen weights. It is this file; learn.go is any training.
package main

import (
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
)

// lora is y = base(x) + x·a·b.
type lora struct {
	nn.Layer
	a, b *G.Node
}

func newLoRA(g *G.ExprGraph, c nn.LinearConfig) (nn.Layer, error) {
	base := nn.Must(nn.NewLinear(g, c))
	a := nn.Must(nn.NewParameter(g, nn.ParameterConfig{Parameters: c.Parameters, Name: c.Name + ".a", Shape: []int{c.In, 4}}))
	b, err := nn.NewParameter(g, nn.ParameterConfig{Parameters: c.Parameters, Name: c.Name + ".b", Shape: []int{4, c.Out}, Init: nn.Constant(0)})
	return lora{base, a, b}, err
}

func (l lora) Forward(x *G.Node) (*G.Node, error) {
	change := nn.Must(ops.MatMul(nn.Must(ops.MatMul(x, l.a, ops.MatMulOptions{})), l.b, ops.MatMulOptions{}))
	return ops.Add(nn.Must(l.Layer.Forward(x)), change)
}

func main() {
	p := nn.NewParameters(1)
	learn(p, 1, nil)
	p.Freeze(func(name string) bool { return !strings.HasSuffix(name, ".a") && !strings.HasSuffix(name, ".b") })
	learn(p, 3, newLoRA)
}
