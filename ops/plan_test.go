package ops_test

import (
	"os"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A layer with a residual norm behind it: the norm's gradients sum that of the layer's bias too,
// and each result is freed after the last op that reads it.
func ExampleWritePlan() {
	g := gorgonia.NewGraph()
	in := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...))
	}
	x, weight, bias, gamma := in("x", 4, 8), in("weight", 8, 8), in("bias", 8), in("gamma", 8)
	h := gorgonia.Must(ops.GELU(x))
	h = gorgonia.Must(ops.Linear(h, weight, bias, ops.LinearOptions{}))
	y := gorgonia.Must(ops.LayerNormOfSum(x, h, gamma, nil, ops.NormOptions{}))
	loss := gorgonia.Must(ops.Mean(y))
	if _, err := gorgonia.Grad(loss, weight, bias, gamma); err != nil {
		panic(err)
	}
	if err := ops.WritePlan(os.Stdout, g); err != nil {
		panic(err)
	}
	// Output:
	// #  node                      reads          writes               freed after  fused with
	// 0  GELU                      x              0
	// 1  Linear                    weight bias 0  1
	// 2  LayerNormOfSum            x gamma 1      2                    1
	// 3  Mean                      2              3*                   2
	// 4  Mean.dx                                  4.dx
	// 5  LayerNormOfSum.gradients  gamma 4.dx     5.dx 5.dgamma*       4.dx         dbias of 1
	// 6  Linear.gradients          weight 0 5.dx  6.dweight* 6.dbias*  0 5.dx
}

// A layer's change of low rank is computed with it: there are no other products, and no sums of
// theirs. What a norm gave is computed again for the gradients, and freed in between.
func ExampleWritePlan_change() {
	g := gorgonia.NewGraph()
	in := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...))
	}
	x, gamma, gate, up, down := in("x", 4, 8), in("gamma", 8), in("gate", 8, 12), in("up", 8, 12), in("down", 12, 8)
	a, b := in("lora_a", 8, 2), in("lora_b", 2, 12)
	h := gorgonia.Must(ops.RMSNorm(x, gamma, ops.NormOptions{}))
	y := gorgonia.Must(ops.SwiGLUMLP(h, gate, up, down, ops.SwiGLUMLPBiases{}, ops.Change{A: a, B: b, Scale: 2}, ops.Change{}, ops.Change{}))
	if _, err := gorgonia.Grad(gorgonia.Must(ops.Mean(y)), a, b); err != nil {
		panic(err)
	}
	if err := ops.WritePlan(os.Stdout, g); err != nil {
		panic(err)
	}
	// Output:
	// #  node                 reads                              writes                       freed after  fused with
	// 0  RMSNorm              x gamma                            0
	// 1  SwiGLUMLP            gate up down lora_a lora_b 0       1                            0            change of gate
	// 2  Mean                 1                                  2*                           1
	// 3  Mean.dx                                                 3.dx
	// 4  RMSNorm.again        gamma                              4
	// 5  SwiGLUMLP.gradients  gate up down lora_a lora_b 4 3.dx  5.da of gate* 5.db of gate*  4 3.dx       change of gate
}
