package graphtest

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// layer is what a linear layer, or several, are told. Inputs of the node are x, and for each layer
// a weight, and those of bias, A, B and In that it has.
type layer struct {
	Outs       []int
	Biases     []bool
	Ranks      []int // of changes, 0 for none
	Ins        []bool
	Packed     []bool // weights that are packed, (out, in)
	Activation kernels.Activation
}

const changeScale = 0.5

// drawLayer draws layers of x to some sizes. It returns the other inputs.
func (d *drawer) layer(x Ref, changes bool, outs ...int) (layer, []Ref) {
	p := layer{Outs: outs}
	shape := d.shape(x)
	in := shape[len(shape)-1]
	var refs []Ref
	for _, out := range outs {
		w, packed := d.layerWeight(in, out)
		refs = append(refs, w)
		bias, rank, own := d.IntN(2) == 0, 0, false
		if bias {
			refs = append(refs, d.weight(out))
		}
		if changes && d.IntN(2) == 0 {
			rank = 1 + d.IntN(2)
			if refs = append(refs, d.weight(in, rank), d.weight(rank, out)); d.IntN(2) == 0 {
				own = true
				refs = append(refs, d.like(x))
			}
		}
		p.Biases, p.Ranks, p.Ins, p.Packed = append(p.Biases, bias), append(p.Ranks, rank), append(p.Ins, own), append(p.Packed, packed)
	}
	return p, refs
}

// layerWeight draws the weight of a layer, which may be kept in less memory than it is computed
// with. If it is packed, it is (out, in).
func (d *drawer) layerWeight(in, out int) (w Ref, packed bool) {
	if d.IntN(4) > 0 || d.Empty {
		return d.weight(in, out), false
	}
	switch of, ok := d.keptType(in); {
	case !ok:
		return d.weight(in, out), false
	case ops.IsPacked(of):
		return d.kept(of, out, in), true
	default:
		return d.kept(of, in, out), false
	}
}

// asLayer is the weight of a layer of one that is packed, or of one of float64 that stands for it.
func asLayer(w node) (node, error) {
	if ops.IsPacked(w.Dtype()) {
		return w, nil
	}
	return ops.Permute(w, 1, 0)
}

// inputs sorts what a node reads by layer.
func (p layer) inputs(rest gorgonia.Nodes) (weights, biases gorgonia.Nodes, changes []ops.Change, err error) {
	take := func() node {
		n := rest[0]
		rest = rest[1:]
		return n
	}
	for i := range p.Outs {
		w := take()
		if p.Packed[i] {
			if w, err = asLayer(w); err != nil {
				return nil, nil, nil, err
			}
		}
		weights, biases, changes = append(weights, w), append(biases, nil), append(changes, ops.Change{})
		if p.Biases[i] {
			biases[i] = take()
		}
		if p.Ranks[i] > 0 {
			changes[i] = ops.Change{A: take(), B: take(), Scale: changeScale}
			if p.Ins[i] {
				changes[i].In = take()
			}
		}
	}
	if !slices.ContainsFunc(p.Ranks, func(rank int) bool { return rank > 0 }) {
		changes = nil
	}
	return weights, biases, changes, nil
}

// each computes layers of x, the inputs of which follow each other in rest.
func (p layer) each(x array, rest []array) (list []array, left []array) {
	take := func() array {
		a := rest[0]
		rest = rest[1:]
		return a
	}
	rows := func(x array) array { return x.reshaped(size(x.shape)/x.last(), x.last()) }
	for i, out := range p.Outs {
		w := take()
		if p.Packed[i] {
			w = w.transposed()
		}
		y := matmul(rows(x), w)
		if p.Biases[i] {
			y = y.with(take(), jet.add)
		}
		if p.Ranks[i] > 0 {
			a, b, in := take(), take(), x
			if p.Ins[i] {
				in = take()
			}
			y = y.with(matmul(matmul(rows(in), a), b).each(func(x jet) jet { return x.times(changeScale) }), jet.add)
		}
		list = append(list, y.each(activations[p.Activation]).reshaped(withLast(x.shape, out)...))
	}
	return list, rest
}

func (e *evaluation) activated(p layer, in []array) {
	if p.Activation == kernels.ReLU || p.Activation == kernels.ReLUSquared {
		p.Activation = kernels.NoActivation
		z, _ := p.each(in[0], in[1:])
		e.edges(z)
	}
}

func (d *drawer) features() (Ref, bool) {
	if d.IntN(8) == 0 && !d.Empty {
		shape := []int{1 + d.IntN(2), 1 + d.IntN(3), d.wide()}
		return d.floatsOf(shape[d.IntN(2):]...), true
	}
	return d.pick(func(shape []int) bool { return len(shape) > 0 && shape[len(shape)-1] > 0 })
}

// hidden draws how many features are between two layers.
func (d *drawer) hidden() int {
	if d.IntN(8) == 0 {
		return d.wide()
	}
	return 1 + d.IntN(5)
}

var linear = kind{name: "Linear", weight: 14, half: true, empty: true,
	draw: func(d *drawer) *Node {
		x, ok := d.features()
		if !ok {
			return nil
		}
		out := 1 + d.IntN(6)
		p, rest := d.layer(x, d.IntN(3) == 0, out)
		if d.IntN(2) == 0 {
			p.Activation = kernels.Activation(d.IntN(len(activations)))
		}
		return &Node{Args: append([]Ref{x}, rest...), Shapes: [][]int{withLast(d.shape(x), out)}, P: p}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p := n.P.(layer)
		weights, biases, changes, err := p.inputs(in[1:])
		if err != nil {
			return nil, err
		}
		o := ops.LinearOptions{Activation: p.Activation}
		if changes != nil {
			o.Change = changes[0]
		}
		return one(ops.Linear(in[0], weights[0], biases[0], o))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		p := n.P.(layer)
		e.activated(p, in)
		list, _ := p.each(in[0], in[1:])
		return list
	},
}

func init() {
	several := func(name string, sideBySide bool) kind {
		return kind{name: name, weight: 6, half: true,
			draw: func(d *drawer) *Node {
				x, ok := d.features()
				if !ok {
					return nil
				}
				var outs []int
				var shapes [][]int
				total := 0
				for range 1 + d.IntN(3) {
					out := 1 + d.IntN(4)
					outs, shapes, total = append(outs, out), append(shapes, withLast(d.shape(x), out)), total+out
				}
				if sideBySide {
					shapes = [][]int{withLast(d.shape(x), total)}
				}
				p, rest := d.layer(x, d.IntN(3) == 0, outs...)
				return &Node{Args: append([]Ref{x}, rest...), Shapes: shapes, P: p}
			},
			build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
				weights, biases, changes, err := n.P.(layer).inputs(in[1:])
				if err != nil {
					return nil, err
				}
				if sideBySide {
					return one(ops.LinearsSideBySide(in[0], weights, biases, changes...))
				}
				return ops.Linears(in[0], weights, biases, changes...)
			},
			eval: func(_ *evaluation, n *Node, in []array) []array {
				list, _ := n.P.(layer).each(in[0], in[1:])
				if !sideBySide {
					return list
				}
				y := newArray(n.Shapes[0]...)
				y.x = nil
				for i := range size(y.shape) / y.last() {
					for _, part := range list {
						y.x = append(y.x, part.rows()[i]...)
					}
				}
				return []array{y}
			},
		}
	}
	register(linear, several("Linears", false), several("LinearsSideBySide", true), matMul, mlp, swiGLUMLP)
	for _, rms := range []bool{false, true} {
		register(norm(rms, false, false), norm(rms, true, false), norm(rms, true, true), statistics(rms))
	}
}

// keptFactor draws a second factor, of so many rows, that is kept in less memory than it is
// computed with, or none.
func (d *drawer) keptFactor(rows int, transposed bool) (Ref, bool) {
	shape := []int{rows, d.wide()}
	if transposed {
		shape = []int{1 + d.IntN(4), rows}
	}
	of, ok := d.keptType(shape[1])
	if !ok || d.Empty || d.IntN(4) > 0 {
		return Ref{}, false
	}
	return d.kept(of, shape[0], shape[1]), true
}

var matMul = kind{name: "MatMul", weight: 10, half: true, empty: true,
	draw: func(d *drawer) *Node {
		a, ok := d.pick(func(shape []int) bool { return len(shape) > 1 })
		if d.IntN(8) == 0 && !d.Empty {
			a, ok = d.floatsOf(1+d.IntN(3), d.wide()), true
		}
		if !ok {
			return nil
		}
		o := ops.MatMulOptions{TransposeA: d.IntN(4) == 0, TransposeB: d.IntN(3) == 0}
		turn := func(shape []int, is bool) []int {
			shape = slices.Clone(shape)
			if is {
				n := len(shape)
				shape[n-1], shape[n-2] = shape[n-2], shape[n-1]
			}
			return shape
		}
		left := turn(d.shape(a), o.TransposeA)
		n := len(left)
		fits := func(shape []int) bool {
			return len(shape) > 1 && turn(shape, o.TransposeB)[len(shape)-2] == left[n-1] && broadcast(left[:n-2], shape[:len(shape)-2]) != nil
		}
		b, ok := d.pick(fits)
		if kept, is := d.keptFactor(left[n-1], o.TransposeB); is && !o.TransposeA {
			b, ok = kept, true
		}
		if !ok {
			columns := 1 + d.IntN(4)
			shape := []int{left[n-1], columns}
			if n > 2 && d.IntN(2) == 0 {
				shape = append(slices.Clone(left[:n-2]), shape...)
			}
			b = d.input(turn(shape, o.TransposeB)...)
		}
		if d.Nodes[b.Node].Half != d.half && d.Nodes[b.Node].Op != "kept" {
			return nil
		}
		right := turn(d.shape(b), o.TransposeB)
		shape := append(broadcast(left[:n-2], right[:len(right)-2]), left[n-2], right[len(right)-1])
		return &Node{Args: []Ref{a, b}, Shapes: [][]int{shape}, P: o}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.MatMul(in[0], in[1], n.P.(ops.MatMulOptions)))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		a, b, o := in[0], in[1], n.P.(ops.MatMulOptions)
		if o.TransposeA {
			a = a.transposed()
		}
		if o.TransposeB {
			b = b.transposed()
		}
		return []array{matmul(a, b)}
	},
}

var mlp = kind{name: "MLP", half: true,
	draw: func(d *drawer) *Node {
		x, ok := d.features()
		if !ok {
			return nil
		}
		shape, hidden, out := d.shape(x), d.hidden(), 1+d.IntN(4)
		var p gated
		list := []Ref{x}
		for k, to := range []*layer{&p.Up, &p.Down} {
			sizes := [][]int{{shape[len(shape)-1], hidden}, {hidden, out}}[k]
			w, packed := d.layerWeight(sizes[0], sizes[1])
			*to = layer{Outs: sizes[1:], Biases: []bool{d.IntN(3) > 0}, Ranks: []int{0}, Ins: []bool{false}, Packed: []bool{packed}}
			if list = append(list, w); to.Biases[0] {
				list = append(list, d.weight(sizes[1]))
			}
		}
		p.Up.Activation = kernels.Activation(d.IntN(len(activations)))
		return &Node{Args: list, Shapes: [][]int{withLast(shape, out)}, P: p}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p := n.P.(gated)
		w, b, _, err := p.all().inputs(in[1:])
		if err != nil {
			return nil, err
		}
		return one(ops.MLP(in[0], w[0], b[0], w[1], b[1], ops.MLPOptions{Activation: p.Up.Activation}))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		p := n.P.(gated)
		e.activated(p.Up, in)
		h, rest := p.Up.each(in[0], in[1:])
		y, _ := p.Down.each(h[0], rest)
		return y
	},
}

// gated is what MLP and SwiGLUMLP are told.
type gated struct{ Up, Down layer }

// all are the layers of both.
func (p gated) all() layer {
	up, down := p.Up, p.Down
	return layer{Outs: slices.Concat(up.Outs, down.Outs), Biases: slices.Concat(up.Biases, down.Biases),
		Ranks: slices.Concat(up.Ranks, down.Ranks), Ins: slices.Concat(up.Ins, down.Ins), Packed: slices.Concat(up.Packed, down.Packed)}
}

var swiGLUMLP = kind{name: "SwiGLUMLP", half: true,
	draw: func(d *drawer) *Node {
		x, ok := d.features()
		if !ok {
			return nil
		}
		hidden, out, changes := d.hidden(), 1+d.IntN(4), d.IntN(3) == 0
		up, rest := d.layer(x, changes, hidden, hidden)
		w, packed := d.layerWeight(hidden, out)
		down := layer{Outs: []int{out}, Biases: []bool{d.IntN(2) == 0}, Ranks: []int{0}, Ins: []bool{false}, Packed: []bool{packed}}
		if rest = append(append([]Ref{x}, rest...), w); down.Biases[0] {
			rest = append(rest, d.weight(out))
		}
		if changes && d.IntN(2) == 0 {
			down.Ranks[0] = 1
			rest = append(rest, d.weight(hidden, 1), d.weight(1, out))
		}
		return &Node{Args: rest, Shapes: [][]int{withLast(d.shape(x), out)}, P: gated{up, down}}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		w, b, changes, err := n.P.(gated).all().inputs(in[1:])
		if err != nil {
			return nil, err
		}
		return one(ops.SwiGLUMLP(in[0], w[0], w[1], w[2], ops.SwiGLUMLPBiases{Gate: b[0], Up: b[1], Down: b[2]}, changes...))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		p := n.P.(gated)
		up, rest := p.Up.each(in[0], in[1:])
		h := up[0].with(up[1], func(gate, up jet) jet { return silu(gate).mul(up) })
		y, _ := p.Down.each(h, rest)
		return y
	},
}

// normed says which of gamma and beta a norm has.
type normed struct{ Gamma, Beta bool }

// normalise is what norms do to a row, with the mean and the reciprocal of the spread.
func normalise(rms bool, row, gamma, beta []jet) (y []jet, mean, rstd jet) {
	n := 1 / float64(len(row))
	if !rms {
		mean = sum(row).times(n)
	}
	var square jet
	for _, x := range row {
		square = square.add(x.sub(mean).mul(x.sub(mean)).times(n))
	}
	rstd = number(1).div(square.plus(1e-5).sqrt())
	for i, x := range row {
		z := x.sub(mean).mul(rstd)
		if gamma != nil {
			z = z.mul(gamma[i])
		}
		if beta != nil {
			z = z.add(beta[i])
		}
		y = append(y, z)
	}
	return y, mean, rstd
}

func (p normed) split(in []array) (gamma, beta []jet) {
	if p.Gamma {
		gamma, in = in[0].x, in[1:]
	}
	if p.Beta {
		beta = in[0].x
	}
	return gamma, beta
}

// norm is a norm of one tensor, or of the sum of two, which may be a result too.
func norm(rms, ofSum, givesSum bool) kind {
	name := map[bool]string{false: "LayerNorm", true: "RMSNorm"}[rms]
	switch {
	case givesSum:
		name = "Add" + name
	case ofSum:
		name += "OfSum"
	}
	return kind{name: name, weight: 6, half: true,
		draw: func(d *drawer) *Node {
			x, ok := d.features()
			if !ok {
				return nil
			}
			args, shape := []Ref{x}, d.shape(x)
			if ofSum {
				args = append(args, d.like(x))
			}
			var p normed
			if p.Gamma = d.IntN(3) > 0; p.Gamma {
				args = append(args, d.weight(shape[len(shape)-1]))
			}
			if p.Beta = !rms && d.IntN(2) == 0; p.Beta {
				args = append(args, d.weight(shape[len(shape)-1]))
			}
			shapes := [][]int{shape}
			if givesSum {
				shapes = [][]int{shape, shape}
			}
			return &Node{Args: args, Shapes: shapes, P: p}
		},
		build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			p, o := n.P.(normed), ops.NormOptions{}
			x, rest := in[0], in[1:]
			var other, gamma, beta node
			if ofSum {
				other, rest = rest[0], rest[1:]
			}
			if p.Gamma {
				gamma, rest = rest[0], rest[1:]
			}
			if p.Beta {
				beta = rest[0]
			}
			switch name {
			case "LayerNorm":
				return one(ops.LayerNorm(x, gamma, beta, o))
			case "RMSNorm":
				return one(ops.RMSNorm(x, gamma, o))
			case "LayerNormOfSum":
				return one(ops.LayerNormOfSum(x, other, gamma, beta, o))
			case "RMSNormOfSum":
				return one(ops.RMSNormOfSum(x, other, gamma, o))
			case "AddLayerNorm":
				return two(ops.AddLayerNorm(x, other, gamma, beta, o))
			}
			return two(ops.AddRMSNorm(x, other, gamma, o))
		},
		eval: func(_ *evaluation, n *Node, in []array) []array {
			x, rest := in[0], in[1:]
			if ofSum {
				x, rest = x.with(rest[0], jet.add), rest[1:]
			}
			gamma, beta := n.P.(normed).split(rest)
			y := newArray(x.shape...)
			y.x = nil
			for _, row := range x.rows() {
				normed, _, _ := normalise(rms, row, gamma, beta)
				y.x = append(y.x, normed...)
			}
			if givesSum {
				return []array{x, y}
			}
			return []array{y}
		},
	}
}

// statistics is a norm that gives them too.
func statistics(rms bool) kind {
	outputs := 3
	name := "LayerNormStatistics"
	if rms {
		name, outputs = "RMSNormStatistics", 2
	}
	return kind{name: name, weight: 2, constantOutputs: []int{1, 2},
		draw: func(d *drawer) *Node {
			x, ok := d.features()
			if !ok || len(d.shape(x)) < 2 {
				return nil
			}
			shape := d.shape(x)
			rows := shape[:len(shape)-1]
			return &Node{Args: []Ref{x, d.weight(shape[len(shape)-1])}, Shapes: [][]int{shape, rows, rows}[:outputs], P: normed{Gamma: true}}
		},
		build: func(_ *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			if rms {
				return two(ops.RMSNormStatistics(in[0], in[1], ops.NormOptions{}))
			}
			y, mean, rstd, err := ops.LayerNormStatistics(in[0], in[1], nil, ops.NormOptions{})
			return gorgonia.Nodes{y, mean, rstd}, err
		},
		eval: func(_ *evaluation, n *Node, in []array) []array {
			y, means, spreads := newArray(n.Shapes[0]...), newArray(n.Shapes[1]...), newArray(n.Shapes[1]...)
			y.x = nil
			for i, row := range in[0].rows() {
				normed, mean, rstd := normalise(rms, row, in[1].x, nil)
				y.x = append(y.x, normed...)
				means.x[i], spreads.x[i] = number(mean.x), number(rstd.x)
			}
			if rms {
				return []array{y, spreads}
			}
			return []array{y, means, spreads}
		},
	}
}
