package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// changeCase is layers with changes of low rank.
type changeCase struct {
	kind          string // the op
	rows, in, out int
	ranks         []int // of each layer's change; 0 for none
	scale         float64
	bias          bool
	apartIn       bool // something else than x goes through A: for each layer, or for all that share it
	dropped       bool // x is what a norm gives, and some of it is dropped before it goes through A
	frozen        bool // only the changes have gradients, and weights are kept in the type of x
	shared        bool // the first two layers have one A, and all one In

	packed tensor.Dtype // of the weights; none where they are not packed
	again  bool         // the layers are computed again for their gradients
}

func changeCases() []changeCase {
	return []changeCase{
		{kind: "Linear", rows: 5, in: 7, out: 6, ranks: []int{1}, scale: 1},
		{kind: "Linear", rows: 6, in: 33, out: 20, ranks: []int{8}, scale: 0.7, bias: true},
		{kind: "Linear", rows: 3, in: 5, out: 3, ranks: []int{13}, scale: 2, bias: true, apartIn: true},
		{kind: "Linear", rows: 9, in: 40, out: 70, ranks: []int{64}, scale: 2, frozen: true},
		{kind: "Linear activated", rows: 6, in: 16, out: 24, ranks: []int{3}, scale: 0.5, bias: true},
		{kind: "Linear activated", rows: 6, in: 16, out: 24, ranks: []int{16}, scale: 1, apartIn: true, frozen: true},
		{kind: "Linears", rows: 6, in: 33, out: 9, ranks: []int{8, 0, 3}, scale: 0.7, bias: true},
		{kind: "Linears", rows: 6, in: 16, out: 8, ranks: []int{8, 8, 16}, scale: 1, frozen: true},
		{kind: "Linears", rows: 6, in: 16, out: 8, ranks: []int{4, 4, 4}, scale: 1.5, shared: true},
		{kind: "LinearsSideBySide", rows: 6, in: 33, out: 9, ranks: []int{8, 8, 8}, scale: 2},
		{kind: "LinearsSideBySide", rows: 6, in: 16, out: 8, ranks: []int{5, 1, 0}, scale: 0.7, frozen: true},
		{kind: "LinearsSideBySide", rows: 6, in: 16, out: 8, ranks: []int{8, 8, 0}, scale: 0.7, bias: true, apartIn: true, shared: true},
		{kind: "Linears", rows: 6, in: 16, out: 8, ranks: []int{8, 8, 3}, scale: 2, apartIn: true},
		{kind: "Linear", rows: 6, in: 33, out: 40, ranks: []int{8}, scale: 2, dropped: true},
		{kind: "LinearsSideBySide", rows: 6, in: 16, out: 8, ranks: []int{8, 8, 8}, scale: 1, dropped: true, frozen: true},
		{kind: "Linears", rows: 6, in: 16, out: 8, ranks: []int{0, 4, 8}, scale: 1, dropped: true},
		{kind: "SwiGLUMLP", rows: 6, in: 33, out: 40, ranks: []int{8, 8, 8}, scale: 2},
		{kind: "SwiGLUMLP", rows: 6, in: 16, out: 24, ranks: []int{8, 8, 8}, scale: 1, frozen: true},
		{kind: "SwiGLUMLP", rows: 5, in: 7, out: 9, ranks: []int{2, 0, 13}, scale: 0.7, bias: true},
		{kind: "SwiGLUMLP", rows: 6, in: 16, out: 24, ranks: []int{0, 3, 0}, scale: 1, apartIn: true, frozen: true},
	}
}

func (c changeCase) String() string {
	type fields changeCase
	return fmt.Sprintf("%+v", fields(c))
}

// changedGraph is a case in a graph: the layers' outputs, and what has gradients.
type changedGraph struct {
	out, wrt gorgonia.Nodes
}

// build makes the layers in a graph, with their changes or as ops of their own beside them. dtype
// is what they compute in, parameters are of the type that goes with it.
func (c changeCase) build(g *gorgonia.ExprGraph, dtype tensor.Dtype, together bool) (b changedGraph) {
	wide, seed := dtype, uint64(0)
	if dtype != tensor.Float64 {
		wide = tensor.Float32
	}
	value := func(name string, trains bool, shape ...int) *gorgonia.Node {
		seed++
		list := normal(rand.New(rand.NewPCG(seed, 1)), elements(shape))
		for i := range list {
			list[i] *= 0.5
		}
		v, kept := dense(wide, list, shape...), c.frozen && strings.HasPrefix(name, "w") && dtype != wide
		if kept && c.packed != (tensor.Dtype{}) {
			turned, err := ops.Transposed(v)
			if err == nil {
				v, err = ops.Packed(turned, c.packed)
			}
			if err != nil {
				panic(err)
			}
		} else if kept {
			rounded, err := ops.Converted(v, dtype)
			if err != nil {
				panic(err)
			}
			v = rounded
		}
		n := input(g, name, v)
		if trains {
			b.wrt = append(b.wrt, n)
		}
		return n
	}
	narrow := func(n *gorgonia.Node) *gorgonia.Node {
		if dtype == wide {
			return n
		}
		return gorgonia.Must(ops.Cast(n, dtype))
	}
	layers := len(c.ranks)
	x := narrow(value("x", true, c.rows, c.in))
	other := x
	if c.dropped {
		x = gorgonia.Must(ops.RMSNorm(x, nil, ops.NormOptions{}))
		other = gorgonia.Must(ops.Dropout(x, ops.DropoutOptions{Drop: ops.Drop{P: 0.3, Seed: 5}}))
	}
	weights, biases, changes := make(gorgonia.Nodes, layers), make(gorgonia.Nodes, layers), make([]ops.Change, layers)
	for i, rank := range c.ranks {
		in, out, through := c.in, c.out+i, other
		if c.kind == "SwiGLUMLP" {
			if out = c.out; i == 2 {
				in, out, through = c.out, c.in+1, x
			}
		}
		if c.apartIn && through == x && in == c.in && rank > 0 {
			through = narrow(value(fmt.Sprint("other", i), true, c.rows, c.in))
			if c.shared {
				other = through
			}
		}
		weights[i] = value(fmt.Sprint("w", i), !c.frozen, in, out)
		if c.bias {
			biases[i] = value(fmt.Sprint("bias", i), !c.frozen, out)
		}
		if rank == 0 {
			continue
		}
		changes[i] = ops.Change{B: value(fmt.Sprint("b", i), true, rank, out), Scale: c.scale}
		if c.bias {
			changes[i].Scale += 0.5 * float64(i) // each has its own
		}
		if through != x {
			changes[i].In = through
		}
		if c.shared && i == 1 {
			changes[i].A = changes[0].A
		} else {
			changes[i].A = value(fmt.Sprint("a", i), true, in, rank)
		}
	}
	b.out = c.layers(x, weights, biases, changes, together)
	if c.again {
		ops.ReuseMemory(g)
		for i, y := range b.out {
			b.out[i] = gorgonia.Must(ops.Recompute(y, x))
		}
	}
	return b
}

// layers computes the outputs.
func (c changeCase) layers(x *gorgonia.Node, weights, biases gorgonia.Nodes, changes []ops.Change, together bool) (out gorgonia.Nodes) {
	must := func(n *gorgonia.Node, err error) *gorgonia.Node { return gorgonia.Must(n, err) }
	linear := func(x *gorgonia.Node, i int) *gorgonia.Node {
		y := must(ops.Linear(x, weights[i], biases[i], ops.LinearOptions{}))
		change := changes[i]
		if change.A == nil {
			return y
		}
		t := x
		if change.In != nil {
			t = change.In
		}
		for _, w := range []*gorgonia.Node{change.A, change.B} {
			t = must(ops.Linear(t, w, nil, ops.LinearOptions{}))
		}
		return must(ops.Add(y, must(ops.Scale(t, change.Scale))))
	}
	switch {
	case c.kind == "Linear activated" && together:
		return gorgonia.Nodes{must(ops.Linear(x, weights[0], biases[0], ops.LinearOptions{Activation: kernels.GELUTanh, Change: changes[0]}))}
	case c.kind == "Linear activated":
		return gorgonia.Nodes{must(ops.GELU(linear(x, 0)))}
	case c.kind == "Linear" && together:
		return gorgonia.Nodes{must(ops.Linear(x, weights[0], biases[0], ops.LinearOptions{Change: changes[0]}))}
	case c.kind == "Linears" && together:
		out, err := ops.Linears(x, weights, biases, changes...)
		if err != nil {
			panic(err)
		}
		return out
	case c.kind == "LinearsSideBySide" && together:
		return gorgonia.Nodes{must(ops.LinearsSideBySide(x, weights, biases, changes...))}
	case c.kind == "SwiGLUMLP" && together:
		b := ops.SwiGLUMLPBiases{Gate: biases[0], Up: biases[1], Down: biases[2]}
		return gorgonia.Nodes{must(ops.SwiGLUMLP(x, weights[0], weights[1], weights[2], b, changes...))}
	case c.kind == "SwiGLUMLP":
		return gorgonia.Nodes{linear(must(ops.SwiGLU(linear(x, 0), linear(x, 1))), 2)}
	}
	for i := range weights {
		out = append(out, linear(x, i))
	}
	if c.kind == "LinearsSideBySide" {
		out = gorgonia.Nodes{must(ops.Concat(1, out...))}
	}
	return out
}

// lossOf is a number that all elements of outputs have a part in.
func lossOf(out gorgonia.Nodes) (loss *gorgonia.Node) {
	for i, y := range out {
		term := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(y, gorgonia.Must(ops.Scale(y, 1+float64(i)))))))
		if loss == nil {
			loss = term
		} else {
			loss = gorgonia.Must(gorgonia.Add(loss, term))
		}
	}
	return loss
}

// run gives the outputs and the gradients by name.
func (c changeCase) run(t *testing.T, dtype tensor.Dtype, together bool) map[string][]float64 {
	t.Helper()
	g := gorgonia.NewGraph()
	b := c.build(g, dtype, together)
	out := b.out
	if dtype == ops.BFloat16 {
		for i, y := range out {
			out[i] = gorgonia.Must(ops.Cast(y, tensor.Float32))
		}
	}
	gradients, err := gorgonia.Grad(lossOf(out), b.wrt...)
	if err != nil {
		t.Fatal(err)
	}
	ops.Keep(append(gradients, out...)...)
	run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
	results := map[string][]float64{}
	for i, n := range out {
		results[fmt.Sprint("output ", i)] = float64s(t, n.Value())
	}
	for i, d := range gradients {
		results["d"+b.wrt[i].Name()] = float64s(t, d.Value())
	}
	return results
}

// Layers with changes give what layers and products beside them give, and their gradients: in
// float64 to rounding, and in the other types as close to that as those do.
func TestChanges(t *testing.T) {
	for _, c := range changeCases() {
		want := c.run(t, tensor.Float64, false)
		for _, dtype := range []tensor.Dtype{tensor.Float64, tensor.Float32, ops.BFloat16} {
			apart, together := c.run(t, dtype, false), c.run(t, dtype, true)
			for name, exact := range want {
				largest, worst, usual := 0.0, 0.0, 0.0
				for i, x := range exact {
					largest = max(largest, math.Abs(x))
					worst, usual = max(worst, math.Abs(together[name][i]-x)), max(usual, math.Abs(apart[name][i]-x))
				}
				bound := 1e-13 * largest
				if dtype != tensor.Float64 {
					bound = 2*usual + 1e-6*largest
				}
				if !(worst <= bound) {
					t.Errorf("%v, %v: %s is up to %g off, apart up to %g, bound %g", c, dtype, name, worst, usual, bound)
				}
			}
		}
	}
}

// A device that has a kernel for the thin products of a change is given them, and gives the same.
func TestChangesAtOnce(t *testing.T) {
	for _, c := range changeCases() {
		want := c.run(t, ops.BFloat16, true)
		var got map[string][]float64
		both, right, left := ops.OnThinHost(func() { got = c.run(t, ops.BFloat16, true) })
		if oneIn := !c.apartIn || c.shared; oneIn && (right == 0 || both == 0 || left == 0) {
			t.Errorf("%v: %d calls had both factors, %d Right and %d Left, it needs some of each", c, both, right, left)
		}
		for name, list := range want {
			largest := 0.0
			for _, x := range list {
				largest = max(largest, math.Abs(x))
			}
			for i, x := range list { // t and dt are rounded before they are scaled, or behind that
				if e := math.Abs(got[name][i] - x); !(e <= 0x1p-6*largest) {
					t.Errorf("%v: %s[%d] is %v, it needs to be %v", c, name, i, got[name][i], x)
					break
				}
			}
		}
	}
}

// Beside packed weights, a device that makes floats of these does so once for a run, and not again
// for the gradients of one that is made again. It gives what one does that reads packed weights in
// each product. It is asked to write a gate's gradients over what they are of.
func TestChangesBesideFloats(t *testing.T) {
	for _, c := range []changeCase{
		{kind: "Linear", rows: 9, in: 64, out: 70, ranks: []int{8}, scale: 2},
		{kind: "Linear", rows: 9, in: 64, out: 70, ranks: []int{0}},
		{kind: "Linears", rows: 6, in: 64, out: 8, ranks: []int{0, 8, 3}, scale: 2},
		{kind: "LinearsSideBySide", rows: 6, in: 64, out: 8, ranks: []int{8, 8, 3}, scale: 2},
		{kind: "LinearsSideBySide", rows: 6, in: 64, out: 8, ranks: []int{8, 8, 3}, scale: 2, again: true},
		{kind: "SwiGLUMLP", rows: 6, in: 64, out: 128, ranks: []int{8, 8, 8}, scale: 1},
		{kind: "SwiGLUMLP", rows: 6, in: 64, out: 128, ranks: []int{0, 0, 2}, scale: 1},
		{kind: "SwiGLUMLP", rows: 6, in: 64, out: 128, ranks: []int{8, 8, 8}, scale: 1, again: true},
	} {
		c.frozen = true
		for _, c.packed = range []tensor.Dtype{ops.Int8, ops.NF4} {
			want := c.run(t, ops.BFloat16, true)
			var got map[string][]float64
			widened, inPlace := ops.OnWideHost(func() { got = c.run(t, ops.BFloat16, true) })
			gates := 0
			if c.kind == "SwiGLUMLP" {
				gates = 1
			}
			if layers := len(c.ranks); widened != 2*layers || inPlace != gates {
				t.Errorf("%v: %d matrices became floats, it needs %d, and %d gates' gradients lay in place, it needs %d", c, widened, 2*layers, inPlace, gates)
			}
			for name, list := range want {
				largest := 0.0
				for _, x := range list {
					largest = max(largest, math.Abs(x))
				}
				for i, x := range list { // weights are rounded to 16 bits, or float32's as they are
					if e := math.Abs(got[name][i] - x); !(e <= 0x1p-6*largest) {
						t.Errorf("%v: %s[%d] is %v, it needs to be %v", c, name, i, got[name][i], x)
						break
					}
				}
			}
		}
	}
}

// Frozen weights that lie side by side for their product do so from the forward to the backward
// run, and where someone looks for memory in each by itself, with the same bits.
func TestWeightsSideBySideWithinABudget(t *testing.T) {
	const layers, features = 4, 64
	build := func(seeks bool) (g *gorgonia.ExprGraph, wanted gorgonia.Nodes) {
		g = gorgonia.NewGraph()
		ops.ReuseMemory(g)
		if seeks {
			ops.RecomputeRegions(g)
		}
		random := rand.New(rand.NewPCG(1, 2))
		value := func(name string, dtype tensor.Dtype, shape ...int) *gorgonia.Node {
			v, err := ops.Converted(dense(tensor.Float32, normal(random, elements(shape)), shape...), dtype)
			if err != nil {
				t.Fatal(err)
			}
			return input(g, name, v)
		}
		x := value("x", ops.BFloat16, 8, features)
		var wrt gorgonia.Nodes
		for i := range layers {
			var weights gorgonia.Nodes
			changes := make([]ops.Change, 2)
			for n := range changes {
				weights = append(weights, value(fmt.Sprint("w", i, n), ops.BFloat16, features, features/2))
				changes[n] = ops.Change{A: value(fmt.Sprint("a", i, n), tensor.Float32, features, 8), B: value(fmt.Sprint("b", i, n), tensor.Float32, 8, features/2), Scale: 1}
				wrt = append(wrt, changes[n].A, changes[n].B)
			}
			x = gorgonia.Must(ops.RMSNorm(gorgonia.Must(ops.LinearsSideBySide(x, weights, nil, changes...)), nil, ops.NormOptions{}))
		}
		out := gorgonia.Must(ops.Cast(x, tensor.Float32))
		gradients, err := gorgonia.Grad(lossOf(gorgonia.Nodes{out}), wrt...)
		if err != nil {
			t.Fatal(err)
		}
		wanted = append(gradients, out)
		ops.Keep(wanted...)
		return g, wanted
	}
	var bytes [2]int
	var results [2][][]float64
	for i, seeks := range []bool{false, true} {
		g, wanted := build(seeks)
		e, err := ops.EstimateRun(g)
		if err != nil {
			t.Fatal(err)
		}
		bytes[i] = e.Results
		run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
		for _, n := range wanted {
			results[i] = append(results[i], float64s(t, n.Value()))
		}
	}
	// The block of one layer's may have another use beside them.
	if saved, least := bytes[0]-bytes[1], (layers-2)*features*features*2; saved < least {
		t.Errorf("a run within a budget takes %d bytes less, it needs to take at least %d less", saved, least)
	}
	if !reflect.DeepEqual(results[0], results[1]) {
		t.Error("within a budget the results have other bits")
	}
}

// The gradients are slopes.
func TestChangesSlopes(t *testing.T) {
	for i, c := range changeCases() {
		if c.dropped {
			continue // other elements in each run
		}
		build := func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			b := c.build(g, dtype, true)
			return lossOf(b.out), b.wrt, nil
		}
		if err := gradcheck.Graph(build, gradcheck.Options{Seed: uint64(i), Elements: 3, Directions: 1}); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// A device that keeps copies of weights in 16 bits is asked for those of the factors, as their
// layers' weights lie, also where layers are computed again, and for frozen weights side by side
// where these are not. Nothing else is copied of them then, and the results are the same.
func TestCopiesOfChanges(t *testing.T) {
	for _, c := range []changeCase{
		{kind: "Linear", rows: 9, in: 64, out: 72, ranks: []int{8}, scale: 2},
		{kind: "LinearsSideBySide", rows: 6, in: 64, out: 8, ranks: []int{8, 16, 8}, scale: 2},
		{kind: "SwiGLUMLP", rows: 6, in: 64, out: 128, ranks: []int{8, 8, 8}, scale: 1},
	} {
		c.frozen = true
		for _, c.packed = range []tensor.Dtype{{}, ops.NF4} {
			for _, c.again = range []bool{false, true} {
				var want, got map[string][]float64
				ops.OnWideHost(func() { want = c.run(t, ops.BFloat16, true) })
				kept := ops.OnKeepingHost(func() { got = c.run(t, ops.BFloat16, true) })
				isPacked, factors := c.packed != (tensor.Dtype{}), 2
				if c.kind == "SwiGLUMLP" {
					factors *= 2
				}
				if c.again {
					factors *= 2
				}
				joined := 0
				if c.kind == "LinearsSideBySide" && !isPacked && !c.again {
					joined = len(c.ranks)
				}
				if kept.Narrow != joined || kept.Copied > 0 {
					t.Errorf("%v: asked was for %d frozen weights, it needs to be for %d; %d copies were made besides", c, kept.Narrow, joined, kept.Copied)
				}
				layouts := kept.Layouts
				if joined > 0 {
					layouts = layouts[1:] // comes first
				}
				if len(layouts) != factors || slices.ContainsFunc(layouts, func(l kernels.RoundedLayout) bool { return l.Transposed != isPacked }) {
					t.Errorf("%v: copies of factors were asked for as %+v, it needs to be %d times", c, layouts, factors)
				}
				for name, list := range want {
					if !slices.Equal(got[name], list) {
						t.Errorf("%v: %s is %v, it needs to be %v", c, name, got[name], list)
					}
				}
			}
		}
	}
}
