package ops_test

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMemoryIsUsedAgain runs a chain of two ops twice and looks at where their outputs lie.
func TestMemoryIsUsedAgain(t *testing.T) {
	for _, c := range []struct {
		name        string
		read, carry bool // whether gorgonia.Read reads the first op's output, or the input gets it as its value
		again       bool // whether it then lies where it lay before
	}{{name: "inside", again: true}, {name: "read", read: true}, {name: "carried", carry: true}} {
		g := gorgonia.NewGraph()
		x := input(g, "x", dense(tensor.Float64, []float64{1, 2, 3}, 3))
		first := gorgonia.Must(ops.SiLU(x))
		second := gorgonia.Must(ops.GELU(first))
		if c.read {
			gorgonia.Read(first, new(gorgonia.Value))
		}
		m := gorgonia.NewTapeMachine(g)
		run(t, m)
		before, beforeRoot := first.Value().Data().([]float64), second.Value().Data().([]float64)
		kept := slices.Clone(beforeRoot)
		if c.carry {
			if err := gorgonia.Let(x, first.Value()); err != nil {
				t.Fatal(err)
			}
		}
		run(t, m)
		after, afterRoot := first.Value().Data().([]float64), second.Value().Data().([]float64)
		if (&before[0] == &after[0]) != c.again || &beforeRoot[0] == &afterRoot[0] {
			t.Errorf("%s: the first output is in the same place: %t, want %t; the root's: %t, want false",
				c.name, &before[0] == &after[0], c.again, &beforeRoot[0] == &afterRoot[0])
		}
		if !slices.Equal(kept, beforeRoot) {
			t.Errorf("%s: the root's first value was overwritten", c.name)
		}
	}
}

// TestCarriedState feeds the middle of a graph back into it, and compares with the same steps in
// fresh graphs.
func TestCarriedState(t *testing.T) {
	build := func(state *tensor.Dense) (*gorgonia.ExprGraph, *gorgonia.Node, *gorgonia.Node, *gorgonia.Node) {
		g := gorgonia.NewGraph()
		x := input(g, "x", state)
		w := input(g, "w", dense(tensor.Float64, []float64{0.5, -1, 0.25, 1}, 2, 2))
		next := gorgonia.Must(ops.Linear(x, w, nil, ops.LinearOptions{}))
		// The state is read again behind the op that makes the next one.
		loss := gorgonia.Must(ops.Sum(gorgonia.Must(ops.SwiGLU(next, gorgonia.Must(ops.SiLU(x))))))
		if _, err := gorgonia.Grad(loss, w); err != nil {
			t.Fatal(err)
		}
		return g, x, next, loss
	}
	state := dense(tensor.Float64, []float64{1, 2, 3, 4}, 2, 2)
	g, x, next, loss := build(state.Clone().(*tensor.Dense))
	m := gorgonia.NewTapeMachine(g)
	for i := range 5 {
		fresh, _, nextFresh, lossFresh := build(state)
		run(t, gorgonia.NewTapeMachine(fresh))
		run(t, m)
		if got, want := loss.Value().Data(), lossFresh.Value().Data(); got != want {
			t.Errorf("step %d: the loss is %v, want %v", i, got, want)
		}
		state = nextFresh.Value().(*tensor.Dense).Clone().(*tensor.Dense)
		if err := gorgonia.Let(x, next.Value()); err != nil {
			t.Fatal(err)
		}
	}
}

// In a graph whose ops share memory, losses and gradients are what they are without, run after run,
// and what is alive at once is less than all results.
func TestReuseMemory(t *testing.T) {
	for dtype := range bounds {
		var want [][]float64
		for _, shared := range []bool{false, true} {
			m := newMiniature(dtype)
			if shared {
				ops.ReuseMemory(m.g)
			}
			var loss gorgonia.Value
			gorgonia.Read(m.loss, &loss)
			gradients, err := gorgonia.Grad(m.loss, m.parameters...)
			if err != nil {
				t.Fatal(err)
			}
			vm := gorgonia.NewTapeMachine(m.g, gorgonia.WithEngine(ops.Engine()))
			for i := range uint32(3) {
				ops.ModeOf(m.g).Train(i)
				run(t, vm)
				got := [][]float64{slices.Clone(numbers(t, loss))}
				for _, n := range gradients {
					got = append(got, slices.Clone(numbers(t, n.Value())))
				}
				if !shared {
					want = append(want, got...)
					continue
				}
				for n, list := range got {
					if !slices.Equal(list, want[int(i)*len(got)+n]) {
						t.Errorf("%v, run %d: result %d of %d is %v, without sharing %v", dtype, i, n, len(got), list, want[int(i)*len(got)+n])
					}
				}
			}
		}
	}
}

// A gradient that a forward run computed is not written over by results of the backward run, of
// which the one that comes next is as large.
func TestGradientsOfTheForwardRunStay(t *testing.T) {
	const rows, wide, features = 6, 100, 4
	const vocabulary = rows * wide / features
	var want []float64
	for _, shared := range []bool{false, true} {
		g := gorgonia.NewGraph()
		parameter := func(name string, shape ...int) *gorgonia.Node {
			x := make([]float32, tensor.Shape(shape).TotalSize())
			for i := range x {
				x[i] = float32(i%5)/4 - 0.4
			}
			return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(shape...),
				gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))))
		}
		x, narrow, weight := parameter("x", rows, wide), parameter("narrow", wide, features), parameter("weight", vocabulary, features)
		targets := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("targets"), gorgonia.WithShape(rows),
			gorgonia.WithValue(tensor.New(tensor.WithShape(rows), tensor.WithBacking([]int{0, 5, 1, 4, 2, 3}))))
		h := gorgonia.Must(ops.Linear(gorgonia.Must(ops.GELU(x)), narrow, nil, ops.LinearOptions{}))
		loss := gorgonia.Must(ops.LinearCrossEntropy(h, weight, targets, ops.LinearCrossEntropyOptions{}))
		if shared {
			ops.ReuseMemory(g)
		}
		gradients, err := gorgonia.Grad(loss, x, narrow, weight)
		if err != nil {
			t.Fatal(err)
		}
		vm := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))
		for i := range 2 {
			run(t, vm)
			got := numbers(t, gradients[2].Value())
			if want == nil {
				want = slices.Clone(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("run %d, memory shared %v: the weight's gradient begins with %v, want %v", i, shared, got[:features], want[:features])
			}
		}
	}
}
