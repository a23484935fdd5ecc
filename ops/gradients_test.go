package ops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gradients are told when they are computed, those of the end of the model first, with the values
// that they have after the run; of a node that is used twice nothing is told, and an error ends the
// run.
func TestOnGradients(t *testing.T) {
	g := gorgonia.NewGraph()
	parameter := func(name string, shape ...int) *gorgonia.Node {
		x := make([]float32, tensor.Shape(shape).TotalSize())
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))))
	}
	nodes := gorgonia.Nodes{parameter("first", 4, 5), parameter("twice", 5, 5), parameter("bias", 5), parameter("last", 5, 3)}
	must := gorgonia.Must
	h := must(ops.Linear(parameter("x", 2, 4), nodes[0], nil, ops.LinearOptions{}))
	h = must(ops.Linear(must(ops.Linear(h, nodes[1], nil, ops.LinearOptions{})), nodes[1], nodes[2], ops.LinearOptions{}))
	loss := must(ops.Mean(must(ops.Linear(h, nodes[3], nil, ops.LinearOptions{}))))
	if _, err := gorgonia.Grad(loss, nodes...); err != nil {
		t.Fatal(err)
	}
	var order []string
	told := map[int][]float32{}
	var fails error
	ops.OnGradients(nodes, func(i int, gradient kernels.Tensor) error {
		order = append(order, nodes[i].Name())
		told[i] = make([]float32, gradient.Elements())
		kernels.CopyHost(kernels.Of(told[i], gradient.Shape...), gradient)
		return fails
	})
	machine, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	for range 2 {
		order = nil
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		machine.Reset()
		if fmt.Sprint(order) != "[last bias first]" {
			t.Fatalf("gradients are told of %v", order)
		}
		for i, values := range told {
			gradient, err := nodes[i].Grad()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(values, gradient.Data().([]float32)) {
				t.Errorf("of %s %v is told, it is %v", nodes[i].Name(), values, gradient)
			}
		}
	}
	fails = errors.New("too far")
	if err := machine.RunAll(); err == nil || !strings.Contains(err.Error(), fails.Error()) {
		t.Errorf("a run in which gradients cannot be told of ends with %v", err)
	}
}
