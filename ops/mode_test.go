package ops_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestModeDecidesDropout(t *testing.T) {
	c := self
	plain := c.expected()["out"]
	c.o.Dropout = ops.Drop{P: 0.5, Seed: 9}
	atStep := c.expected()["out"] // of the step that all tests use
	a := c.build(t, tensor.Float64)
	m := a.tape(t)
	out := func() map[string][]float64 {
		run(t, m)
		return map[string][]float64{"out": c.outView(float64s(t, a.out.Value()))}
	}
	compare(t, typed{c, tensor.Float64, "training"}, out(), map[string][]float64{"out": atStep}, 1e-12)
	compare(t, typed{c, tensor.Float64, "the same step again"}, out(), map[string][]float64{"out": atStep}, 1e-12)
	ops.ModeOf(a.g).Evaluate()
	compare(t, typed{c, tensor.Float64, "evaluating"}, out(), map[string][]float64{"out": plain}, 1e-12)
	ops.ModeOf(a.g).Train(step + 1)
	if slices.Equal(out()["out"], atStep) {
		t.Error("another step has the same mask")
	}
	ops.ModeOf(a.g).Train(step)
	compare(t, typed{c, tensor.Float64, "back"}, out(), map[string][]float64{"out": atStep}, 1e-12)
}

// TestModeByDefault checks that runs count as steps, from 0, when no one sets the mode, and that
// the backward run has the mask of its forward run.
func TestModeByDefault(t *testing.T) {
	c := self
	c.o.Dropout = ops.Drop{P: 0.5, Seed: 9}
	values := c.values()
	counting, stepped := c.graphWithoutMode(t, values), c.graphWithoutMode(t, values)
	for i := range uint32(3) {
		ops.ModeOf(stepped.g).Train(i)
		run(t, counting.m)
		run(t, stepped.m)
		if !slices.Equal(float64s(t, counting.out.Value()), float64s(t, stepped.out.Value())) {
			t.Errorf("run %d does not have the mask of step %d", i, i)
		}
		if !slices.Equal(gradientOf(t, counting.q), gradientOf(t, stepped.q)) {
			t.Errorf("the gradient of run %d does not have the mask of step %d", i, i)
		}
	}
}

type modeless struct {
	g      *gorgonia.ExprGraph
	q, out *gorgonia.Node
	m      gorgonia.VM
}

func (c attentionCase) graphWithoutMode(t *testing.T, values map[string][]float64) modeless {
	t.Helper()
	g := gorgonia.NewGraph()
	var in gorgonia.Nodes
	for _, name := range c.inputs() {
		in = append(in, input(g, name, dense(tensor.Float64, values[name], c.shapes()[name]...)))
	}
	out := gorgonia.Must(ops.FlashAttention(in[0], in[1], in[2], c.o))
	if _, err := gorgonia.Grad(weightedSum(g, out, values["out"]), in...); err != nil {
		t.Fatal(err)
	}
	return modeless{g, in[0], out, gorgonia.NewTapeMachine(g)}
}

func TestModeOf(t *testing.T) {
	g, other := gorgonia.NewGraph(), gorgonia.NewGraph()
	if again := ops.ModeOf(g); again != ops.ModeOf(g) || again == ops.ModeOf(other) {
		t.Error("a graph needs one mode of its own")
	}
	if ops.ModeOf(nil) == nil {
		t.Error("a nil graph gives a nil mode")
	}
	runtime.KeepAlive(g)
	runtime.KeepAlive(other)
}

// Whoever asks first, all goroutines get the graph's one mode, and each graph its own.
func TestModeFromManyGoroutines(t *testing.T) {
	const goroutines = 8
	shared := gorgonia.NewGraph()
	var ofShared, ofOwn [goroutines]*ops.Mode
	var graphs [goroutines]*gorgonia.ExprGraph // alive, so that no other graph takes their place
	var wait sync.WaitGroup
	for i := range goroutines {
		wait.Go(func() {
			graphs[i] = gorgonia.NewGraph()
			ofShared[i], ofOwn[i] = ops.ModeOf(shared), ops.ModeOf(graphs[i])
			ofShared[i].Train(uint32(i))
			ofOwn[i].Evaluate()
		})
	}
	wait.Wait()
	seen := map[*ops.Mode]bool{ops.ModeOf(shared): true}
	for i := range goroutines {
		if ofShared[i] != ops.ModeOf(shared) {
			t.Errorf("goroutine %d got another mode of the shared graph", i)
		}
		if seen[ofOwn[i]] {
			t.Errorf("the graph of goroutine %d has the mode of another", i)
		}
		seen[ofOwn[i]] = true
	}
	runtime.KeepAlive(graphs)
}
