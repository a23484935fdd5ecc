// Command attention-gpu is examples/attention on a GPU: the graph is the same, its input is
// uploaded, and the machine gets an engine that adds gradients on the device. Build it with -tags
// gpu.
package main

import (
	"fmt"
	"os"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() {
	cli.Alone("attention-gpu computes causal attention and its gradient on a GPU, and prints their shapes.")
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	device, err := ops.OpenDevice(0)
	if err != nil {
		return err
	}
	x, err := device.Upload(tensor.New(tensor.WithShape(1, 8, 1024, 64), tensor.WithBacking(tensor.Random(tensor.Float32, 8*1024*64))))
	if err != nil {
		return err
	}

	g := G.NewGraph()
	in := G.NewTensor(g, tensor.Float32, 4, G.WithShape(1, 8, 1024, 64), G.WithName("x"), G.WithValue(x))
	out := G.Must(ops.FlashAttention(in, in, in, ops.AttentionOptions{Causal: kernels.CausalBottomRight, Precision: kernels.PrecisionBFloat16}))
	loss := G.Must(ops.Mean(out))
	gradients, err := G.Grad(loss, in)
	if err != nil {
		return err
	}
	vm := G.NewTapeMachine(g, G.WithEngine(ops.Engine()))
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return err
	}

	gradient, err := ops.Download(gradients[0].Value())
	if err != nil {
		return err
	}
	fmt.Println(device, out.Shape(), loss.Value(), gradient.Shape())
	return nil
}
