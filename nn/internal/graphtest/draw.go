package graphtest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// indexTypes are the types of indices.
var indexTypes = []tensor.Dtype{tensor.Int, tensor.Int32, tensor.Int64}

// Draw draws a graph. The same seed gives the same one.
func Draw(seed uint64) *Graph {
	d := &drawer{Rand: rand.New(rand.NewPCG(seed, 0x677261706873)), Graph: &Graph{Seed: seed}}
	d.Empty, d.casts, d.own = d.IntN(12) == 0, d.IntN(5) == 0, d.IntN(5) == 0
	if d.Empty {
		d.casts, d.own = false, false
	}
	want := 3 + d.IntN(6)
	if d.IntN(3) == 0 {
		want = 3 + d.IntN(25)
	}
	d.input(d.drawShape()...)
	for range 3 {
		if d.casts {
			d.add(kindOf["Cast"])
		}
	}
	for tries := 0; len(d.Nodes)-d.leaves < want && tries < 20*want; tries++ {
		d.add(d.kind())
	}
	d.end()
	return d.Graph
}

// drawer draws a graph.
type drawer struct {
	*rand.Rand
	*Graph
	half   bool // what is drawn has 16 bits
	casts  bool // some of the graph has
	own    bool // some of the ops are Gorgonia's own
	leaves int
	values [][]array
}

// Gorgonia's ops work in place, and so do not go with what hands on the memory of its input.
var aliasing = map[string]bool{"Reshape": true, "Cast": true, "nn.Add": true, "nn.Mul": true, "nn.Sub": true,
	"nn.Sum": true, "nn.Mean": true, "nn.Max": true, "nn.LogSumExp": true}

func (d *drawer) drawShape() []int {
	if d.Empty && d.IntN(2) == 0 {
		return [][]int{{0, 3}, {2, 0, 3}, {0, 2, 4}, {3, 0}}[d.IntN(4)]
	}
	return [][]int{{2, 3, 4}, {1, 3, 8}, {3, 4}, {2, 2, 3, 4}, {5}, {4, 6}, {1, 1}, {3, 1, 2}, {2, 1, 6}, {2, 4, 2, 2}, {1, 5}, {6, 1}}[d.IntN(12)]
}

// kind draws an op.
func (d *drawer) kind() *kind {
	total := 0
	allowed := func(k *kind) bool {
		return k.weight > 0 && (!d.Empty || k.empty) && (!k.gorgonia || d.own) && !(d.own && aliasing[k.name]) && (k.name != "Cast" || d.casts)
	}
	for _, k := range kinds {
		if allowed(k) {
			total += k.weight
		}
	}
	at := d.IntN(total)
	for _, k := range kinds {
		if allowed(k) {
			if at -= k.weight; at < 0 {
				return k
			}
		}
	}
	panic("unreachable")
}

// add adds a node, and the inputs that it needs, if values and slopes stay moderate.
func (d *drawer) add(k *kind) bool {
	nodes, leaves := len(d.Nodes), d.leaves
	isHalf := func(n Node) bool { return n.Half }
	d.half = k.half && slices.ContainsFunc(d.Nodes, isHalf) && d.IntN(3) > 0
	undo := func() bool {
		d.Nodes, d.leaves = d.Nodes[:nodes], leaves
		d.values = d.values[:min(len(d.values), nodes)]
		return false
	}
	n := k.draw(d)
	if n == nil {
		return undo()
	}
	n.Op, n.ID, n.Half = k.name, len(d.Nodes), d.half
	if k.name == "TopK" {
		shape := d.shape(n.Args[0])
		n.Bound = shape[len(shape)-1]
	}
	d.Nodes = append(d.Nodes, *n)
	if !d.evaluate() || !d.builds() {
		return undo()
	}
	return true
}

// evaluate computes what is new, and reports whether it is moderate.
func (d *drawer) evaluate() bool {
	e := newEvaluation(d.Graph, 0)
	e.values = d.values
	e.run()
	for node, list := range e.values[len(d.values):] {
		for out, a := range list {
			hides := d.hides(Ref{node + len(d.values), out})
			for _, x := range a.x {
				if hides && math.IsInf(x.x, -1) {
					continue
				}
				for i, y := range []float64{x.x, x.a, x.b, x.c} {
					if most := []float64{30, 300, 300, 1e5}[i]; !(math.Abs(y) <= most) {
						return false
					}
				}
			}
		}
	}
	d.values = e.values
	return true
}

// builds reports whether package ops takes the new node.
func (d *drawer) builds() bool {
	last := len(d.Nodes) - 1
	b := newBuilder(d.Graph, way{})
	in := gorgonia.Nodes{}
	for _, arg := range d.Nodes[last].Args {
		leaf := Node{ID: len(in), Op: "input", Shapes: [][]int{d.shape(arg)}}
		if d.isIDs(arg) {
			leaf.Op, leaf.Type = "ids", d.Nodes[arg.Node].Type
		}
		in = append(in, b.leaf(leaf, nil))
	}
	_, err := kindOf[d.Nodes[last].Op].build(b, &d.Nodes[last], in)
	return err == nil
}

// floats lists the values of floats, of the type that is being drawn.
func (d *drawer) floats(fits func(shape []int) bool) (list []Ref) {
	for i, n := range d.Nodes {
		if n.Half != d.half {
			continue
		}
		for out, shape := range n.Shapes {
			if r := (Ref{i, out}); d.isPlain(r) && fits(shape) {
				list = append(list, r)
			}
		}
	}
	return list
}

// pick draws a value of floats that there is.
func (d *drawer) pick(fits func(shape []int) bool) (Ref, bool) {
	list := d.floats(fits)
	if len(list) == 0 {
		return Ref{}, false
	}
	if d.IntN(2) == 0 {
		list = list[max(0, len(list)-3):]
	}
	return list[d.IntN(len(list))], true
}

// like draws a value of another's shape.
func (d *drawer) like(x Ref) Ref {
	if len(d.shape(x)) == 0 { // there are no inputs that are scalars
		r, _ := d.pick(func(shape []int) bool { return len(shape) == 0 })
		return r
	}
	r := d.likeShape(d.shape(x))
	if d.Nodes[r.Node].Half != d.half {
		return x
	}
	return r
}

func (d *drawer) likeShape(shape []int) Ref {
	if d.IntN(4) > 0 {
		if r, ok := d.pick(func(other []int) bool { return slices.Equal(shape, other) }); ok {
			return r
		}
	}
	return d.floatsOf(shape...)
}

// floatsOf adds an input of a shape, of the type that is being drawn.
func (d *drawer) floatsOf(shape ...int) Ref {
	r := d.input(shape...)
	if d.half {
		r.Node = d.node(Node{Op: "Cast", Half: true, Args: []Ref{r}, Shapes: [][]int{d.shape(r)}})
	}
	return r
}

// node adds a node that goes with another.
func (d *drawer) node(n Node) int {
	n.ID = len(d.Nodes)
	d.Nodes, d.leaves = append(d.Nodes, n), d.leaves+1
	return n.ID
}

// weight draws an input of a shape, which may be one that there is.
func (d *drawer) weight(shape ...int) Ref {
	if d.IntN(3) == 0 {
		for i, n := range d.Nodes {
			if n.Op == "input" && slices.Equal(n.Shapes[0], shape) {
				return Ref{Node: i}
			}
		}
	}
	return d.input(shape...)
}

// input adds an input.
func (d *drawer) input(shape ...int) Ref {
	n := Node{ID: len(d.Nodes), Op: "input", Shapes: [][]int{slices.Clone(shape)}, Trained: d.IntN(4) > 0}
	for range size(shape) {
		n.Data = append(n.Data, float64(float32(d.NormFloat64()*0.8)))
	}
	d.Nodes, d.leaves = append(d.Nodes, n), d.leaves+1
	return Ref{Node: len(d.Nodes) - 1}
}

// kept adds a matrix of weights that are kept in less memory than they are computed with: in 16
// bits, (rows, columns), or packed, which counts as one of floats. The columns need to be some of
// packedColumns then. It is a constant to gradients.
func (d *drawer) kept(of tensor.Dtype, rows, columns int) Ref {
	n := Node{ID: len(d.Nodes), Op: "kept", Shapes: [][]int{{rows, columns}}, Type: of}
	for range rows * columns {
		n.Data = append(n.Data, d.NormFloat64()*0.8)
	}
	d.Nodes, d.leaves = append(d.Nodes, n), d.leaves+1
	return Ref{Node: len(d.Nodes) - 1}
}

// keptType draws how a matrix is kept whose rows in memory have so many columns, if it may be.
func (d *drawer) keptType(columns int) (of tensor.Dtype, ok bool) {
	list := []tensor.Dtype{ops.Int8, ops.Int4, ops.NF4, ops.BFloat16, ops.Float16}
	if of = list[d.IntN(len(list))]; ops.IsPacked(of) {
		_, err := ops.PackedShape(of, 1, columns)
		return of, err == nil
	}
	return of, !d.half // beside 16 bits they are nothing else
}

// wide draws how many features rows have, to be multiplied by a packed matrix.
func (d *drawer) wide() int { return 32 * (1 + d.IntN(2)) }

// mask draws which keys of some rows are hidden, of any type.
func (d *drawer) mask(rows, keys int) Ref {
	types := []tensor.Dtype{tensor.Bool, tensor.Int, tensor.Int32, tensor.Int64, tensor.Float32, tensor.Float64}
	n := Node{ID: len(d.Nodes), Op: "ids", Shapes: [][]int{{rows, keys}}, Bound: 2, Type: types[d.IntN(len(types))]}
	for range rows * keys {
		n.IDs = append(n.IDs, d.IntN(2))
	}
	d.Nodes, d.leaves = append(d.Nodes, n), d.leaves+1
	return Ref{Node: len(d.Nodes) - 1}
}

// ids draws integers from least on and below a bound: of a shape that fits, or new ones of a shape.
func (d *drawer) ids(least, bound int, fits func(shape []int) bool, shape ...int) Ref {
	if fits == nil {
		fits = func(other []int) bool { return slices.Equal(shape, other) }
	}
	for i, n := range d.Nodes {
		r := Ref{i, len(n.Shapes) - 1}
		isIndex := n.Op != "ids" || slices.Contains(indexTypes, n.Type)
		if d.isIDs(r) && isIndex && n.Least >= least && n.Bound <= bound && fits(d.shape(r)) && d.IntN(2) == 0 {
			return r
		}
	}
	n := Node{ID: len(d.Nodes), Op: "ids", Shapes: [][]int{slices.Clone(shape)}, Least: least, Bound: bound, Type: indexTypes[d.IntN(len(indexTypes))]}
	for range size(shape) {
		n.IDs = append(n.IDs, least+d.IntN(bound-least))
	}
	d.Nodes, d.leaves = append(d.Nodes, n), d.leaves+1
	return Ref{Node: len(d.Nodes) - 1}
}

// end draws what the cost is made of, what is read, and what may be computed again.
func (d *drawer) end() {
	used, spoilt := map[Ref]bool{}, map[Ref]bool{}
	for _, n := range d.Nodes {
		for _, arg := range n.Args {
			used[arg] = true
			spoilt[arg] = spoilt[arg] || kindOf[n.Op].gorgonia // which may write over it
		}
	}
	for i, n := range d.Nodes {
		for out := range n.Shapes {
			r := Ref{i, out}
			if n.isInput() && (!d.isPlain(r) || d.IntN(8) > 0) || kindOf[n.Op].gorgonia {
				continue
			}
			if !d.isConstant(r) && d.isPlain(r) && (!used[r] && d.IntN(4) > 0 || d.IntN(10) == 0) {
				d.Losses = append(d.Losses, r)
			}
			if d.IntN(4) == 0 && !spoilt[r] {
				d.Read = append(d.Read, r)
			}
		}
	}
	if len(d.Losses)+len(d.Read) == 0 {
		d.Losses = []Ref{{Node: 0}}
	}
	for i := range d.Nodes {
		if n := d.Nodes[i]; !n.isInput() && i > 1 && !d.own && len(n.Shapes) == 1 && d.IntN(4) == 0 {
			d.Regions = append(d.Regions, Region{i, d.IntN(i)})
		}
	}
}
