package ops

import (
	"runtime"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// forwardOf finds the call in a graph that has one.
func forwardOf(t *testing.T, g *gorgonia.ExprGraph) *call {
	t.Helper()
	for _, n := range g.AllNodes() {
		if c, ok := n.Op().(*call); ok {
			if c.name == "FlashAttention" {
				return c
			}
		}
	}
	t.Fatal("the graph has no attention")
	return nil
}

func smallGraph(t *testing.T) (g *gorgonia.ExprGraph, q, bias, loss *gorgonia.Node) {
	t.Helper()
	g = gorgonia.NewGraph()
	in := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(gorgonia.GlorotN(1)))
	}
	q, bias = in("q", 1, 2, 6, 4), in("bias", 1, 2, 6, 6)
	out, err := FlashAttention(q, in("k", 1, 2, 6, 4), in("v", 1, 2, 6, 4), AttentionOptions{Bias: bias})
	if err != nil {
		t.Fatal(err)
	}
	return g, q, bias, gorgonia.Must(gorgonia.Sum(out))
}

func TestAttentionKeepsNothingWithoutGradient(t *testing.T) {
	g, _, _, _ := smallGraph(t)
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		t.Fatal(err)
	}
	c := forwardOf(t, g)
	if c.last.copies != nil || c.rooms.saved[attentionLSE].IsSet() || c.rooms.scratch[1] != nil {
		t.Errorf("a graph that no one differentiates keeps a state: %+v %+v", c.last, c.rooms)
	}
}

// recorder is a backend that remembers which gradients it was asked for.
type recorder struct {
	kernels.Backend
	rows, bias bool
}

func (r *recorder) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	r.rows, r.bias = g.DQ.IsSet(), g.DBias.IsSet()
	return r.Backend.AttentionBackward(a, g)
}

func TestAttentionComputesWantedGradientsOnly(t *testing.T) {
	backend := host
	defer func() { host = backend }()
	for _, c := range []struct{ rows, bias bool }{{true, false}, {false, true}, {true, true}} {
		r := &recorder{Backend: backend}
		host = r
		g, q, bias, loss := smallGraph(t)
		var wrt gorgonia.Nodes
		if c.rows {
			wrt = append(wrt, q)
		}
		if c.bias {
			wrt = append(wrt, bias)
		}
		if _, err := gorgonia.Grad(loss, wrt...); err != nil {
			t.Fatal(err)
		}
		if err := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues()).RunAll(); err != nil {
			t.Fatal(err)
		}
		if r.rows != c.rows || r.bias != c.bias {
			t.Errorf("wanted q %t and bias %t, computed q %t and bias %t", c.rows, c.bias, r.rows, r.bias)
		}
	}
}

func TestStatesAreForgotten(t *testing.T) {
	registered := func() int {
		states.Lock()
		defer states.Unlock()
		return len(states.of)
	}
	before := registered()
	for range 50 {
		g, _, _, loss := smallGraph(t)
		ModeOf(g).Evaluate()
		Keep(loss)
		if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2000 { // cleanups run some time after the collection
		runtime.GC()
		if registered() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d states are registered, there were %d before 50 graphs came and went", registered(), before)
}
