package graphtest

import (
	"math"
	"math/rand/v2"
)

// evaluation computes a graph by its definition, with its derivatives along two random directions
// of all trained inputs.
type evaluation struct {
	g      *Graph
	at     int    // the run, each of which has inputs of its own
	step   uint32 // of dropout
	values [][]array

	margin float64    // how near an edge of a function the values come
	noise  *rand.Rand // rounds results, if it is set
	half   float64    // the unit of rounding to 16 bits
	moved  [2]float64 // how far inputs are moved along the directions
}

func newEvaluation(g *Graph, run int) *evaluation {
	return &evaluation{g: g, at: run, step: stepOf(run), margin: math.Inf(1)}
}

func stepOf(run int) uint32 { return uint32(5 + run) }

// run computes what there is no value of.
func (e *evaluation) run() {
	for i := len(e.values); i < len(e.g.Nodes); i++ {
		n := &e.g.Nodes[i]
		if n.isInput() {
			e.values = append(e.values, []array{e.input(n)})
			continue
		}
		var in []array
		for _, arg := range n.Args {
			in = append(in, e.rounded(e.g.Nodes[arg.Node].Half, e.values[arg.Node][arg.Out]))
		}
		out := kindOf[n.Op].eval(e, n, in)
		for i := range out {
			out[i] = e.rounded(n.Half, out[i])
		}
		e.values = append(e.values, out)
	}
}

// edge notes that something is decided by which of two numbers is larger.
func (e *evaluation) edge(x, at float64) {
	if d := math.Abs(x - at); d > 0 {
		e.margin = min(e.margin, d)
	}
}

// rounded moves values and slopes by about what rounding them would: those of a result, and those
// that each of its readers reads, whose gradients are rounded before they are added.
func (e *evaluation) rounded(half bool, a array) array {
	if e.noise == nil {
		return a
	}
	u := 0x1p-23
	if half {
		u = e.half
	}
	by := func(y float64) float64 { return y * (1 + u*(2*e.noise.Float64()-1)) }
	moved := array{shape: a.shape, ints: a.ints}
	for _, x := range a.x {
		moved.x = append(moved.x, jet{by(x.x), by(x.a), by(x.b), by(x.c)})
	}
	return moved
}

// input is the value of an input in the evaluation's run.
func (e *evaluation) input(n *Node) array {
	a := array{shape: n.Shapes[0]}
	if n.Op == "ids" {
		a.ints = e.g.integers(n, e.at)
		return a
	}
	first, second := e.g.direction(n, 1), e.g.direction(n, 2)
	for i, x := range e.g.floats(n, e.at) {
		y := number(x)
		if n.Trained {
			y = jet{x: x + e.moved[0]*first[i] + e.moved[1]*second[i], a: first[i], b: second[i]}
		}
		a.x = append(a.x, y)
	}
	return a
}

// random numbers of a node, of a purpose.
func (g *Graph) random(n *Node, of uint64) *rand.Rand {
	return rand.New(rand.NewPCG(g.Seed, uint64(n.ID)<<8|of))
}

// direction is the part of a random direction that is an input's.
func (g *Graph) direction(n *Node, of uint64) []float64 {
	r := g.random(n, of)
	list := make([]float64, len(n.Data))
	for i := range list {
		list[i] = r.NormFloat64()
	}
	return list
}

// floats is the value of an input in a run.
func (g *Graph) floats(n *Node, run int) []float64 {
	if n.Op == "kept" {
		return asKept(n, g.unrounded(n, run))
	}
	return g.unrounded(n, run)
}

// unrounded is the value of an input in a run, of weights that are kept in less memory before they
// are.
func (g *Graph) unrounded(n *Node, run int) []float64 {
	r := g.random(n, 16+uint64(run))
	list := make([]float64, len(n.Data))
	for i, x := range n.Data {
		if list[i] = x; run > 0 {
			list[i] = float64(float32(x + 0.05*r.NormFloat64()))
		}
	}
	return list
}

// integers is the same of an input of integers.
func (g *Graph) integers(n *Node, run int) []int {
	list := make([]int, len(n.IDs))
	for i, id := range n.IDs {
		list[i] = n.Least + (id-n.Least+run*(i+1))%(n.Bound-n.Least)
	}
	return list
}

// weights are those of a loss in the cost, nil for a sum or a mean.
func (g *Graph) weights(r Ref) []float64 {
	n := &g.Nodes[r.Node]
	random := g.random(n, 128+uint64(r.Out))
	list := make([]float64, size(g.shape(r)))
	for i := range list {
		list[i] = float64(float32(random.NormFloat64()))
	}
	if len(g.Losses) == 1 && len(g.shape(r)) == 0 {
		return []float64{1}
	}
	return list
}

// cost is the cost of what was computed, and the sum of its terms' sizes.
func (e *evaluation) cost() (total, terms jet) {
	for _, r := range e.g.Losses {
		w := e.g.weights(r)
		for i, x := range e.values[r.Node][r.Out].x {
			x = x.times(w[i])
			total = total.add(x)
			terms = terms.add(jet{math.Abs(x.x), math.Abs(x.a), math.Abs(x.b), math.Abs(x.c)})
		}
	}
	return total, terms
}
