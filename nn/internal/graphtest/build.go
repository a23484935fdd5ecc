package graphtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// way is how a graph is run.
type way struct {
	name      string
	dtype     tensor.Dtype // the zero value is float64
	half      tensor.Dtype // what has 16 bits; the zero value is as the rest
	shared    bool         // memory is reused
	regions   bool         // regions are computed again
	inference bool         // there are no gradients
	second    bool         // the cost is made of gradients
	gradients bool         // by ops.Gradients
	views     bool         // inputs are views
	bare      bool         // Gorgonia's own tapeMachine
	lisp      bool
	some      bool // every other gradient
}

// builder makes a graph of Gorgonia's.
type builder struct {
	way
	graph  *Graph
	g      *gorgonia.ExprGraph
	scope  *nn.Scope
	values []gorgonia.Nodes
	inputs map[int]node
	cost   node

	trained []int // whose gradients there are
	read    []*gorgonia.Value
	d       []*gorgonia.Value // the gradients of ops.Gradients
}

func newBuilder(graph *Graph, w way) *builder {
	if w.dtype == (tensor.Dtype{}) {
		w.dtype = tensor.Float64
	}
	g := gorgonia.NewGraph()
	return &builder{way: w, graph: graph, g: g, scope: nn.NewScope(g, nil).DType(w.dtype), inputs: map[int]node{}}
}

func (w way) hasHalf() bool { return w.half != (tensor.Dtype{}) }

// build makes the graph.
func (b *builder) build() error {
	if b.shared {
		ops.ReuseMemory(b.g)
	}
	ops.ModeOf(b.g).Train(stepOf(0))
	reached := b.graph.reached()
	for i := range b.graph.Nodes {
		n := &b.graph.Nodes[i]
		switch {
		case !reached[i]:
			b.values = append(b.values, nil)
			continue
		case n.isInput():
			b.inputs[i] = b.leaf(*n, b.input(n, 0))
			b.values = append(b.values, gorgonia.Nodes{b.inputs[i]})
			continue
		}
		var in gorgonia.Nodes
		for _, arg := range n.Args {
			in = append(in, b.values[arg.Node][arg.Out])
		}
		out, err := kindOf[n.Op].build(b, n, in)
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		if b.values = append(b.values, out); b.regions {
			if err := b.again(i); err != nil {
				return err
			}
		}
	}
	if err := b.end(); err != nil {
		return err
	}
	return b.differentiate()
}

// again has what makes node i computed again.
func (b *builder) again(i int) error {
	for _, r := range b.graph.Regions {
		if r.Out != i {
			continue
		}
		var from gorgonia.Nodes
		for k, list := range b.values[:r.From+1] {
			if !b.graph.Nodes[k].isInput() {
				from = append(from, list...)
			}
		}
		from = slices.DeleteFunc(from, func(n node) bool { return n == nil || n == b.values[i][0] || n.Op() == nil })
		name := fmt.Sprint("region", i)
		if i%2 == 0 {
			ops.RecomputeRegions(b.g, name+"/keeps-attention")
		}
		again, err := ops.RecomputeRegion(name, b.values[i][0], from...)
		if err != nil && strings.Contains(err.Error(), "cannot be computed again") {
			continue
		}
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		b.values[i][0] = again
	}
	return nil
}

// leaf makes an input.
func (b *builder) leaf(n Node, value *tensor.Dense) node {
	dtype := b.dtype
	shape := n.Shapes[0]
	switch {
	case n.Op == "ids" && n.Type.Type == nil:
		dtype = tensor.Int
	case n.Op == "ids":
		dtype = n.Type
	case n.Op == "kept" && b.dtype == tensor.Float32:
		dtype = n.Type
		if ops.IsPacked(dtype) {
			shape, _ = ops.PackedShape(dtype, shape[0], shape[1])
		}
	}
	options := []gorgonia.NodeConsOpt{gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("input", n.ID))}
	if value != nil {
		options = append(options, gorgonia.WithValue(value))
	}
	return gorgonia.NewTensor(b.g, dtype, len(shape), options...)
}

// input is the value of an input in a run.
func (b *builder) input(n *Node, run int) *tensor.Dense {
	if n.Op == "ids" {
		return tensor.New(tensor.WithShape(n.Shapes[0]...), tensor.WithBacking(backing(b.graph.integers(n, run), n.Type)), tensor.WithEngine(ops.Engine()))
	}
	if n.Op == "kept" && b.dtype == tensor.Float32 {
		return keptValue(n, b.graph.unrounded(n, run))
	}
	return b.array(b.graph.floats(n, run), n.Shapes[0])
}

// backing has integers in a type.
func backing(list []int, of tensor.Dtype) any {
	switch of {
	case tensor.Bool:
		return convert(list, func(x int) bool { return x != 0 })
	case tensor.Int32:
		return convert(list, func(x int) int32 { return int32(x) })
	case tensor.Int64:
		return convert(list, func(x int) int64 { return int64(x) })
	case tensor.Float32:
		return convert(list, func(x int) float32 { return float32(x) })
	case tensor.Float64:
		return convert(list, func(x int) float64 { return float64(x) })
	}
	return list
}

func convert[A, B any](list []A, f func(x A) B) []B {
	to := make([]B, len(list))
	for i, x := range list {
		to[i] = f(x)
	}
	return to
}

// keptValue is x in the node's type, in which the graph keeps it: 16 bits, or packed.
func keptValue(n *Node, x []float64) *tensor.Dense {
	wide := tensor.New(tensor.WithShape(n.Shapes[0]...), tensor.WithBacking(convert(x, func(x float64) float32 { return float32(x) })), tensor.WithEngine(ops.Engine()))
	to, err := (*tensor.Dense)(nil), error(nil)
	if ops.IsPacked(n.Type) {
		to, err = ops.Packed(wide, n.Type)
	} else {
		to, err = ops.Converted(wide, n.Type)
	}
	if err != nil {
		panic(err)
	}
	return to
}

// asKept is what a kept matrix counts as.
func asKept(n *Node, x []float64) []float64 {
	v := keptValue(n, x)
	if ops.IsPacked(n.Type) {
		wide, err := ops.Unpacked(v)
		if err != nil {
			panic(err)
		}
		return convert(wide.Float32s(), func(x float32) float64 { return float64(x) })
	}
	list, err := numbers(v)
	if err != nil {
		panic(err)
	}
	return list
}

// array is an array of floats, or a view of one.
func (b *builder) array(x []float64, shape []int) *tensor.Dense {
	if len(x) == 0 {
		return tensor.New(tensor.Of(b.dtype), tensor.WithShape(shape...), tensor.WithEngine(ops.Engine()))
	}
	to, rows := slices.Clone(shape), shape[len(shape)-1]
	b = &builder{way: b.way} // a part of one element would lose its axis
	if b.views = b.views && rows > 1; b.views {
		to[len(to)-1] += 3
	}
	t := tensor.New(tensor.Of(b.dtype), tensor.WithShape(to...), tensor.WithEngine(ops.Engine()))
	for i, y := range x {
		at := i/rows*to[len(to)-1] + i%rows
		if b.views {
			at++
		}
		if b.dtype == tensor.Float32 {
			t.Float32s()[at] = float32(y)
		} else {
			t.Float64s()[at] = y
		}
	}
	if !b.views {
		return t
	}
	slicers := make([]tensor.Slice, len(shape))
	slicers[len(shape)-1] = gorgonia.S(1, 1+rows)
	view, err := t.Slice(slicers...)
	if err != nil {
		panic(err)
	}
	return view.(*tensor.Dense)
}

// ends are the ends of sequences.
func (b *builder) ends(ends []int) node {
	list := slices.Concat([]int{0}, ends)
	name := fmt.Sprint("ends", list)
	if found := b.g.ByName(name); len(found) > 0 {
		return found[0]
	}
	return gorgonia.NewVector(b.g, tensor.Int, gorgonia.WithShape(len(list)), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(len(list)), tensor.WithBacking(list), tensor.WithEngine(ops.Engine()))))
}

// constant is an input with weights.
func (b *builder) constant(name string, x []float64, shape []int) node {
	plain := *b
	plain.views = false
	return gorgonia.NewTensor(b.g, b.dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(plain.array(x, shape)))
}

// end makes the cost, and has values read: every other one by Keep.
func (b *builder) end() error {
	for k, r := range b.graph.Losses {
		part, err := b.loss(r)
		if err == nil && b.cost != nil {
			part, err = ops.Add(b.cost, part)
		}
		if err != nil {
			return fmt.Errorf("loss %d: %w", k, err)
		}
		b.cost = part
	}
	b.readAll()
	return nil
}

func (b *builder) readAll() {
	for k, r := range b.graph.Read {
		v, n := new(gorgonia.Value), b.values[r.Node][r.Out]
		b.read = append(b.read, v)
		if b.reads(k) {
			gorgonia.Read(n, v)
		} else {
			ops.Keep(n)
		}
	}
}

// reads reports whether a value is read by Gorgonia's Read, which takes none without elements.
func (b *builder) reads(k int) bool { return k%2 == 0 && size(b.graph.shape(b.graph.Read[k])) > 0 }

func (b *builder) loss(r Ref) (node, error) {
	n, w := b.values[r.Node][r.Out], b.graph.weights(r)
	if n.IsScalar() {
		if w[0] == 1 {
			return n, nil
		}
		return ops.Scale(n, w[0])
	}
	n, err := ops.Cast(n, b.dtype)
	if err != nil {
		return nil, err
	}
	if n, err = ops.Mul(n, b.constant(fmt.Sprint("weights", r), w, b.graph.shape(r))); err != nil {
		return nil, err
	}
	return ops.Sum(n)
}

// differentiate adds the gradients.
func (b *builder) differentiate() error {
	if b.cost == nil || b.inference {
		return nil
	}
	b.trained = b.graph.trained()
	if b.some {
		b.trained = slices.DeleteFunc(b.trained, func(i int) bool { return i%2 == 0 })
	}
	var wrt gorgonia.Nodes
	for _, i := range b.trained {
		wrt = append(wrt, b.inputs[i])
	}
	if len(wrt) == 0 || b.lisp {
		return nil
	}
	if b.gradients || b.second {
		list, err := ops.Gradients(b.cost, wrt...)
		if err != nil {
			return err
		}
		if b.second {
			return b.differentiateAgain(list)
		}
		for _, n := range list {
			v := new(gorgonia.Value)
			gorgonia.Read(n, v)
			b.d = append(b.d, v)
		}
		return nil
	}
	_, err := gorgonia.Grad(b.cost, wrt...)
	return err
}

// differentiateAgain makes a cost of gradients.
func (b *builder) differentiateAgain(list gorgonia.Nodes) error {
	b.cost = nil
	for k, n := range list {
		in := &b.graph.Nodes[b.trained[k]]
		part, err := ops.Mul(n, b.constant(fmt.Sprint("direction", in.ID), b.graph.direction(in, 1), in.Shapes[0]))
		if err == nil {
			part, err = ops.Sum(part)
		}
		if err == nil && b.cost != nil {
			part, err = ops.Add(b.cost, part)
		}
		if err != nil {
			return err
		}
		b.cost = part
	}
	reached := map[node]bool{}
	reach(b.cost, reached)
	b.trained = slices.DeleteFunc(b.trained, func(i int) bool { return !reached[b.inputs[i]] })
	var wrt gorgonia.Nodes
	for _, i := range b.trained {
		wrt = append(wrt, b.inputs[i])
	}
	if len(wrt) == 0 {
		return nil
	}
	_, err := gorgonia.Grad(b.cost, wrt...)
	return err
}

// reach marks what a gradient reaches.
func reach(n node, reached map[node]bool) {
	if reached[n] {
		return
	}
	reached[n] = true
	op, ok := n.Op().(gorgonia.SDOp)
	if !ok {
		return
	}
	var children gorgonia.Nodes
	for it := n.Graph().From(n.ID()); it != nil && it.Next(); {
		children = append(children, it.Node().(*gorgonia.Node))
	}
	for i, differentiable := range op.DiffWRT(len(children)) {
		if differentiable {
			reach(children[i], reached)
		}
	}
}
