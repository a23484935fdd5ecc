package graphtest

import (
	"errors"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

var slopes = []float64{0.5, -1, 2, 1, -0.3}

func relu(x jet) jet {
	if x.x > 0 {
		return x
	}
	return jet{}
}

func silu(x jet) jet { return x.mul(x.sigmoid()) }

func clamp(x jet, low, high float64) jet {
	switch {
	case x.x > high:
		return number(high)
	case x.x < low:
		return number(low)
	}
	return x
}

func geluTanh(x jet) jet {
	z := x.add(x.mul(x).mul(x).times(0.044715)).times(math.Sqrt(2 / math.Pi))
	return x.mul(z.times(2).sigmoid())
}

func abs(x jet) jet {
	switch {
	case x.x > 0:
		return x
	case x.x < 0:
		return x.times(-1)
	}
	return jet{}
}

// activations are what kernels.Activation lists.
var activations = map[kernels.Activation]func(x jet) jet{
	kernels.NoActivation: func(x jet) jet { return x },
	kernels.GELUTanh:     geluTanh,
	kernels.GELUErf:      func(x jet) jet { return x.mul(x.normal()) },
	kernels.SiLU:         silu,
	kernels.ReLUSquared:  func(x jet) jet { return relu(x).mul(relu(x)) },
	kernels.ReLU:         relu,
	kernels.QuickGELU:    func(x jet) jet { return x.mul(x.times(1.702).sigmoid()) },
	kernels.Sigmoid:      jet.sigmoid,
	kernels.Tanh:         jet.tanh,
}

// edges notes how far elements are from 0, where a function has an edge.
func (e *evaluation) edges(in []array) {
	for _, a := range in {
		for _, x := range a.x {
			e.edge(x.x, 0)
		}
	}
}

// notScalar draws something else than scalars.
func notScalar(draw func(d *drawer) *Node) func(d *drawer) *Node {
	return func(d *drawer) *Node {
		n := draw(d)
		if n != nil && len(n.Shapes[0]) == 0 {
			return nil
		}
		return n
	}
}

func init() {
	for kind, f := range inOrder(activations) {
		k := ofElements(kind.String(), func(x node) (node, error) { return ops.Activate(x, kind) }, nil)
		k.weight = 2
		k.draw = notScalar(k.draw)
		k.eval = func(e *evaluation, _ *Node, in []array) []array {
			if kind == kernels.ReLU || kind == kernels.ReLUSquared {
				e.edges(in)
			}
			return []array{in[0].each(f)}
		}
		register(k)
	}
	identity := func(x jet) jet { return x }
	edged := func(k kind) kind {
		eval := k.eval
		k.eval = func(e *evaluation, n *Node, in []array) []array {
			e.edges(in)
			return eval(e, n, in)
		}
		return k
	}
	detach := ofElements("Detach", ops.Detach, func(x jet) jet { return number(x.x) })
	detach.constants = []int{0}
	register(
		ofElements("Exp", ops.Exp, jet.exp), ofElements("Log", ops.Log, jet.log), ofElements("Sqrt", ops.Sqrt, jet.sqrt),
		edged(ofElements("Abs", ops.Abs, abs)), detach,
		withNumber("Scale", ops.Scale, slopes, jet.times), withNumber("AddScalar", ops.AddScalar, slopes, jet.plus),
		withNumber("SoftCap", ops.SoftCap, []float64{1, 2.5}, func(x jet, cap float64) jet { return x.times(1 / cap).tanh().times(cap) }),
		binary("Add", ops.Add, jet.add), binary("Mul", ops.Mul, jet.mul), binary("Div", ops.Div, jet.div),
		binary("SwiGLU", ops.SwiGLU, func(gate, up jet) jet { return silu(gate).mul(up) }),
		broadcasting("nn.Add", nn.Tensor.Add, jet.add), broadcasting("nn.Mul", nn.Tensor.Mul, jet.mul), broadcasting("nn.Sub", nn.Tensor.Sub, jet.sub),
		ofRows("Softmax", ops.Softmax, func(row []jet) []jet {
			p, _ := softmax(row)
			return p
		}),
		ofRows("LogSoftmax", ops.LogSoftmax, func(row []jet) []jet {
			y := make([]jet, len(row))
			_, lse := softmax(row)
			for i, x := range row {
				y[i] = x.sub(lse)
			}
			return y
		}),
		halves("SwiGLUHalves", ops.SwiGLUHalves, func(row []jet, i int) jet { return silu(row[i]).mul(row[i+len(row)/2]) }),
		halves("ClampedGate", func(x node) (node, error) { return ops.ClampedGate(x, kernels.ClampedGate{Slope: 1.5, Limit: 1}) },
			func(row []jet, i int) jet {
				g, u := clamp(row[2*i], math.Inf(-1), 1), clamp(row[2*i+1], -1, 1)
				return u.plus(1).mul(g).mul(g.times(1.5).sigmoid())
			}),
		ofElements("Cast", nil, identity), dropout,
	)
	registerCast()
	registerOwn()
}

// registerCast completes the kind of casts, which turn to 16 bits and back.
func registerCast() {
	kindOf["Cast"].build = func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		if !b.hasHalf() {
			return in, nil
		}
		if n.Half {
			return one(ops.Cast(in[0], b.half))
		}
		return one(ops.Cast(in[0], b.dtype))
	}
	kindOf["Cast"].draw = func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
		if !ok || !d.casts {
			return nil
		}
		d.half = !d.half
		return &Node{Args: []Ref{x}, Shapes: [][]int{d.shape(x)}}
	}
}

// registerOwn adds Gorgonia's own ops.
func registerOwn() {
	own := func(name string, op func(a, b node) (node, error), f func(a, b jet) jet) {
		k := binary("gorgonia."+name, op, f)
		k.gorgonia, k.half, k.empty, k.draw = true, false, false, notScalar(k.draw)
		k.weight = 3
		register(k)
	}
	own("Add", gorgonia.Add, jet.add)
	own("Sub", gorgonia.Sub, jet.sub)
	own("HadamardProd", gorgonia.HadamardProd, jet.mul)
	type unaryOp struct {
		op func(x node) (node, error)
		f  func(x jet) jet
	}
	for name, c := range inOrder(map[string]unaryOp{"Square": {gorgonia.Square, func(x jet) jet { return x.mul(x) }}, "Tanh": {gorgonia.Tanh, jet.tanh}, "Neg": {gorgonia.Neg, func(x jet) jet { return x.times(-1) }}, "Exp": {gorgonia.Exp, jet.exp}}) {
		k := ofElements("gorgonia."+name, c.op, c.f)
		k.gorgonia, k.half, k.empty, k.weight, k.draw = true, false, false, 2, notScalar(k.draw)
		register(k)
	}
}

// halves is an op that makes n elements of 2n.
func halves(name string, op func(x node) (node, error), f func(row []jet, i int) jet) kind {
	return kind{name: name, half: true,
		draw: func(d *drawer) *Node {
			x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 && shape[len(shape)-1]%2 == 0 && shape[len(shape)-1] > 0 })
			if !ok {
				return nil
			}
			return &Node{Args: []Ref{x}, Shapes: [][]int{withLast(d.shape(x), d.shape(x)[len(d.shape(x))-1]/2)}}
		},
		build: func(_ *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) { return one(op(in[0])) },
		eval: func(e *evaluation, n *Node, in []array) []array {
			if name == "ClampedGate" {
				for i, x := range in[0].x {
					e.edge(x.x, 1)
					if i%2 == 1 {
						e.edge(x.x, -1)
					}
				}
			}
			y := newArray(n.Shapes[0]...)
			y.x = y.x[:0]
			for _, row := range in[0].rows() {
				for i := range len(row) / 2 {
					y.x = append(y.x, f(row, i))
				}
			}
			return []array{y}
		},
	}
}

// drop is what dropout is told.
type drop struct {
	P    float64
	Seed uint64
}

func (d drop) at(e *evaluation) kernels.Dropout {
	return kernels.Dropout{P: d.P, Seed: d.Seed, Step: e.step}
}

var dropout = kind{name: "Dropout", half: true, empty: true,
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return true })
		if !ok || len(d.shape(x)) == 0 {
			return nil
		}
		return &Node{Args: []Ref{x}, Shapes: [][]int{d.shape(x)}, P: drop{0.4, d.Uint64()}}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p, ok := n.P.(drop)
		if !ok {
			return nil, errors.New("no drop")
		}
		return one(ops.Dropout(in[0], ops.DropoutOptions{Drop: ops.Drop{P: p.P, Seed: p.Seed}}))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		d := n.P.(drop).at(e)
		y := newArray(in[0].shape...)
		for i, x := range in[0].x {
			if d.Keep(0, i/in[0].last(), i%in[0].last()) {
				y.x[i] = x.times(d.Scale())
			}
		}
		return []array{y}
	},
}

// withLast is a shape with another last axis.
func withLast(shape []int, n int) []int {
	return append(append([]int{}, shape[:len(shape)-1]...), n)
}
