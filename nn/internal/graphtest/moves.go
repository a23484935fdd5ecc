package graphtest

import (
	"cmp"
	"slices"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// along is what an op does along an axis.
type along struct{ Axis, From, To, N int }

// moving is an op that moves elements of one input of at least one axis.
func moving(name string, draw func(d *drawer, shape []int) (to []int, p any), build func(b *builder, n *Node, x node) (node, error),
	eval func(n *Node, x array) array) kind {
	return kind{name: name, half: true,
		draw: func(d *drawer) *Node {
			x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
			if !ok {
				return nil
			}
			to, p := draw(d, d.shape(x))
			if to == nil {
				return nil
			}
			return &Node{Args: []Ref{x}, Shapes: [][]int{to}, P: p}
		},
		build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) { return one(build(b, n, in[0])) },
		eval:  func(_ *evaluation, n *Node, in []array) []array { return []array{eval(n, in[0])} },
	}
}

// reshaped draws another shape of as many elements.
func (d *drawer) reshaped(shape []int) []int {
	left := size(shape)
	var to []int
	for len(to) < 3 && (left > 1 || d.IntN(3) == 0) {
		var fitting []int
		for f := 1; f <= left; f++ {
			if left%f == 0 {
				fitting = append(fitting, f)
			}
		}
		to = append(to, fitting[d.IntN(len(fitting))])
		left /= to[len(to)-1]
	}
	if left > 1 || len(to) == 0 {
		to = append(to, left)
	}
	return to
}

func drawAlong(d *drawer, shape []int) along { return along{Axis: d.IntN(len(shape))} }

func moved(shape []int, axis, n int) []int {
	to := slices.Clone(shape)
	to[axis] = n
	return to
}

func init() {
	reshape := moving("Reshape", func(d *drawer, shape []int) ([]int, any) {
		to := d.reshaped(shape)
		if slices.Equal(to, shape) {
			return nil, nil
		}
		return to, nil
	}, func(_ *builder, n *Node, x node) (node, error) { return ops.Reshape(x, n.Shapes[0]...) },
		func(n *Node, x array) array { return x.reshaped(n.Shapes[0]...) })
	reshape.weight = 14
	permute := moving("Permute", func(d *drawer, shape []int) ([]int, any) {
		axes := d.Perm(len(shape))
		to := make([]int, len(shape))
		for i, axis := range axes {
			to[i] = shape[axis]
		}
		return to, axes
	}, func(_ *builder, n *Node, x node) (node, error) { return ops.Permute(x, n.P.([]int)...) },
		func(n *Node, x array) array { return x.permuted(n.P.([]int)...) })
	permute.empty = true
	slice := moving("Slice", func(d *drawer, shape []int) ([]int, any) {
		p := drawAlong(d, shape)
		n := shape[p.Axis]
		p.From = d.IntN(n)
		p.To = p.From + 1 + d.IntN(n-p.From)
		return moved(shape, p.Axis, p.To-p.From), p
	}, func(_ *builder, n *Node, x node) (node, error) {
		p := n.P.(along)
		return ops.Slice(x, p.Axis, p.From, p.To)
	}, func(n *Node, x array) array {
		p := n.P.(along)
		return x.rearranged(n.Shapes[0], 0, func(at []int) []int { return shifted(at, p.Axis, p.From) })
	})
	choose := moving("Select", func(d *drawer, shape []int) ([]int, any) {
		if len(shape) < 2 {
			return nil, nil
		}
		p := drawAlong(d, shape)
		p.From = d.IntN(shape[p.Axis])
		return slices.Delete(slices.Clone(shape), p.Axis, p.Axis+1), p
	}, func(_ *builder, n *Node, x node) (node, error) {
		p := n.P.(along)
		return ops.Select(x, p.Axis, p.From)
	}, func(n *Node, x array) array {
		p := n.P.(along)
		return x.rearranged(n.Shapes[0], 0, func(at []int) []int { return slices.Insert(slices.Clone(at), p.Axis, p.From) })
	})
	pad := moving("Pad", func(d *drawer, shape []int) ([]int, any) {
		p := drawAlong(d, shape)
		p.From, p.To = d.IntN(4)-1, d.IntN(4)-1
		if n := shape[p.Axis] + p.From + p.To; n > 0 && shape[p.Axis]+min(0, p.From)+min(0, p.To) > 0 {
			return moved(shape, p.Axis, n), p
		}
		return nil, nil
	}, func(_ *builder, n *Node, x node) (node, error) {
		p := n.P.(along)
		return ops.Pad(x, p.Axis, p.From, p.To, 0.75)
	}, func(n *Node, x array) array {
		p := n.P.(along)
		return x.rearranged(n.Shapes[0], 0.75, func(at []int) []int {
			at = shifted(at, p.Axis, -p.From)
			if at[p.Axis] < 0 || at[p.Axis] >= x.shape[p.Axis] {
				return nil
			}
			return at
		})
	})
	register(reshape, permute, slice, choose, pad, patches, concat, chunk)
}

func shifted(at []int, axis, by int) []int {
	at = slices.Clone(at)
	at[axis] += by
	return at
}

var concat = kind{name: "Concat", half: true, empty: true,
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
		if !ok {
			return nil
		}
		p := along{Axis: d.IntN(len(d.shape(x)))}
		list, n := []Ref{x}, d.shape(x)[p.Axis]
		for range 1 + d.IntN(2) {
			other, ok := d.pick(func(shape []int) bool {
				return len(shape) == len(d.shape(x)) && slices.Equal(moved(shape, p.Axis, 0), moved(d.shape(x), p.Axis, 0))
			})
			if !ok {
				other = x
			}
			list, n = append(list, other), n+d.shape(other)[p.Axis]
		}
		return &Node{Args: list, Shapes: [][]int{moved(d.shape(x), p.Axis, n)}, P: p}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.Concat(n.P.(along).Axis, in...))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		y, axis := newArray(n.Shapes[0]...), n.P.(along).Axis
		for i := range y.x {
			at := place(i, y.shape)
			for _, x := range in {
				if at[axis] < x.shape[axis] {
					y.x[i] = x.x[x.strictly(at)]
					break
				}
				at[axis] -= x.shape[axis]
			}
		}
		return []array{y}
	},
}

// strictly is the number of the element at a place of a's own shape.
func (a array) strictly(place []int) int {
	n := 0
	for axis, d := range a.shape {
		n = n*d + place[axis]
	}
	return n
}

// chunk takes a tensor apart, along an axis that stays or goes away.
var chunk = kind{name: "nn.Chunk", half: true,
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) > 1 })
		if !ok {
			return nil
		}
		p := along{Axis: d.IntN(len(d.shape(x)))}
		length := d.shape(x)[p.Axis]
		if p.N = 2 + d.IntN(2); length%p.N != 0 {
			return nil
		}
		to := moved(d.shape(x), p.Axis, length/p.N)
		if p.To = 0; length == p.N && d.IntN(2) == 0 {
			p.To, to = 1, slices.Delete(to, p.Axis, p.Axis+1)
		}
		return &Node{Args: []Ref{x}, Shapes: slices.Repeat([][]int{to}, p.N), P: p}
	},
	build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		x, p := b.tensors(in)[0], n.P.(along)
		if p.To == 1 {
			return b.nodes(x.Unbind(p.Axis, p.N)...)
		}
		return b.nodes(x.Chunk(p.Axis, p.N)...)
	},
	eval: func(_ *evaluation, n *Node, in []array) (list []array) {
		p := n.P.(along)
		part := in[0].shape[p.Axis] / p.N
		for k := range p.N {
			y := in[0].rearranged(moved(in[0].shape, p.Axis, part), 0, func(at []int) []int { return shifted(at, p.Axis, k*part) })
			list = append(list, y.reshaped(n.Shapes[0]...))
		}
		return list
	},
}

var patches = kind{name: "Patches",
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) == 3 })
		if !ok {
			return nil
		}
		w := ops.Sliding{Size: 1 + d.IntN(3), Stride: 1 + d.IntN(2), Padding: d.IntN(2), Dilation: 1 + d.IntN(2)}
		shape := d.shape(x)
		room := shape[1] + 2*w.Padding - w.Dilation*(w.Size-1) - 1
		if room < 0 || w.Padding >= w.Dilation*(w.Size-1)+1 {
			return nil
		}
		return &Node{Args: []Ref{x}, Shapes: [][]int{{shape[0], room/w.Stride + 1, w.Size, shape[2]}}, P: w}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.Patches(in[0], 0.25, n.P.(ops.Sliding)))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		w := n.P.(ops.Sliding)
		return []array{in[0].rearranged(n.Shapes[0], 0.25, func(at []int) []int {
			row := at[1]*cmp.Or(w.Stride, 1) + at[2]*cmp.Or(w.Dilation, 1) - w.Padding
			if row < 0 || row >= in[0].shape[1] {
				return nil
			}
			return []int{at[0], row, at[3]}
		})}
	},
}

// reduction is a method of a Tensor along some axes, or of all elements.
func reduction(name string, op func(x nn.Tensor, axes ...int) nn.Tensor, f func(e *evaluation, list []jet) jet) kind {
	return kind{name: name, weight: 3,
		draw: func(d *drawer) *Node {
			x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
			if !ok {
				return nil
			}
			shape := d.shape(x)
			var axes, left []int
			for axis, n := range shape {
				if d.IntN(2) == 0 && (name != "nn.LogSumExp" || len(axes) == 0) {
					axes = append(axes, axis)
				} else {
					left = append(left, n)
				}
			}
			if len(axes) == 0 {
				if left = nil; name == "nn.LogSumExp" {
					return nil
				}
			}
			return &Node{Args: []Ref{x}, Shapes: [][]int{left}, P: axes}
		},
		build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return b.nodes(op(b.tensors(in)[0], n.P.([]int)...))
		},
		eval: func(e *evaluation, n *Node, in []array) []array {
			axes, shape := n.P.([]int), in[0].shape
			var order []int
			for axis := range shape {
				if len(axes) > 0 && !slices.Contains(axes, axis) {
					order = append(order, axis)
				}
			}
			kept := len(order)
			for axis := range shape {
				if len(axes) == 0 || slices.Contains(axes, axis) {
					order = append(order, axis)
				}
			}
			turned := in[0].permuted(order...)
			y := newArray(n.Shapes[0]...)
			for i, row := range turned.reshaped(size(turned.shape[:kept]), size(turned.shape[kept:])).rows() {
				y.x[i] = f(e, row)
			}
			return []array{y}
		},
	}
}

// largest is the first of the largest elements.
func largest(e *evaluation, row []jet) int {
	at := 0
	for i, x := range row {
		if x.x > row[at].x {
			at = i
		}
	}
	for i, x := range row {
		if i != at {
			e.edge(x.x, row[at].x)
		}
	}
	return at
}

func init() {
	mean := func(_ *evaluation, row []jet) jet { return sum(row).times(1 / float64(len(row))) }
	register(
		reduction("nn.Sum", nn.Tensor.Sum, func(_ *evaluation, row []jet) jet { return sum(row) }),
		reduction("nn.Mean", nn.Tensor.Mean, mean),
		reduction("nn.Max", nn.Tensor.Max, func(e *evaluation, row []jet) jet { return row[largest(e, row)] }),
		reduction("nn.LogSumExp", func(x nn.Tensor, axes ...int) nn.Tensor { return x.LogSumExp(axes[0]) }, func(_ *evaluation, row []jet) jet {
			_, lse := softmax(row)
			return lse
		}),
	)
	for name, f := range inOrder(map[string]func(row []jet) jet{"Sum": func(row []jet) jet { return sum(row) }, "Mean": func(row []jet) jet { return mean(nil, row) }}) {
		k := moving(name, func(*drawer, []int) ([]int, any) { return []int{}, nil }, func(_ *builder, _ *Node, x node) (node, error) {
			if name == "Sum" {
				return ops.Sum(x)
			}
			return ops.Mean(x)
		}, func(_ *Node, x array) array { return array{shape: []int{}, x: []jet{f(x.x)}} })
		k.half, k.weight = false, 3
		register(k)
	}
	topK := kind{name: "TopK", constantOutputs: []int{1},
		draw: func(d *drawer) *Node {
			x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
			if !ok {
				return nil
			}
			shape := withLast(d.shape(x), 1+d.IntN(d.shape(x)[len(d.shape(x))-1]))
			return &Node{Args: []Ref{x}, Shapes: [][]int{shape, shape}}
		},
		build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return two(ops.TopK(in[0], n.Shapes[0][len(n.Shapes[0])-1]))
		},
		eval: func(e *evaluation, n *Node, in []array) []array {
			values, ids := newArray(n.Shapes[0]...), array{shape: n.Shapes[0]}
			values.x = nil
			for _, row := range in[0].rows() {
				order := make([]int, len(row))
				for i := range order {
					order[i] = i
				}
				slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(row[j].x, row[i].x) })
				for i := 1; i < len(order); i++ {
					e.edge(row[order[i]].x, row[order[i-1]].x)
				}
				for _, i := range order[:values.last()] {
					values.x, ids.ints = append(values.x, row[i]), append(ids.ints, i)
				}
			}
			return []array{values, ids}
		},
	}
	register(topK, gather, scatter, embedding, tokenPositions)
}

var gather = kind{name: "Gather", half: true, constants: []int{1},
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
		if !ok {
			return nil
		}
		shape := d.shape(x)
		ids := d.ids(0, shape[len(shape)-1], func(other []int) bool {
			return len(other) == len(shape) && slices.Equal(other[:len(shape)-1], shape[:len(shape)-1])
		}, withLast(shape, 1+d.IntN(4))...)
		return &Node{Args: []Ref{x, ids}, Shapes: [][]int{d.shape(ids)}}
	},
	build: func(_ *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.Gather(in[0], in[1]))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		y := newArray(n.Shapes[0]...)
		for i, id := range in[1].ints {
			y.x[i] = in[0].rows()[i/y.last()][id]
		}
		return []array{y}
	},
}

var scatter = kind{name: "Scatter", half: true, constants: []int{1},
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) > 0 })
		if !ok {
			return nil
		}
		n := 2 + d.IntN(4)
		ids := d.ids(0, n, func(other []int) bool { return slices.Equal(other, d.shape(x)) }, d.shape(x)...)
		return &Node{Args: []Ref{x, ids}, Shapes: [][]int{withLast(d.shape(x), n)}}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.Scatter(in[0], in[1], n.Shapes[0][len(n.Shapes[0])-1]))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		y := newArray(n.Shapes[0]...)
		for i, id := range in[1].ints {
			to := &y.x[i/in[0].last()*y.last()+id]
			*to = to.add(in[0].x[i])
		}
		return []array{y}
	},
}

var embedding = kind{name: "Embedding", constants: []int{1},
	draw: func(d *drawer) *Node {
		table, ok := d.pick(func(shape []int) bool { return len(shape) == 2 })
		if columns := d.wide(); d.IntN(4) == 0 {
			if of, may := d.keptType(columns); may && ops.IsPacked(of) {
				table, ok = d.kept(of, 2+d.IntN(3), columns), true
			}
		}
		if !ok {
			table = d.input(2+d.IntN(3), 1+d.IntN(4))
		}
		ids := d.ids(0, d.shape(table)[0], func(shape []int) bool { return len(shape) < 3 && len(shape) > 0 }, 1+d.IntN(2), 1+d.IntN(3))
		return &Node{Args: []Ref{table, ids}, Shapes: [][]int{append(slices.Clone(d.shape(ids)), d.shape(table)[1])}}
	},
	build: func(_ *builder, _ *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.Embedding(in[0], in[1]))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		y := newArray(n.Shapes[0]...)
		y.x = nil
		for _, id := range in[1].ints {
			y.x = append(y.x, in[0].rows()[id]...)
		}
		return []array{y}
	},
}

// counting is what TokenPositions is told.
type counting struct{ Padding int }

var tokenPositions = kind{name: "TokenPositions",
	draw: func(d *drawer) *Node {
		p := counting{d.IntN(3)}
		ids := d.ids(0, 2+d.IntN(3), func(shape []int) bool { return len(shape) == 2 }, 1+d.IntN(2), 1+d.IntN(4))
		return &Node{Args: []Ref{ids}, Shapes: [][]int{d.shape(ids)}, P: p, Bound: p.Padding + 1 + d.shape(ids)[1]}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.TokenPositions(in[0], n.P.(counting).Padding))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		padding, y := n.P.(counting).Padding, array{shape: n.Shapes[0]}
		last := padding
		for i, id := range in[0].ints {
			if i%y.last() == 0 {
				last = padding
			}
			if id == padding {
				y.ints = append(y.ints, padding)
				continue
			}
			last++
			y.ints = append(y.ints, last)
		}
		return []array{y}
	},
}
