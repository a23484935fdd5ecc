package ops_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file tests how attention behaves as part of a graph: sharing, aliasing, repeated runs,
// several machines.

var self = attentionCase{name: "self", b: 2, hq: 2, hk: 2, sq: 5, sk: 5, d: 4, dv: 4, useOut: true, seed: 42}

// gradientOf reads the gradient of a node.
func gradientOf(t testing.TB, n *gorgonia.Node) []float64 {
	t.Helper()
	v, err := n.Grad()
	if err != nil {
		t.Fatal(err)
	}
	return float64s(t, v)
}

func sum(lists ...[]float64) []float64 {
	total := slices.Clone(lists[0])
	for _, list := range lists[1:] {
		for i, x := range list {
			total[i] += x
		}
	}
	return total
}

// weightedSum is Σ n·w with w the case's weights.
func weightedSum(g *gorgonia.ExprGraph, n *gorgonia.Node, w []float64) *gorgonia.Node {
	weights := input(g, "weights", dense(n.Dtype(), w, n.Shape()...))
	return gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(n, weights))))
}

// TestAttentionOfOneNode uses one node as q, k and v: its gradient is the sum of the three.
func TestAttentionOfOneNode(t *testing.T) {
	values := self.values()
	values["k"], values["v"] = values["q"], values["q"]
	g := reference.AttentionGrad(self.problem(values), values["out"], nil)
	want := sum(g.DQ, g.DK, g.DV)
	for _, machine := range []string{"tapeMachine", "lispMachine"} {
		graph := gorgonia.NewGraph()
		x := input(graph, "x", dense(tensor.Float64, values["q"], 2, 2, 5, 4))
		out, err := ops.FlashAttention(x, x, x, ops.AttentionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		loss := weightedSum(graph, out, values["out"])
		if machine == "lispMachine" {
			run(t, gorgonia.NewLispMachine(graph))
		} else {
			if _, err := gorgonia.Grad(loss, x); err != nil {
				t.Fatal(err)
			}
			run(t, gorgonia.NewTapeMachine(graph, gorgonia.BindDualValues(x)))
		}
		compare(t, typed{self, tensor.Float64, machine}, map[string][]float64{"dx": gradientOf(t, x)}, map[string][]float64{"dx": want}, 1e-12)
	}
}

// TestAttentionInALayerStack runs two calls over the same k and v, the second on the first's
// output, in a graph with other ops before and after.
func TestAttentionInALayerStack(t *testing.T) {
	build := func() (*gorgonia.ExprGraph, gorgonia.Nodes, *gorgonia.Node) {
		values := self.values()
		graph := gorgonia.NewGraph()
		var in gorgonia.Nodes
		for _, name := range []string{"q", "k", "v"} {
			in = append(in, input(graph, name, dense(tensor.Float64, values[name], 2, 2, 5, 4)))
		}
		h := gorgonia.Must(gorgonia.Tanh(in[0]))
		for range 2 {
			out := gorgonia.Must(ops.FlashAttention(h, in[1], in[2], ops.AttentionOptions{Causal: kernels.CausalBottomRight}))
			h = gorgonia.Must(gorgonia.Add(h, out))
		}
		return graph, in, weightedSum(graph, gorgonia.Must(gorgonia.Square(h)), values["out"])
	}

	probe, x, loss := build()
	m := gorgonia.NewTapeMachine(probe)
	slopes := map[string][]float64{}
	const h = 1e-5
	for _, n := range x {
		data := n.Value().Data().([]float64)
		for i, old := range data {
			var at [2]float64
			for side, step := range []float64{-h, h} {
				data[i] = old + step
				run(t, m)
				at[side] = loss.Value().Data().(float64)
			}
			data[i] = old
			slopes[n.Name()] = append(slopes[n.Name()], (at[1]-at[0])/(2*h))
		}
	}
	for _, machine := range []string{"tapeMachine", "lispMachine"} {
		graph, in, loss := build()
		if machine == "lispMachine" {
			run(t, gorgonia.NewLispMachine(graph))
		} else {
			if _, err := gorgonia.Grad(loss, in...); err != nil {
				t.Fatal(err)
			}
			run(t, gorgonia.NewTapeMachine(graph, gorgonia.BindDualValues(in...)))
		}
		got := map[string][]float64{}
		for _, n := range in {
			got[n.Name()] = gradientOf(t, n)
		}
		compare(t, typed{self, tensor.Float64, machine}, got, slopes, 1e-7)
	}
}

// TestAttentionSurvivesAliases overwrites the outputs through a Reshape, which shares their memory,
// before the backward op runs.
func TestAttentionSurvivesAliases(t *testing.T) {
	c := self
	c.useLSE = true
	want := c.expected()
	for _, machine := range []string{"tapeMachine", "lispMachine"} {
		a := c.build(t, tensor.Float64)
		var terms gorgonia.Nodes
		for _, n := range (gorgonia.Nodes{a.out, a.lse}) {
			flat := gorgonia.Must(gorgonia.Reshape(n, tensor.Shape{n.Shape().TotalSize()}))
			noise := input(a.g, "noise", dense(tensor.Float64, slices.Repeat([]float64{1e6}, n.Shape().TotalSize()), n.Shape().TotalSize()))
			terms = append(terms, gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Add(flat, noise)))))
		}
		// The sums have gradients of 1, which come on top of the case's own weights.
		a.loss = gorgonia.Must(gorgonia.Add(a.loss, gorgonia.Must(gorgonia.Add(terms[0], terms[1]))))
		p := c.problem(c.values())
		values := c.values()
		ones := func(w []float64) []float64 {
			w = slices.Clone(w)
			for i := range w {
				w[i]++
			}
			return w
		}
		g := reference.AttentionGrad(p, ones(values["out"]), ones(values["lse"]))
		want["dq"], want["dk"], want["dv"] = g.DQ, g.DK, g.DV
		if machine == "lispMachine" {
			run(t, gorgonia.NewLispMachine(a.g))
		} else {
			run(t, a.tape(t))
		}
		got := a.results(t)
		delete(got, "out") // overwritten, which is Gorgonia's affair
		delete(got, "lse")
		compare(t, typed{c, tensor.Float64, machine}, got, want, 1e-12)
	}
}

// TestAttentionRunsAgain runs one graph many times, with new values each time, on two machines one
// after the other.
func TestAttentionRunsAgain(t *testing.T) {
	c := self
	c.useLSE, c.sinks = true, true
	a := c.build(t, tensor.Float64)
	machines := []gorgonia.VM{a.tape(t), gorgonia.NewTapeMachine(a.g, gorgonia.BindDualValues(a.parameters()...))}
	for i := range 6 {
		c.seed = uint64(100 + i)
		values := c.values()
		for name, n := range a.in {
			copy(n.Value().Data().([]float64), values[name])
			if v, err := n.Grad(); err == nil && v != nil {
				v.(*tensor.Dense).Zero()
			}
		}
		// The weights stay those of the first seed.
		first := self.seed
		weights := c
		weights.seed = first
		p := c.problem(values)
		out, lse := reference.Attention(p)
		w := weights.values()
		g := reference.AttentionGrad(p, w["out"], w["lse"])
		run(t, machines[i%2])
		a.c = c
		compare(t, typed{c, tensor.Float64, fmt.Sprintf("run %d", i)}, a.results(t), map[string][]float64{
			"out": out, "lse": lse, "dq": g.DQ, "dk": g.DK, "dv": g.DV, "dsinks": g.DSinks,
		}, 1e-12)
	}
}

// TestAttentionWithFrozenInputs differentiates with regard to each single input.
func TestAttentionWithFrozenInputs(t *testing.T) {
	c := self
	c.bias, c.sinks = []int{1, 2, 5, 5}, true
	want := c.expected()
	for _, name := range c.inputs() {
		a := c.build(t, tensor.Float64)
		gradients, err := gorgonia.Grad(a.loss, a.in[name])
		if err != nil {
			t.Fatal(err)
		}
		run(t, gorgonia.NewTapeMachine(a.g))
		got := map[string][]float64{"d" + name: float64s(t, gradients[0].Value())}
		compare(t, typed{c, tensor.Float64, "wrt " + name + " alone"}, got, want, 1e-12)
	}
}

// TestAttentionReadsStrides gives views: transposed, sliced, and with gaps between rows.
func TestAttentionReadsStrides(t *testing.T) {
	want := self.expected()
	values := self.values()
	views := map[string]func(data []float64) *tensor.Dense{
		"transposed": func(data []float64) *tensor.Dense {
			bshd := ordered(kernels.Of(data, 2, 2, 5, 4).Permute(0, 2, 1, 3))
			v := dense(tensor.Float64, bshd, 2, 5, 2, 4)
			if err := v.T(0, 2, 1, 3); err != nil {
				t.Fatal(err)
			}
			return v
		},
		"sliced": func(data []float64) *tensor.Dense {
			wide := make([]float64, 2*2*7*6)
			for i := range wide {
				wide[i] = math.NaN()
			}
			for i, x := range data {
				row, col := i/4, i%4
				wide[(row/5*7+row%5+1)*6+col+1] = x
			}
			v, err := dense(tensor.Float64, wide, 2, 2, 7, 6).Slice(nil, nil, gorgonia.S(1, 6), gorgonia.S(1, 5))
			if err != nil {
				t.Fatal(err)
			}
			return v.(*tensor.Dense)
		},
	}
	for name, view := range views {
		for _, machine := range []string{"tapeMachine", "lispMachine"} {
			a := self.build(t, tensor.Float64)
			for _, in := range self.inputs() {
				if err := gorgonia.Let(a.in[in], view(values[in])); err != nil {
					t.Fatal(err)
				}
			}
			m := gorgonia.VM(gorgonia.NewLispMachine(a.g))
			if machine == "tapeMachine" {
				m = a.tape(t)
			}
			run(t, m)
			got := map[string][]float64{"out": float64s(t, a.out.Value())}
			for _, in := range self.inputs() {
				v, err := a.in[in].Grad()
				if err != nil {
					t.Fatal(err)
				}
				sums := v.(*tensor.Dense) // strided like the value, since Gorgonia adds up gradients in a clone of it
				got["d"+in] = ordered(kernels.Tensor{
					Data: unsafe.Pointer(unsafe.SliceData(sums.Float64s())), DType: kernels.F64, Shape: sums.Shape(), Strides: sums.Strides(),
				})
			}
			compare(t, typed{self, tensor.Float64, machine + " " + name}, got, want, 1e-12)
		}
	}
}

// TestAttentionGradientThroughViews sends the gradients of the outputs through ops of Gorgonia that
// give views.
func TestAttentionGradientThroughViews(t *testing.T) {
	c := self
	c.useLSE = true
	values := c.values()
	for _, order := range [][]int{{0, 2, 1, 3}, {0, 1, 3, 2}, {3, 1, 0, 2}} {
		graph := gorgonia.NewGraph()
		var in gorgonia.Nodes
		for _, name := range []string{"q", "k", "v"} {
			in = append(in, input(graph, name, dense(tensor.Float64, values[name], 2, 2, 5, 4)))
		}
		out, lse, err := ops.FlashAttentionLSE(in[0], in[1], in[2], ops.AttentionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		outT := gorgonia.Must(gorgonia.Transpose(out, order...))
		lseT := gorgonia.Must(gorgonia.Transpose(lse, 2, 0, 1))
		both := gorgonia.Must(gorgonia.Concat(2, lse, lse))
		shape := make([]int, 4)
		for i, axis := range order {
			shape[i] = []int{2, 2, 5, 4}[axis]
		}
		w := ordered(kernels.Of(values["out"], 2, 2, 5, 4).Permute(order...))
		u := ordered(kernels.Of(values["lse"], 2, 2, 5).Permute(2, 0, 1))
		loss := gorgonia.Must(gorgonia.Add(
			gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(outT, input(graph, "w", dense(tensor.Float64, w, shape...)))))),
			gorgonia.Must(gorgonia.Add(
				gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(lseT, input(graph, "u", dense(tensor.Float64, u, 5, 2, 2)))))),
				gorgonia.Must(gorgonia.Sum(both)))),
		))
		if _, err := gorgonia.Grad(loss, in...); err != nil {
			t.Fatal(err)
		}
		run(t, gorgonia.NewTapeMachine(graph, gorgonia.BindDualValues(in...)))
		dLSE := slices.Clone(values["lse"])
		for i := range dLSE {
			dLSE[i] += 2
		}
		g := reference.AttentionGrad(c.problem(values), values["out"], dLSE)
		compare(t, typed{c, tensor.Float64, fmt.Sprint("transposed ", order)},
			map[string][]float64{"dq": gradientOf(t, in[0]), "dk": gradientOf(t, in[1]), "dv": gradientOf(t, in[2])},
			map[string][]float64{"dq": g.DQ, "dk": g.DK, "dv": g.DV}, 1e-12)
	}
}

// TestAttentionConcurrently builds and runs graphs in several goroutines. Run it under the race
// detector.
func TestAttentionConcurrently(t *testing.T) {
	slow.Emulated(t)
	c := self
	c.useLSE, c.bias, c.o.Dropout.P = true, []int{2, 2, 5, 5}, 0.3
	want := c.expected()
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 3 {
				a := c.build(t, tensor.Float64)
				run(t, a.tape(t))
				compare(t, typed{c, tensor.Float64, "concurrent"}, a.results(t), want, 1e-12)
			}
		})
	}
	wait.Wait()
}

// TestAttentionOpsAreDistinct makes two equal calls, which Gorgonia must not merge.
func TestAttentionOpsAreDistinct(t *testing.T) {
	a := self.build(t, tensor.Float64)
	again, err := ops.FlashAttention(a.in["q"], a.in["k"], a.in["v"], ops.AttentionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again == a.out || !strings.HasPrefix(again.Op().String(), "FlashAttention#") {
		t.Errorf("two calls share the node %v", again)
	}
}

// TestAttentionMemory runs a graph many times and looks at what stays.
func TestAttentionMemory(t *testing.T) {
	slow.Emulated(t)
	c := attentionCase{name: "memory", b: 1, hq: 2, hk: 2, sq: 256, sk: 256, d: 32, dv: 32, useOut: true, seed: 3}
	for _, differentiate := range []bool{false, true} {
		a := c.build(t, tensor.Float32)
		m := gorgonia.VM(gorgonia.NewTapeMachine(a.g))
		if differentiate {
			m = a.tape(t)
		}
		live := func() uint64 {
			runtime.GC()
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		run(t, m)
		before := live()
		for range 20 {
			run(t, m)
		}
		if after := live(); after > before+100<<10 {
			t.Errorf("differentiate=%t: 20 runs added %d KiB to %d KiB", differentiate, (after-before)>>10, before>>10)
		}
		runtime.KeepAlive(m)
		runtime.KeepAlive(a)
	}
}
