package graphtest

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// entropy is what a cross-entropy is told.
type entropy struct {
	Smoothing float64
	Ignored   int // a target that does not count, −1 for none
	Reduction kernels.Reduction
	Transpose bool
}

func (d *drawer) entropy() entropy {
	p := entropy{Ignored: -1, Reduction: kernels.Reduction(d.IntN(3)), Transpose: d.IntN(2) == 0}
	if d.IntN(3) == 0 {
		p.Smoothing = 0.1
	}
	if d.IntN(3) == 0 {
		p.Ignored = 0
	}
	return p
}

func (p entropy) ignore() *int {
	if p.Ignored < 0 {
		return nil
	}
	return &p.Ignored
}

// of is the loss of logits.
func (p entropy) of(logits array, targets []int, shape []int) array {
	var losses []jet
	count := 0.0
	for i, row := range logits.rows() {
		if targets[i] == p.Ignored {
			losses = append(losses, jet{})
			continue
		}
		count++
		_, lse := softmax(row)
		loss := lse.sub(row[targets[i]]).times(1 - p.Smoothing)
		for _, x := range row {
			loss = loss.add(lse.sub(x).times(p.Smoothing / float64(len(row))))
		}
		losses = append(losses, loss)
	}
	if p.Reduction == kernels.NoReduction {
		return array{shape: shape, x: losses}
	}
	total := sum(losses)
	if p.Reduction == kernels.MeanReduction && count > 0 {
		total = total.times(1 / count)
	}
	return array{shape: shape, x: []jet{total}}
}

func init() {
	register(
		kind{name: "SoftmaxCrossEntropy", constants: []int{1},
			draw: func(d *drawer) *Node {
				x, ok := d.pick(func(shape []int) bool { return len(shape) > 1 })
				if !ok {
					return nil
				}
				shape, p := d.shape(x), d.entropy()
				rows := shape[:len(shape)-1]
				ids := d.ids(0, shape[len(shape)-1], nil, rows...)
				var to []int
				if p.Reduction == kernels.NoReduction {
					to = rows
				}
				return &Node{Args: []Ref{x, ids}, Shapes: [][]int{to}, P: p}
			},
			build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
				p := n.P.(entropy)
				return one(ops.SoftmaxCrossEntropy(in[0], in[1], ops.CrossEntropyOptions{IgnoreIndex: p.ignore(), LabelSmoothing: p.Smoothing, Reduction: p.Reduction}))
			},
			eval: func(_ *evaluation, n *Node, in []array) []array {
				return []array{n.P.(entropy).of(in[0], in[1].ints, n.Shapes[0])}
			},
		},
		kind{name: "LinearCrossEntropy", constants: []int{2},
			draw: func(d *drawer) *Node {
				x, ok := d.pick(func(shape []int) bool { return len(shape) > 1 })
				if !ok {
					return nil
				}
				shape, p, classes := d.shape(x), d.entropy(), 2+d.IntN(3)
				p.Reduction %= kernels.NoReduction
				weight := []int{classes, shape[len(shape)-1]}
				if p.Transpose {
					weight[0], weight[1] = weight[1], weight[0]
				}
				ids := d.ids(0, classes, nil, shape[:len(shape)-1]...)
				return &Node{Args: []Ref{x, d.weight(weight...), ids}, Shapes: [][]int{nil}, P: p}
			},
			build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
				p := n.P.(entropy)
				return one(ops.LinearCrossEntropy(in[0], in[1], in[2], ops.LinearCrossEntropyOptions{IgnoreIndex: p.ignore(), LabelSmoothing: p.Smoothing, Reduction: p.Reduction, WeightTransposed: p.Transpose}))
			},
			eval: func(_ *evaluation, n *Node, in []array) []array {
				p, x, w := n.P.(entropy), in[0], in[1]
				if !p.Transpose {
					w = w.transposed()
				}
				return []array{p.of(matmul(x.reshaped(size(x.shape)/x.last(), x.last()), w), in[2].ints, n.Shapes[0])}
			},
		},
		compared("nn.MSE", nn.Tensor.MSE, func(_ *evaluation, x jet) jet { return x.mul(x) }),
		compared("nn.L1", nn.Tensor.L1, func(e *evaluation, x jet) jet {
			e.edge(x.x, 0)
			return abs(x)
		}),
		compared("nn.Huber", func(x, targets nn.Tensor) nn.Tensor { return x.Huber(targets, 0.5) }, func(e *evaluation, x jet) jet {
			if x.x == 0 {
				e.margin = 0 // it is made of |x|, whose slope is 0 there, and so is its curve
			}
			if e.edge(abs(x).x, 0.5); abs(x).x <= 0.5 {
				return x.mul(x).times(0.5)
			}
			return abs(x).plus(-0.25).times(0.5)
		}),
		experts,
	)
}

// compared is a loss that is a mean of functions of differences.
func compared(name string, op func(x, targets nn.Tensor) nn.Tensor, f func(e *evaluation, x jet) jet) kind {
	return kind{name: name, weight: 2,
		draw: func(d *drawer) *Node {
			x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
			if !ok {
				return nil
			}
			return &Node{Args: []Ref{x, d.like(x)}, Shapes: [][]int{nil}}
		},
		build: func(b *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			x := b.tensors(in)
			return b.nodes(op(x[0], x[1]))
		},
		eval: func(e *evaluation, _ *Node, in []array) []array {
			y := in[0].with(in[1], func(x, target jet) jet { return f(e, x.sub(target)) })
			return []array{{x: []jet{sum(y.x).times(1 / float64(len(y.x)))}}}
		},
	}
}

// experts is a mixture of linear layers: a router's weights of the chosen, and their sum.
var experts = kind{name: "Experts", weight: 4,
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) == 2 || len(shape) == 3 })
		if !ok {
			return nil
		}
		shape, count, out := d.shape(x), 2+d.IntN(2), 1+d.IntN(3)
		in := shape[len(shape)-1]
		o := kernels.RouterOptions{Chosen: 1 + d.IntN(2), Normalize: d.IntN(2) == 0, Scores: kernels.RouterScores(d.IntN(2))}
		args := []Ref{x, d.weight(in, count), d.weight(count, in, out), d.weight(count, out)}
		return &Node{Args: args, Shapes: [][]int{{size(shape) / in, out}}, P: o}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		logits, err := ops.Linear(in[0], in[1], nil, ops.LinearOptions{})
		if err != nil {
			return nil, err
		}
		weights, a, err := ops.Route(logits, nil, n.P.(kernels.RouterOptions))
		if err != nil {
			return nil, err
		}
		sent, err := ops.Dispatch(in[0], a)
		if err != nil {
			return nil, err
		}
		made, err := ops.GroupedLinear(sent, in[2], in[3], a)
		if err != nil {
			return nil, err
		}
		return one(ops.Combine(made, weights, a))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		o, x, out := n.P.(kernels.RouterOptions), in[0].reshaped(size(in[0].shape)/in[0].last(), in[0].last()), n.Shapes[0][1]
		y := newArray(n.Shapes[0]...)
		for t, row := range matmul(x, in[1]).rows() {
			scores, _ := softmax(row)
			if o.Scores == kernels.SigmoidScores {
				for i, x := range row {
					scores[i] = x.sigmoid()
				}
			}
			var chosen []int
			rest := slices.Clone(scores)
			for range o.Chosen {
				at := largest(e, rest)
				chosen = append(chosen, at)
				rest[at] = number(-1)
			}
			var total jet
			for _, i := range chosen {
				total = total.add(scores[i])
			}
			for _, i := range chosen {
				weight := scores[i]
				if o.Normalize {
					weight = weight.div(total)
				}
				for c := range out {
					z := in[3].x[i*out+c]
					for j, x := range x.rows()[t] {
						z = z.add(x.mul(in[2].x[(i*in[2].shape[1]+j)*out+c]))
					}
					y.x[t*out+c] = y.x[t*out+c].add(weight.mul(z))
				}
			}
		}
		return []array{y}
	},
}
