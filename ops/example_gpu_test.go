//go:build gpu

package ops_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A graph whose inputs were uploaded runs on the GPU, gradients included.
func ExampleDevice() {
	device, err := ops.OpenDevice(0)
	if err != nil {
		log.Fatal(err)
	}
	g := gorgonia.NewGraph()
	input := func(name string, rows int, values ...float32) *gorgonia.Node {
		value, err := device.Upload(tensor.New(tensor.WithShape(1, 1, rows, 2), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 1, rows, 2), gorgonia.WithName(name), gorgonia.WithValue(value))
	}
	q, k, v := input("q", 1, 0, 0), input("k", 2, 1, 2, 3, 4), input("v", 2, 10, 20, 30, 40)
	out, err := ops.FlashAttention(q, k, v, ops.AttentionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	sum, err := ops.Sum(out)
	if err != nil {
		log.Fatal(err)
	}
	gradients, err := gorgonia.Grad(sum, v)
	if err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		log.Fatal(err)
	}
	for _, n := range []*gorgonia.Node{out, gradients[0]} {
		value, err := ops.Download(n.Value())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(value.Data())
	}
	// Output:
	// [20 30]
	// [0.5 0.5 0.5 0.5]
}
