package graphtest

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
)

var (
	drawn    = flag.Int("graphs", 0, "how many graphs to draw, in place of those of every run")
	first    = flag.Uint64("graph-seed", 1, "the first seed of graphs")
	failures = flag.Int("graph-failures", 1, "how many failures of one kind to show")
	show     = flag.Bool("graph-show", false, "print each graph before it runs, for one that ends the program")
)

// Graphs that are drawn give what their definition says, in all the ways to run them.
func TestDrawnGraphs(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	count := 200
	if testing.Short() {
		count = 30
	}
	if *drawn > 0 {
		count = *drawn
	}
	var totals struct{ nodes, defined, rounded, second, lisp, regions int }
	failed := map[string]int{}
	for n := range count {
		g := Draw(*first + uint64(n))
		if *show {
			t.Log(g)
		}
		o, err := g.Check()
		totals.nodes += len(g.Nodes)
		for of, is := range map[*int]bool{&totals.defined: o.Defined, &totals.rounded: o.Rounded, &totals.second: o.Second, &totals.lisp: o.Lisp, &totals.regions: o.Regions} {
			if is {
				*of++
			}
		}
		if err == nil {
			continue
		}
		way := err.(*Failure).Way
		if failed[way]++; failed[way] <= *failures {
			small := g.Shrink()
			_, err = small.Check()
			t.Errorf("%v\n%v\nof %d nodes that were drawn", err, small, len(g.Nodes))
		}
	}
	t.Logf("%d graphs, of these %+v; failed %v", count, totals, failed)
	if totals.defined < count*9/10 || totals.rounded < count*2/3 || totals.second < count/6 || totals.lisp < count*2/3 {
		t.Error("too few graphs were compared")
	}
}

// Gradients whose terms cancel, so that rounding is all that is left of them, may differ by as much
// where the terms are added in another order.
func TestGradientsThatCancel(t *testing.T) {
	for seed := range uint64(20) {
		d := &drawer{Rand: rand.New(rand.NewPCG(seed, 1)), Graph: &Graph{Seed: seed}}
		x, y := d.input(1, 3, 1), d.input(1, 3, 1)
		d.Nodes[x.Node].Trained, d.Nodes[y.Node].Trained = false, true
		add := func(op string, args ...Ref) Ref {
			return Ref{Node: d.node(Node{Op: op, Args: args, Shapes: [][]int{{1, 3, 1}}})}
		}
		quotient, ones := add("Div", x, y), add("Div", y, y)
		back, one := add("Mul", y, quotient), add("Tanh", ones) // x and tanh 1, whatever y is
		d.Losses, d.Regions = []Ref{back, one}, []Region{{Out: one.Node, From: 0}}
		if _, err := d.Check(); err != nil {
			t.Errorf("%v\n%v", err, d.Graph)
		}
	}
}

// Every op is drawn, and is refused by package ops no more often than now and then.
func TestEveryOpIsDrawn(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(400) {
		for _, n := range Draw(seed).Nodes {
			seen[n.Op] = true
		}
	}
	for _, k := range kinds {
		if !seen[k.name] {
			t.Errorf("%s was not drawn", k.name)
		}
	}
}

// The derivatives of the definition are those of its differences.
func TestDerivativesOfDefinition(t *testing.T) {
	compared := 0
	for seed := range uint64(150) {
		g := Draw(seed)
		e := newEvaluation(g, 0)
		e.run()
		if len(g.trained()) == 0 || !e.isTame(0.01) || g.hasConstants() {
			continue
		}
		at := func(x, y float64) jet {
			e := newEvaluation(g, 0)
			e.moved = [2]float64{x, y}
			e.run()
			cost, _ := e.cost()
			return cost
		}
		const h = 1e-5
		cost, terms := e.cost()
		for what, pair := range map[string][2]float64{
			"slope":  {(at(h, 0).x - at(-h, 0).x) / (2 * h), cost.a},
			"second": {(at(0, h).a - at(0, -h).a) / (2 * h), cost.c},
		} {
			if bound := 1e-4 * (1 + terms.x + terms.a + terms.b + terms.c); math.Abs(pair[0]-pair[1]) > bound {
				t.Errorf("the %s is %g, by differences %g\n%v", what, pair[1], pair[0], g)
			}
		}
		compared++
	}
	if compared < 50 {
		t.Errorf("only %d graphs were compared", compared)
	}
}

// hasConstants reports whether something changes that is a constant to gradients.
func (g *Graph) hasConstants() bool {
	for _, n := range g.Nodes {
		if kind := kindOf[n.Op]; n.Op == "Detach" || len(kind.constants) == len(allInputs) || n.Op != "TopK" && len(kind.constantOutputs) > 0 {
			return true
		}
	}
	return false
}
