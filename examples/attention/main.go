// Command attention is the README's example: causal attention and its gradient in a Gorgonia graph.
package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() {
	g := G.NewGraph()
	x := G.NewTensor(g, tensor.Float32, 4, G.WithShape(1, 8, 1024, 64), G.WithName("x"), G.WithInit(G.Gaussian(0, 1)))
	out := G.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{Causal: kernels.CausalBottomRight}))
	if _, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(out)))), x); err != nil {
		panic(err)
	}
	vm := G.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		panic(err)
	}
	gradient, err := x.Grad()
	if err != nil {
		panic(err)
	}
	fmt.Println("an output of", out.Shape(), "and a gradient of", gradient.Shape())
}
