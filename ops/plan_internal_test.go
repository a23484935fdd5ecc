package ops

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// randomGraph is a graph of ops that read any of the nodes before them, in memory that they share,
// and the gradients of its inputs.
func randomGraph(t *testing.T, seed uint64) (g *gorgonia.ExprGraph, nodes, gradients gorgonia.Nodes) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	g = gorgonia.NewGraph()
	ReuseMemory(g)
	for _, name := range []string{"a", "b", "c"} {
		x := []float64{r.NormFloat64(), r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}
		nodes = append(nodes, gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(2, 2), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(x)))))
	}
	inputs := slices.Clone(nodes)
	any := func() *gorgonia.Node { return nodes[r.IntN(len(nodes))] }
	for range 4 + r.IntN(12) {
		var err error
		var n *gorgonia.Node
		switch r.IntN(5) {
		case 0:
			n, err = SiLU(any())
		case 1:
			n, err = SwiGLU(any(), any())
		case 2:
			n, err = Linear(any(), any(), nil, LinearOptions{})
		case 3:
			n, err = LayerNormOfSum(any(), any(), nil, nil, NormOptions{})
		default:
			n, err = gorgonia.Reshape(any(), tensor.Shape{2, 2})
		}
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	all := gorgonia.Must(Concat(0, nodes...))
	gradients, err := gorgonia.Grad(gorgonia.Must(Mean(all)), inputs...)
	if err != nil {
		t.Fatal(err)
	}
	return g, nodes, gradients
}

// A tapeMachine runs a graph as planned, whoever makes it, and what is freed in between makes no
// difference to the gradients.
func TestRunsAreAsPlanned(t *testing.T) {
	for seed := range uint64(60) {
		var want [][]float64
		for _, shared := range []bool{false, true} {
			g, _, gradients := randomGraph(t, seed)
			stateOf(g).pool.shared = shared
			var vm gorgonia.VM = gorgonia.NewTapeMachine(g)
			if seed%2 == 0 {
				var err error
				if vm, err = NewMachine(g); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := vm.RunAll(); err != nil {
					t.Fatal(err)
				}
				vm.Reset()
				p := (&member{graph: g, state: stateOf(g)}).planned()
				if w := stateOf(g).walk; w.astray || w.at != len(p.steps)-1 {
					t.Fatalf("seed %d: the run is astray (%v) and ends at step %d of %d", seed, w.astray, w.at, len(p.steps))
				}
			}
			for i, n := range gradients {
				got := n.Value().Data().([]float64)
				if !shared {
					want = append(want, slices.Clone(got))
				} else if !slices.Equal(got, want[i]) {
					t.Errorf("seed %d: gradient %d is %v, without sharing %v", seed, i, got, want[i])
				}
			}
			vm.Close()
		}
	}
}

// A machine for a part of a graph runs other steps than planned: it frees nothing that it still
// reads.
func TestRunsThatAreNotPlanned(t *testing.T) {
	for seed := range uint64(60) {
		var want []float64
		for _, shared := range []bool{false, true} {
			g, nodes, _ := randomGraph(t, seed)
			stateOf(g).pool.shared = shared
			root := gorgonia.Must(gorgonia.Sum(gorgonia.Must(SiLU(nodes[len(nodes)-1]))))
			vm := gorgonia.NewTapeMachine(g.ExactSubgraphRoots(root))
			for range 2 {
				if err := vm.RunAll(); err != nil {
					t.Fatal(err)
				}
				vm.Reset()
			}
			got := []float64{root.Value().Data().(float64)}
			if !shared {
				want = got
			} else if !slices.Equal(got, want) {
				t.Errorf("seed %d: the sum is %v, without sharing %v", seed, got, want)
			}
			vm.Close()
		}
	}
}
