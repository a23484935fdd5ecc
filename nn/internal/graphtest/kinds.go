package graphtest

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
)

// kind is an op that graphs are drawn of: how it is drawn, made and defined.
type kind struct {
	name            string
	weight          int   // how often it is drawn; 0 counts as 4, and a negative one is none
	half            bool  // it takes 16 bits
	empty           bool  // it takes axes without elements
	gorgonia        bool  // it is Gorgonia's own, which may work in place
	constants       []int // the arguments that get no gradient
	constantOutputs []int

	draw  func(d *drawer) *Node // nil where nothing fits
	build func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error)
	eval  func(e *evaluation, n *Node, in []array) []array
}

// kinds are all ops, kindOf by name.
var (
	kinds  []*kind
	kindOf = map[string]*kind{"input": {}, "ids": {}, "kept": {}}
)

func register(list ...kind) {
	for _, k := range list {
		if k.weight == 0 {
			k.weight = 4
		}
		kinds = append(kinds, &k)
		kindOf[k.name] = &k
	}
}

// inOrder goes through a map in the order of its keys.
func inOrder[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

type node = *gorgonia.Node

func one(n node, err error) (gorgonia.Nodes, error) { return gorgonia.Nodes{n}, err }

func two(a, b node, err error) (gorgonia.Nodes, error) { return gorgonia.Nodes{a, b}, err }

// tensors are nodes as nn has them.
func (b *builder) tensors(in gorgonia.Nodes) (list []nn.Tensor) {
	for _, n := range in {
		list = append(list, b.scope.Tensor(n, nil))
	}
	return list
}

func (b *builder) nodes(list ...nn.Tensor) (nodes gorgonia.Nodes, err error) {
	for _, x := range list {
		nodes = append(nodes, x.Node())
	}
	return nodes, b.scope.Err()
}

// unary is an op of one input whose result has the input's shape.
func unary(name string, op func(x node) (node, error), f func(x array) array) kind {
	return kind{name: name, half: true, empty: true,
		draw: func(d *drawer) *Node {
			x, ok := d.pick(func(shape []int) bool { return true })
			if !ok {
				return nil
			}
			return &Node{Args: []Ref{x}, Shapes: [][]int{d.shape(x)}}
		},
		build: func(_ *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) { return one(op(in[0])) },
		eval:  func(_ *evaluation, _ *Node, in []array) []array { return []array{f(in[0])} },
	}
}

// ofElements is a unary op of each element.
func ofElements(name string, op func(x node) (node, error), f func(x jet) jet) kind {
	return unary(name, op, func(x array) array { return x.each(f) })
}

// ofRows is a unary op of each row.
func ofRows(name string, op func(x node) (node, error), f func(row []jet) []jet) kind {
	k := unary(name, op, func(x array) array {
		y := newArray(x.shape...)
		y.x = y.x[:0]
		for _, row := range x.rows() {
			y.x = append(y.x, f(row)...)
		}
		return y
	})
	k.empty = false
	k.draw = func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
		if !ok {
			return nil
		}
		return &Node{Args: []Ref{x}, Shapes: [][]int{d.shape(x)}}
	}
	return k
}

// withNumber is a unary op of elements with a number.
func withNumber(name string, op func(x node, number float64) (node, error), numbers []float64, f func(x jet, number float64) jet) kind {
	k := unary(name, nil, nil)
	k.weight = 6
	draw := k.draw
	k.draw = func(d *drawer) *Node {
		n := draw(d)
		if n != nil {
			n.P = numbers[d.IntN(len(numbers))]
		}
		return n
	}
	k.build = func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(op(in[0], n.P.(float64)))
	}
	k.eval = func(_ *evaluation, n *Node, in []array) []array {
		return []array{in[0].each(func(x jet) jet { return f(x, n.P.(float64)) })}
	}
	return k
}

// binary is an op of two inputs of one shape, element by element.
func binary(name string, op func(a, b node) (node, error), f func(a, b jet) jet) kind {
	return kind{name: name, weight: 8, half: true, empty: true,
		draw: func(d *drawer) *Node {
			a, ok := d.pick(func(shape []int) bool { return true })
			if !ok {
				return nil
			}
			b := d.like(a)
			if d.IntN(2) == 0 {
				a, b = b, a
			}
			return &Node{Args: []Ref{a, b}, Shapes: [][]int{d.shape(a)}}
		},
		build: func(_ *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) { return one(op(in[0], in[1])) },
		eval:  func(_ *evaluation, _ *Node, in []array) []array { return []array{in[0].with(in[1], f)} },
	}
}

// broadcasting is a method of a Tensor of two that broadcast to each other.
func broadcasting(name string, op func(a nn.Tensor, b any) nn.Tensor, f func(a, b jet) jet) kind {
	return kind{name: name, weight: 6, half: true,
		draw: func(d *drawer) *Node {
			a, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
			if !ok {
				return nil
			}
			b, ok := d.pick(func(shape []int) bool {
				return len(shape) > 0 && broadcast(d.shape(a), shape) != nil && !slices.Equal(shape, d.shape(a))
			})
			if !ok {
				if d.half {
					return nil
				}
				shape := slices.Clone(d.shape(a))
				for i := range shape {
					if d.IntN(2) == 0 {
						shape[i] = 1
					}
				}
				b = d.input(shape[d.IntN(len(shape)):]...)
			}
			shape := broadcast(d.shape(a), d.shape(b))
			if d.IntN(2) == 0 {
				a, b = b, a
			}
			return &Node{Args: []Ref{a, b}, Shapes: [][]int{shape}}
		},
		build: func(b *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			x := b.tensors(in)
			return b.nodes(op(x[0], x[1]))
		},
		eval: func(_ *evaluation, _ *Node, in []array) []array { return []array{in[0].with(in[1], f)} },
	}
}
