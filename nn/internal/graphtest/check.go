package graphtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// runs is how often a machine runs, each time with other inputs but the last time, which has those
// of the first.
const runs = 4

// result is what a run gave: the cost, what was read, and the gradients by node.
type result struct {
	cost float64
	read [][]float64
	d    map[int][]float64
	all  [][][]float64 // every value, where nothing is reused
}

// Failure is what is wrong with a graph.
type Failure struct {
	Way string
	Err error
}

func (f *Failure) Error() string { return f.Way + ": " + f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// execute runs a graph in a way.
func (g *Graph) execute(w way) (list []*result, b *builder, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v\n%s", r, debug.Stack())
		}
	}()
	b = newBuilder(g, w)
	if err := b.build(); err != nil {
		return nil, b, err
	}
	if w.lisp {
		list, err = b.lispRun()
		return list, b, err
	}
	m, err := b.machine()
	if err != nil {
		return nil, b, err
	}
	defer m.Close()
	for at := range runs {
		run := at % (runs - 1)
		if at > 0 {
			m.Reset()
			if err := b.change(run, at%2 == 0); err != nil {
				return nil, b, err
			}
		}
		ops.ModeOf(b.g).Train(stepOf(run))
		if err := m.RunAll(); err != nil {
			return nil, b, fmt.Errorf("run %d: %w", at, err)
		}
		r, err := b.result()
		if err != nil {
			return nil, b, fmt.Errorf("run %d: %w", at, err)
		}
		list = append(list, r)
	}
	return list, b, nil
}

func (b *builder) machine() (gorgonia.VM, error) {
	if b.bare {
		return gorgonia.NewTapeMachine(b.g, gorgonia.WithEngine(ops.Engine())), nil
	}
	return ops.NewMachine(b.g)
}

// change gives the inputs their values of a run: in their memory, or elsewhere.
func (b *builder) change(run int, elsewhere bool) error {
	for i, n := range b.inputs {
		value := b.input(&b.graph.Nodes[i], run)
		if elsewhere || b.views || value.Shape().TotalSize() == 0 {
			if err := gorgonia.Let(n, value); err != nil {
				return err
			}
			continue
		}
		if ops.IsPacked(value.Dtype()) {
			copy(ops.PackedBytes(n.Value().(*tensor.Dense)), ops.PackedBytes(value))
			continue
		}
		if err := tensor.Copy(n.Value().(*tensor.Dense), value); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) lispRun() ([]*result, error) {
	g := b.g
	if len(g.Roots()) > 1 {
		g = g.SubgraphRoots(b.cost)
	}
	m := gorgonia.NewLispMachine(g)
	defer m.Close()
	if err := m.RunAll(); err != nil {
		return nil, err
	}
	r := &result{d: map[int][]float64{}}
	for _, i := range b.trained {
		v, err := b.inputs[i].Grad()
		if err != nil {
			return nil, err
		}
		if r.d[i], err = numbers(v); err != nil {
			return nil, err
		}
	}
	c, err := numbers(b.cost.Value())
	if err == nil {
		r.cost = c[0]
	}
	return []*result{r}, err
}

// result reads what a run gave.
func (b *builder) result() (*result, error) {
	r := &result{d: map[int][]float64{}}
	if b.cost != nil {
		c, err := numbers(b.cost.Value())
		if err != nil {
			return nil, fmt.Errorf("the cost: %w", err)
		}
		r.cost = c[0]
	}
	for k, ref := range b.graph.Read {
		if b.values[ref.Node][ref.Out].Op() == nil { // an input, which may be a view
			r.read = append(r.read, nil)
			continue
		}
		v := *b.read[k]
		if !b.reads(k) {
			v = b.values[ref.Node][ref.Out].Value()
		}
		list, err := numbers(v)
		if err != nil {
			return nil, fmt.Errorf("the value of %v: %w", ref, err)
		}
		r.read = append(r.read, list)
	}
	for k, i := range b.trained {
		var v gorgonia.Value
		var err error
		if b.inference {
			break
		}
		if b.d != nil {
			v = *b.d[k]
		} else if v, err = b.inputs[i].Grad(); err != nil {
			return nil, fmt.Errorf("the gradient of %d: %w", i, err)
		}
		if r.d[i], err = numbers(v); err != nil {
			return nil, fmt.Errorf("the gradient of %d: %w", i, err)
		}
	}
	if !b.shared {
		for i, nodes := range b.values {
			var list [][]float64
			for out, n := range nodes {
				if b.graph.Nodes[i].isInput() && !b.graph.isPlain(Ref{i, out}) {
					list = append(list, nil)
					continue
				}
				x, err := numbers(n.Value())
				if err != nil {
					return nil, fmt.Errorf("the value of node %d: %w", i, err)
				}
				list = append(list, x)
			}
			r.all = append(r.all, list)
		}
	}
	return r, nil
}

// numbers are copies of a value's elements.
func numbers(v gorgonia.Value) ([]float64, error) {
	if v == nil {
		return nil, errors.New("there is no value")
	}
	if slices.Contains(v.Shape(), 0) {
		return nil, nil
	}
	switch x := v.Data().(type) {
	case float64:
		return []float64{x}, nil
	case float32:
		return []float64{float64(x)}, nil
	}
	t, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("the value is a %T", v)
	}
	if t.RequiresIterator() {
		t = t.Materialize().(*tensor.Dense)
	}
	switch t.Dtype() {
	case tensor.Int:
		var list []float64
		for _, x := range t.Data().([]int) {
			list = append(list, float64(x))
		}
		return list, nil
	case tensor.Int32:
		return convert(t.Data().([]int32), func(x int32) float64 { return float64(x) }), nil
	case tensor.Int64:
		var list []float64
		for _, x := range t.Data().([]int64) {
			list = append(list, float64(x))
		}
		return list, nil
	case tensor.Float64:
	default:
		var err error
		if t, err = ops.Converted(t, tensor.Float64); err != nil {
			return nil, err
		}
	}
	return slices.Clone(t.Float64s()[:t.Shape().TotalSize()]), nil
}

// same compares what two runs gave. bound is relative to the largest element, and for gradients to
// the terms of which they are sums too, which slopes gives.
func same(got, want *result, bound float64, slopes func() float64) error {
	if err := near("the cost", []float64{got.cost}, []float64{want.cost}, bound); err != nil {
		return err
	}
	for k := range min(len(got.read), len(want.read)) { // a lispMachine has none
		if got.read[k] == nil || want.read[k] == nil { // an input in one of the ways
			continue
		}
		if err := near(fmt.Sprint("what was read, ", k), got.read[k], want.read[k], bound); err != nil {
			return err
		}
	}
	typical := 0.0
	if bound > 0 {
		typical = slopes()
	}
	for _, d := range want.d {
		typical = max(typical, greatest(d))
	}
	for i, d := range got.d {
		if err := nearTo(fmt.Sprint("the gradient of ", i), d, want.d[i], bound, typical); err != nil {
			return err
		}
	}
	return nil
}

func near(what string, got, want []float64, bound float64) error {
	return nearTo(what, got, want, bound, 1)
}

func nearTo(what string, got, want []float64, bound, typical float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, it needs %d", what, len(got), len(want))
	}
	allowed := bound * max(greatest(want), typical)
	for i := range got {
		if math.Float64bits(got[i]) == math.Float64bits(want[i]) || math.IsNaN(got[i]) && math.IsNaN(want[i]) {
			continue
		}
		if bound == 0 || !(math.Abs(got[i]-want[i]) <= allowed) {
			return fmt.Errorf("%s[%d] is %.17g, it needs to be %.17g: %.3g are allowed", what, i, got[i], want[i], allowed)
		}
	}
	return nil
}

func greatest(x []float64) (largest float64) {
	for _, v := range x {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			largest = max(largest, math.Abs(v))
		}
	}
	return largest
}

// Outcome says what of a graph was compared: with the definition in float64 and in fewer bits, with
// second derivatives, with a lispMachine, and with regions computed again.
type Outcome struct{ Defined, Rounded, Second, Lisp, Regions bool }

// Check runs a graph in many ways. Which of the less usual ones follows from its seed.
func (g *Graph) Check() (o Outcome, err error) {
	if len(g.Losses)+len(g.Read) == 0 {
		return o, nil
	}
	c := &checker{Graph: g}
	c.try("plain", func() (err error) {
		c.plain, c.b, err = g.execute(way{})
		return err
	})
	c.try("a fourth run, as the first", func() error { return same(c.plain[runs-1], c.plain[0], 0, c.slopes) })
	c.try("by definition", func() (err error) {
		o.Defined, err = g.compareAll(c.plain, c.b)
		return err
	})
	o.Regions = len(g.Regions) > 0
	c.compareWays(way{}, c.plain)
	c.compareRounded(&o)
	if o.Lisp = !g.hasOwn() && !g.Empty && len(g.trained()) > 0; o.Lisp {
		c.try("lispMachine", func() error {
			lisp, _, err := g.execute(way{lisp: true})
			if err != nil {
				return err
			}
			return same(lisp[0], c.plain[0], 1e-10, c.slopes)
		})
	}
	if o.Defined && len(g.trained()) > 0 {
		c.try("second derivatives", func() (err error) {
			o.Second, err = g.checkSecond()
			return err
		})
	}
	return o, c.err
}

// checker keeps what a graph fails in first.
type checker struct {
	*Graph
	plain []*result
	b     *builder
	err   error
	size  float64 // what slopes found
}

// slopes is about the size of the terms of which gradients are sums: how much slopes change where
// each result is rounded, in units of the rounding. Where terms cancel, a gradient itself says
// nothing about the rounding in it.
func (c *checker) slopes() float64 {
	if c.size > 0 {
		return c.size
	}
	exact := newEvaluation(c.Graph, 0)
	exact.run()
	want, _ := exact.cost()
	c.size = math.SmallestNonzeroFloat64
	for k := range 4 {
		e := newEvaluation(c.Graph, 0)
		e.noise, e.half = rand.New(rand.NewPCG(c.Seed, uint64(k))), 0x1p-23
		e.run()
		cost, _ := e.cost()
		for _, d := range []float64{cost.a - want.a, cost.b - want.b} {
			if d = math.Abs(d) * 0x1p23; !math.IsNaN(d) && !math.IsInf(d, 0) {
				c.size = max(c.size, d)
			}
		}
	}
	return c.size
}

func (c *checker) try(name string, check func() error) {
	if c.err != nil {
		return
	}
	if err := check(); err != nil {
		c.err = &Failure{name, err}
	}
}

// compareRounded compares runs in float32, or in 16 bits where some of the graph has them, with
// each other and with the definition.
func (c *checker) compareRounded(o *Outcome) {
	w, unit := way{name: "float32", dtype: tensor.Float32}, 0x1p-8
	if c.hasHalf() {
		w.half = ops.BFloat16
		if c.Seed%2 == 0 {
			w.half, unit = ops.Float16, 0x1p-11
		}
		w.name = w.half.Name()
	}
	var list []*result
	c.try(w.name, func() (err error) {
		list, _, err = c.execute(w)
		return err
	})
	if c.hasHalf() || c.Seed%3 == 0 {
		c.compareWays(w, list)
	}
	c.try(w.name+" by definition", func() (err error) {
		o.Rounded, err = c.compareSingle(list[0], unit)
		return err
	})
}

// compareWays runs a graph in ways that promise the bits of a plain run, or nearly.
func (c *checker) compareWays(base way, plain []*result) {
	compare := func(name string, bound float64, change func(w *way)) {
		w := base
		if change(&w); base.name != "" {
			name = base.name + ", " + name
		}
		c.try(name, func() error {
			got, _, err := c.execute(w)
			if err != nil {
				return err
			}
			for at, r := range got {
				if err := same(r, plain[at], bound, c.slopes); err != nil {
					return fmt.Errorf("run %d: %w", at, err)
				}
			}
			return nil
		})
	}
	sometimes := c.Seed%4 > 0
	compare("shared memory", 0, func(w *way) { w.shared = true })
	compare("inference", 0, func(w *way) { w.inference, w.shared = true, sometimes })
	if len(c.Regions) > 0 {
		compare("computed again", c.boundOfRegions(base), func(w *way) { w.shared, w.regions = sometimes, true })
	}
	if base.name != "" {
		return
	}
	switch which := c.Seed % 4; {
	case which == 0:
		compare("Gorgonia's machine", 0, func(w *way) { w.bare, w.shared = true, true })
	case which == 1:
		compare("some gradients", 1e-10, func(w *way) { w.some, w.shared = true, true })
	case c.Empty || c.hasOwn():
	case which == 2:
		compare("Gradients", 1e-10, func(w *way) { w.gradients, w.shared = true, true })
	default:
		compare("views", 1e-10, func(w *way) { w.views, w.shared = true, true })
	}
}

// boundOfRegions is how much gradients may differ where regions are computed again: not at all,
// unless their terms are added in another order.
func (g *Graph) boundOfRegions(w way) float64 {
	switch {
	case g.sumsPairs():
		return 0
	case w.hasHalf(): // where differences of what was rounded may be all that there is
		return math.Inf(1)
	case w.dtype == tensor.Float32:
		return 1e-4
	}
	return 1e-10
}

// compareAll compares runs with the definition.
func (g *Graph) compareAll(list []*result, b *builder) (bool, error) {
	compared := false
	for at, r := range list[:runs-1] {
		e := newEvaluation(g, at)
		e.run()
		if !e.isTame(1e-7) {
			continue
		}
		compared = compared || at == 0
		if err := g.compare(r, b, e); err != nil {
			return true, fmt.Errorf("run %d: %w", at, err)
		}
	}
	return compared, nil
}

// isTame reports whether nothing is decided by rounding, and everything is a number.
func (e *evaluation) isTame(margin float64) bool {
	cost, _ := e.cost()
	if !(e.margin > margin) || math.IsNaN(cost.x+cost.a+cost.b+cost.c) || math.IsInf(cost.x+cost.a+cost.b+cost.c, 0) {
		return false
	}
	for node, list := range e.values {
		for out, a := range list {
			hides := e.g.hides(Ref{node, out})
			for _, x := range a.x {
				if hides && math.IsInf(x.x, -1) {
					continue
				}
				if !(math.Abs(x.x) < 1e3 && math.Abs(x.a) < 1e5 && math.Abs(x.b) < 1e5) {
					return false
				}
			}
		}
	}
	return true
}

// hasHalf reports whether some of the graph has 16 bits.
func (g *Graph) hasHalf() bool {
	return slices.ContainsFunc(g.Nodes, func(n Node) bool { return n.Half })
}

// hasOwn reports whether some of the ops are Gorgonia's own.
func (g *Graph) hasOwn() bool {
	return slices.ContainsFunc(g.Nodes, func(n Node) bool { return strings.HasPrefix(n.Op, "gorgonia.") })
}

func (a array) plain() (list []float64) {
	for _, x := range a.x {
		list = append(list, x.x)
	}
	for _, x := range a.ints {
		list = append(list, float64(x))
	}
	return list
}

func (g *Graph) compare(r *result, b *builder, e *evaluation) error {
	own := g.hasOwn()
	for i, list := range r.all {
		for out, x := range list {
			if x == nil || own {
				continue
			}
			if err := near(fmt.Sprintf("the value of %v", Ref{i, out}), x, e.values[i][out].plain(), 1e-9); err != nil {
				return err
			}
		}
	}
	for k, ref := range g.Read {
		if b.values[ref.Node][ref.Out].Op() == nil {
			continue
		}
		if err := near(fmt.Sprintf("what was read of %v", ref), r.read[k], e.values[ref.Node][ref.Out].plain(), 1e-9); err != nil {
			return err
		}
	}
	cost, terms := e.cost()
	if math.Abs(r.cost-cost.x) > 1e-9*(1+terms.x) && b.cost != nil {
		return fmt.Errorf("the cost is %.12g, it needs to be %.12g", r.cost, cost.x)
	}
	if b.trained == nil {
		return nil
	}
	return g.compareSlopes(r, cost, 1e-8*(1+terms.a+terms.b))
}

// compareSlopes compares gradients with the slopes along both directions.
func (g *Graph) compareSlopes(r *result, want jet, allowed float64) error {
	for of, slope := range []float64{want.a, want.b} {
		got, terms := 0.0, 0.0
		for i, d := range r.d {
			for k, along := range g.direction(&g.Nodes[i], uint64(of+1)) {
				got += d[k] * along
				terms += math.Abs(d[k] * along)
			}
		}
		if !(math.Abs(got-slope) <= allowed+1e-9*terms) {
			return fmt.Errorf("the gradient along direction %d is %.12g, it needs to be %.12g: they may differ by %.3g", of, got, slope, allowed+1e-9*terms)
		}
	}
	return nil
}

// compareSingle compares a run in float32, with parts in 16 bits of a unit, with the definition.
// What rounding may do is what it does to the definition, where each result is rounded at random.
func (g *Graph) compareSingle(r *result, unit float64) (bool, error) {
	exact := newEvaluation(g, 0)
	margin, floor := 1e-3, 1e-5
	if g.hasHalf() {
		margin, floor = 0.1, 8*unit
	}
	if exact.run(); !exact.isTame(margin) {
		return false, nil
	}
	var spread jet
	want, terms := exact.cost()
	for k := range 4 {
		e := newEvaluation(g, 0)
		e.noise, e.half = rand.New(rand.NewPCG(g.Seed, uint64(k))), unit
		e.run()
		c, _ := e.cost()
		spread.x, spread.a = max(spread.x, math.Abs(c.x-want.x)), max(spread.a, math.Abs(c.a-want.a), math.Abs(c.b-want.b))
	}
	if spread.x+spread.a > 0.02*(terms.x+terms.a+1) || g.hasHalf() && math.IsNaN(r.cost) {
		return false, nil // nothing is left of it
	}
	if allowed := 64*spread.x + floor*(1+terms.x); !(math.Abs(r.cost-want.x) <= allowed) && len(g.Losses) > 0 {
		return true, fmt.Errorf("the cost is %.9g, it needs to be %.9g: they may differ by %.3g", r.cost, want.x, allowed)
	}
	if len(r.d) == 0 {
		return true, nil
	}
	size := 0.0
	for i, d := range r.d {
		for k, along := range g.direction(&g.Nodes[i], 1) {
			size += math.Abs(d[k] * along)
		}
	}
	return true, g.compareSlopes(r, want, 64*spread.a+2*floor*(1+terms.a+terms.b+size))
}

// checkSecond checks second derivatives, if the graph has any.
func (g *Graph) checkSecond() (bool, error) {
	list, b, err := g.execute(way{second: true, shared: g.Seed%2 == 0})
	switch {
	case err != nil && (strings.Contains(err.Error(), "has no gradient") || strings.Contains(err.Error(), "needs to look up no floats")):
		return false, nil
	case err != nil:
		return true, err
	}
	for at, r := range list[:runs-1] {
		e := newEvaluation(g, at)
		if e.run(); !e.isTame(1e-7) {
			continue
		}
		cost, terms := e.cost()
		if math.Abs(r.cost-cost.a) > 1e-8*(1+terms.a) {
			return true, fmt.Errorf("run %d: the slope is %.12g, it needs to be %.12g", at, r.cost, cost.a)
		}
		got, size := 0.0, 0.0
		for _, i := range b.trained {
			for k, along := range g.direction(&g.Nodes[i], 2) {
				got += r.d[i][k] * along
				size += math.Abs(r.d[i][k] * along)
			}
		}
		if allowed := 1e-7*(1+terms.c) + 1e-8*size; !(math.Abs(got-cost.c) <= allowed) {
			return true, fmt.Errorf("run %d: the second derivative is %.12g, it needs to be %.12g: they may differ by %.3g", at, got, cost.c, allowed)
		}
	}
	return true, nil
}

// sumsPairs reports whether the order does not matter in which regions sum up gradients: whether no
// gradient is a sum of more than two, and nothing inside of a region is read outside.
func (g *Graph) sumsPairs() bool {
	readers := map[Ref][]int{}
	for i, n := range g.Nodes {
		for _, arg := range n.Args {
			readers[arg] = append(readers[arg], i)
			if n.Op == "Experts" {
				readers[arg] = append(readers[arg], i)
			}
		}
	}
	for _, r := range g.Losses {
		readers[r] = append(readers[r], len(g.Nodes))
	}
	for r, list := range readers {
		if len(list) > 2 || g.Nodes[r.Node].Op == "Cast" { // which may be nothing
			return false
		}
		for _, region := range g.Regions {
			if r.Node <= region.From || r.Node >= region.Out || g.Nodes[r.Node].isInput() {
				continue
			}
			for _, at := range list {
				if at > region.Out {
					return false
				}
			}
		}
	}
	return true
}
