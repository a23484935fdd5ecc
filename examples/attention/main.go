// Command attention is the README's example: causal attention and its gradient in a Gorgonia graph.
package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	. "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() {
	g := NewGraph()
	x := NewTensor(g, tensor.Float32, 4, WithShape(1, 8, 1024, 64), WithName("x"), WithInit(Gaussian(0, 1)))
	out := Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{Causal: kernels.CausalBottomRight}))
	if _, err := Grad(Must(Sum(Must(Square(out)))), x); err != nil {
		panic(err)
	}
	vm := NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		panic(err)
	}
	gradient, err := x.Grad()
	fmt.Println(out.Shape(), gradient.Shape(), err)
}
