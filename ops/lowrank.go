package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Change is a change of low rank to a linear layer: its product x·W becomes
//
//	x·W + Scale·In·A·B
//
// which is computed with it. The zero value is no change.
type Change struct {
	A, B  *gorgonia.Node // (in, rank) and (rank, out), of one type
	Scale float64
	// In is what goes through A, of x's shape and type, such as x of which something is dropped;
	// nil is x itself.
	In *gorgonia.Node
}

// lowRank is the changes of layers of one x, by their scales; none has a scale of 0. It has three
// inputs for each layer: A, B and In, which are left out where a layer has no change. It is empty
// where no layer has one.
//
// With t = Scale·In·A and dt = Scale·dy·Bᵀ of each layer,
//
//	y = x·W + t·B      dx = dy·Wᵀ + dt·Aᵀ      dA = Inᵀ·dt      dB = tᵀ·dy
//
// and dIn has the part of A where it is not x. Layers may have one In, which is the input of the
// first of them. In 16 bits the As lie side by side, (in, all ranks),
// and so do the ts and their gradients; the Bs lie in the blocks of a matrix that is 0 elsewhere,
// (all ranks, all outs). So one product does for all layers what a layer needs.
type lowRank struct {
	scales []float64
	inOf   []int // the layer whose In goes through A of each; −1 for x
}

const inputsOfChange = 3

// What the changes save, behind what their layers do: t, A and B in the type of x.
const lowRankT, lowRankA, lowRankB = 0, 1, 2

// newLowRank gives the changes of so many layers, and their inputs. names are those of the layers'
// weights.
func newLowRank(x *gorgonia.Node, names []string, changes []Change) (l lowRank, inputs []input, err error) {
	if !slices.ContainsFunc(changes, func(c Change) bool { return c != Change{} }) {
		return l, nil, nil
	}
	if len(changes) != len(names) {
		return l, nil, fmt.Errorf("there are %d changes for %d weights, it needs as many, or none", len(changes), len(names))
	}
	for i, c := range changes {
		isNone := c == Change{}
		if !isNone && c.Scale == 0 {
			return l, nil, fmt.Errorf("the scale of the change of %s is 0, it needs to be another number", names[i])
		}
		l.scales, l.inOf = append(l.scales, c.Scale), append(l.inOf, -1)
		if c.In != nil {
			l.inOf[i] = slices.IndexFunc(changes, func(other Change) bool { return other.In == c.In })
			if l.inOf[i] < i {
				c.In = nil // it is an input already
			}
		}
		inputs = append(inputs,
			input{name: "a of " + names[i], node: c.A, form: stridedForm, roundsTo: floatOf(x), optional: isNone},
			input{name: "b of " + names[i], node: c.B, form: stridedForm, roundsTo: floatOf(x), optional: isNone},
			input{name: "in of " + names[i], node: c.In, form: denseForm, optional: true, again: true})
	}
	return l, inputs, nil
}

// inputX is the input x of layers. Where weights do not train beside the changes, what a norm made
// is the largest part of what an op keeps for its gradients, and takes little time to make again.
func (l lowRank) inputX(x *gorgonia.Node) input {
	return input{name: "x", node: x, form: denseForm, again: len(l.scales) > 0}
}

// changed is the change of a layer, or its gradients.
type changed struct{ a, b, in kernels.Tensor }

// changes are the changes among their inputs.
func (l lowRank) changes(in tensors) (list []changed) {
	for i := range l.scales {
		each := in[i*inputsOfChange:][:inputsOfChange]
		list = append(list, changed{each[0], each[1], each[2]})
	}
	return list
}

// check makes sure that changes go together with their layers.
func (l lowRank) check(x kernels.Tensor, names []string, weights, in tensors) error {
	for i, c := range l.changes(in) {
		if l.scales[i] == 0 {
			continue
		}
		if err := kernels.ValidateFactor(l.scales[i], x.DType); err != nil {
			return fmt.Errorf("the change of %s: %w", names[i], err)
		}
		features, outs := weights[i].Shape[0], weights[i].Shape[1]
		switch a, b := c.a, c.b; {
		case len(a.Shape) != 2 || a.Shape[0] != features:
			return fmt.Errorf("a of %s has shape %v, it needs (%d, rank)", names[i], a.Shape, features)
		case len(b.Shape) != 2 || b.Shape[0] != a.Shape[1] || b.Shape[1] != outs:
			return fmt.Errorf("b of %s has shape %v, it needs (%d, %d)", names[i], b.Shape, a.Shape[1], outs)
		case a.DType != x.DType && a.DType != x.DType.Wide():
			return errParameter("a of "+names[i], a, x)
		case b.DType != a.DType:
			return fmt.Errorf("b of %s is %v, its a is %v: they need one dtype", names[i], b.DType, a.DType)
		}
		if c.in.IsSet() {
			if err := checkSame("in of "+names[i], c.in, "x", x); err != nil {
				return err
			}
		}
	}
	return nil
}

// named lists the names of the layers' weights that have changes.
func (l lowRank) named(names []string) (changed []string) {
	for i, s := range l.scales {
		if s != 0 {
			changed = append(changed, names[i])
		}
	}
	return changed
}

// saves describes what the changes save.
func (l lowRank) saves(x kernels.Tensor, in tensors) tensors {
	if len(l.scales) == 0 {
		return nil
	}
	places := l.places(x.DType, l.changes(in))
	return tensors{lowRankT: kernels.Contiguous(nil, x.DType, asMatrix(x).Shape[0], places[len(places)-1]), lowRankB: {}}
}

// places are the columns of t at which those of each layer begin, and at which the last ones end.
// In 16 bits they are multiples of 8, so that every layer's part begins where a device reads well;
// what lies between is 0.
func (l lowRank) places(dtype kernels.DType, list []changed) []int {
	places := []int{0}
	for i, c := range list {
		columns := 0
		if l.scales[i] != 0 {
			columns = c.a.Shape[1]
		}
		if dtype != dtype.Wide() {
			columns = (columns + 7) &^ 7
		}
		places = append(places, places[i]+columns)
	}
	return places
}

// lowRankRun is the changes in one run.
type lowRankRun struct {
	lowRank
	*run
	first   int            // of what they save, among what the op does
	x       kernels.Tensor // a matrix
	up      kernels.Tensor // in backward, where set: silu(x)·up is what x was
	list    []changed
	weights tensors
	places  []int
	blocks  []int // the columns of allB at which the layers' begin

	t          kernels.Tensor
	allA, allB kernels.Tensor // in 16 bits
}

// begin gives the changes of layers in a run; in forward it computes t. first is the first of what
// they save, x is a matrix.
func (l lowRank) begin(r *run, first int, x kernels.Tensor, weights, in tensors) (*lowRankRun, error) {
	c := &lowRankRun{lowRank: l, run: r, first: first, x: x, list: l.changes(in), weights: weights}
	if len(l.scales) == 0 {
		return c, nil
	}
	c.places = l.places(x.DType, c.list)
	for i := range weights {
		c.blocks = append(c.blocks, columnsOf(weights[:i]))
	}
	if err := c.round(); err != nil {
		return nil, err
	}
	if c.t = r.saved(first + lowRankT); r.backward {
		return c, nil
	}
	if !c.t.IsSet() {
		var err error
		if c.t, err = r.scratch(x.DType, x.Shape[0], c.ranks()); err != nil {
			return nil, err
		}
	}
	return c, c.project()
}

// ranks is the number of columns of t.
func (c *lowRankRun) ranks() int { return c.places[len(c.places)-1] }

// has reports whether a layer has a change.
func (c *lowRankRun) has(i int) bool { return i < len(c.scales) && c.scales[i] != 0 }

// readOne reports whether one input goes through A of all layers that have a change.
func (c *lowRankRun) readOne() bool { return len(slices.Compact(c.sources())) == 1 }

// sources are the layers whose In goes through A of those that have a change, −1 for x.
func (c *lowRankRun) sources() (list []int) {
	for i, from := range c.inOf {
		if c.has(i) {
			list = append(list, from)
		}
	}
	return list
}

// input is what goes through A of a layer, as a matrix.
func (c *lowRankRun) input(i int) kernels.Tensor {
	if from := c.inOf[i]; from >= 0 {
		return asMatrix(c.list[from].in)
	}
	return c.x
}

// of is a layer's part of t, or of its gradient, with the zeros behind it.
func (c *lowRankRun) of(t kernels.Tensor, i int) kernels.Tensor {
	return t.Slice(1, c.places[i], c.places[i+1])
}

// ofRank is the same without the zeros.
func (c *lowRankRun) ofRank(t kernels.Tensor, i int) kernels.Tensor {
	return t.Slice(1, c.places[i], c.places[i]+c.list[i].a.Shape[1])
}

// a and b are the factors of a layer in the type of x, with zeros as behind its part of t.
func (c *lowRankRun) a(i int) kernels.Tensor {
	if c.allA.IsSet() {
		return c.of(c.allA, i)
	}
	return c.list[i].a
}

func (c *lowRankRun) b(i int) kernels.Tensor {
	if c.allB.IsSet() {
		return c.block(c.allB, i, c.places[i+1]-c.places[i])
	}
	return c.list[i].b
}

// block is the part of allB, or of a matrix like it, that is a layer's, in so many rows.
func (c *lowRankRun) block(all kernels.Tensor, i, rows int) kernels.Tensor {
	from, first := c.blocks[i], c.places[i]
	return all.Slice(0, first, first+rows).Slice(1, from, from+c.weights[i].Shape[1])
}

// round makes A and B of all layers in 16 bits.
func (c *lowRankRun) round() (err error) {
	if dtype := c.x.DType; dtype == dtype.Wide() {
		return nil
	}
	var as, bs tensors
	for _, l := range c.list {
		as, bs = append(as, l.a), append(bs, l.b)
	}
	c.allA, err = c.rounding(lowRankA, c.weights[0].Shape[0], c.ranks(), as, c.ofRank)
	if err == nil {
		c.allB, err = c.rounding(lowRankB, c.ranks(), columnsOf(c.weights), bs, func(all kernels.Tensor, i int) kernels.Tensor {
			return c.block(all, i, bs[i].Shape[0])
		})
	}
	return err
}

// layout is how a device reads A or B of all layers best: as their weights lie, which the products
// of both are added to.
func (c *lowRankRun) layout(save int) kernels.RoundedLayout {
	byColumns := !slices.ContainsFunc(c.weights, func(w kernels.Tensor) bool { return w.Strides[0] != 1 })
	return kernels.RoundedLayout{Blocks: save == lowRankB, Transposed: byColumns}
}

// rounding gives matrices in the type of x, at their places in one matrix that is 0 elsewhere, and
// saves it in forward. Where they fill it side by side, or are its blocks, a device may keep it.
func (c *lowRankRun) rounding(save, rows, columns int, from tensors, place func(all kernels.Tensor, i int) kernels.Tensor) (all kernels.Tensor, err error) {
	at, rest := c.first+save, columns
	if all = c.run.saved(at); all.IsSet() {
		return all, nil
	}
	for _, t := range from {
		if t.IsSet() && t.Shape[0] == rows {
			rest -= t.Shape[1]
		}
	}
	saves, layout := !c.backward && c.wanted != nil, c.layout(save)
	if (rest == 0 || layout.Blocks) && !slices.ContainsFunc(from, func(t kernels.Tensor) bool { return !t.IsSet() }) {
		if all, err = c.roundedInAnyRun(c.x.DType, layout, from...); err != nil || all.IsSet() {
			if saves {
				c.c.last.saved[at] = all
			}
			return all, err
		}
	}
	shape := []int{rows, columns}
	if layout.Transposed {
		shape = []int{columns, rows}
	}
	if saves {
		all, err = c.keep(at, c.x.DType, shape...)
	} else {
		all, err = c.scratch(c.x.DType, shape...)
	}
	if layout.Transposed && err == nil {
		if all = all.Permute(1, 0); saves {
			c.c.last.saved[at] = all
		}
	}
	if err == nil && rest > 0 {
		err = c.Fill(all, 0)
	}
	for i, t := range from {
		if err == nil && t.IsSet() {
			err = c.Copy(place(all, i), t)
		}
	}
	return all, err
}

// project computes t.
func (c *lowRankRun) project() error {
	if c.allA.IsSet() && c.readOne() {
		x := c.input(c.firstChanged())
		if done, err := c.thin(x, c.allA, kernels.Tensor{}, kernels.ThinOutputs{Across: c.t}); done || err != nil {
			return err
		}
		if err := c.product(x, c.allA, kernels.Tensor{}, c.t); err != nil {
			return err
		}
		return c.scale(c.t)
	}
	for i := range c.list {
		if !c.has(i) {
			continue
		}
		if err := c.product(c.input(i), c.a(i), kernels.Tensor{}, c.of(c.t, i)); err != nil {
			return err
		}
	}
	return c.scale(c.t)
}

// thin computes x·right, which is t or its gradient and is scaled, and leftᵀ·x, if the device has a
// kernel that reads x once for them. Either of right and left may be left out.
func (c *lowRankRun) thin(x, right, left kernels.Tensor, out kernels.ThinOutputs) (done bool, err error) {
	device, ok := c.Backend.(kernels.ThinKernels)
	p := kernels.ThinProducts{X: x, Right: right, Left: left, Scale: 1}
	if !right.IsSet() { // x is not the gradient of the outputs
		p.Up = c.up
	}
	scale, isOne := c.oneScale()
	if isOne {
		p.Scale = scale
	}
	if !ok || !device.TakesThinProducts(&p, len(out.Down)) {
		return false, nil
	}
	if err := device.ThinProducts(&p, out); err != nil || isOne || !right.IsSet() {
		return true, err
	}
	return true, c.scale(out.Across)
}

// takesGate reports whether the device has a kernel for the gradient of A of a layer whose x was
// silu(gate)·up.
func (c *lowRankRun) takesGate(gate, up kernels.Tensor) bool {
	device, ok := c.Backend.(kernels.ThinKernels)
	p := kernels.ThinProducts{X: gate, Up: up, Left: c.t, Scale: 1}
	return ok && c.allA.IsSet() && device.TakesThinProducts(&p, 1)
}

// oneScale is the scale of all changes, if they have one.
func (c *lowRankRun) oneScale() (scale float64, isOne bool) {
	list := slices.DeleteFunc(slices.Clone(c.scales), func(s float64) bool { return s == 0 })
	return list[0], len(slices.Compact(list)) == 1
}

// scale multiplies each layer's part of t, or of its gradient, by its scale.
func (c *lowRankRun) scale(t kernels.Tensor) error {
	if scale, isOne := c.oneScale(); isOne {
		if scale == 1 {
			return nil
		}
		return c.MulScalar(scale, t, t)
	}
	for i, s := range c.scales {
		if s == 0 || s == 1 {
			continue
		}
		if err := c.MulScalar(s, c.of(t, i), c.of(t, i)); err != nil {
			return err
		}
	}
	return nil
}

// plus is what is added to the product of one layer.
func (c *lowRankRun) plus(i int) []kernels.Factors {
	if !c.has(i) {
		return nil
	}
	return []kernels.Factors{{A: c.of(c.t, i), B: c.b(i)}}
}

// plusAll is what is added to the product of all layers, in 16 bits.
func (c *lowRankRun) plusAll() []kernels.Factors {
	if len(c.scales) == 0 {
		return nil
	}
	return []kernels.Factors{{A: c.t, B: c.allB}}
}

// gradients computes those of the changes that are set in d, from those of the layers' outputs,
// dys, which in 16 bits may lie side by side in all. It gives what is added to the gradient of x,
// if that is wanted.
func (c *lowRankRun) gradients(dys tensors, all kernels.Tensor, d tensors, ofX bool) (plus []kernels.Factors, err error) {
	if len(c.scales) == 0 {
		return nil, nil
	}
	list := c.changes(d)
	if !ofX && !slices.ContainsFunc(d, kernels.Tensor.IsSet) {
		return nil, nil
	}
	dt, err := c.scratchLike(c.t)
	if err != nil {
		return nil, err
	}
	if done, err := c.gradientsAtOnce(all, dt, list); err != nil {
		return nil, err
	} else if !done {
		if err := errors.Join(c.gradientsOfB(dys, all, list), c.gradientOfT(dys, all, dt)); err != nil {
			return nil, err
		}
	}
	if err := c.gradientsOfA(dt, list); err != nil {
		return nil, err
	}
	for i, l := range list {
		if !l.in.IsSet() {
			continue
		}
		products := c.throughA(dt, i)
		m := kernels.MatMul{A: products[0].A, B: products[0].B, Plus: products[1:]}
		if err := c.matMulBesideLayers(&m, kernels.MatMulOutputs{C: asMatrix(l.in)}); err != nil {
			return nil, err
		}
	}
	if !ofX {
		return nil, nil
	}
	return c.throughA(dt, -1), nil
}

// throughA is the products whose sum is the gradient of what goes through A of the layers that read
// one In, or x.
func (c *lowRankRun) throughA(dt kernels.Tensor, from int) (products []kernels.Factors) {
	if c.allA.IsSet() && c.readOne() && c.inOf[c.firstChanged()] == from {
		return []kernels.Factors{{A: dt, B: c.allA.Permute(1, 0)}}
	}
	for i, of := range c.inOf {
		if c.has(i) && of == from {
			products = append(products, kernels.Factors{A: c.of(dt, i), B: c.a(i).Permute(1, 0)})
		}
	}
	return products
}

// firstChanged is the first layer that has a change.
func (c *lowRankRun) firstChanged() int {
	return slices.IndexFunc(c.scales, func(s float64) bool { return s != 0 })
}

// product computes a·b, which is no linear layer's.
func (c *lowRankRun) product(a, b, bias, out kernels.Tensor) error {
	return c.matMulBesideLayers(&kernels.MatMul{A: a, B: b, Bias: bias}, kernels.MatMulOutputs{C: out})
}

// gradientsAtOnce computes dt and dB of all layers, if the device has a kernel for both: they read
// the gradients of the outputs, side by side, once.
func (c *lowRankRun) gradientsAtOnce(all, dt kernels.Tensor, list []changed) (done bool, err error) {
	if !all.IsSet() || !c.allB.IsSet() {
		return false, nil
	}
	var ofB []kernels.ThinPart
	for i, l := range list {
		if l.b.IsSet() {
			ofB = append(ofB, kernels.ThinPart{Out: l.b, Rank: c.places[i], Column: c.blocks[i]})
		}
	}
	left := c.t
	if ofB == nil {
		left = kernels.Tensor{}
	}
	return c.thin(all, c.allB.Permute(1, 0), left, kernels.ThinOutputs{Across: dt, Down: ofB})
}

// gradientOfT computes dt of all layers.
func (c *lowRankRun) gradientOfT(dys tensors, all, dt kernels.Tensor) (err error) {
	if all.IsSet() && c.allB.IsSet() {
		if err := c.product(all, c.allB.Permute(1, 0), kernels.Tensor{}, dt); err != nil {
			return err
		}
		return c.scale(dt)
	}
	for i, dy := range dys {
		switch {
		case !c.has(i):
		case dy.IsSet():
			err = c.product(dy, c.b(i).Permute(1, 0), kernels.Tensor{}, c.of(dt, i))
		default:
			err = c.Fill(c.of(dt, i), 0)
		}
		if err != nil {
			return err
		}
	}
	return c.scale(dt)
}

// gradientsOfB computes dB of all layers: where their outputs' gradients lie side by side as the
// blocks of one product, of which the others are left.
func (c *lowRankRun) gradientsOfB(dys tensors, all kernels.Tensor, list []changed) error {
	if all.IsSet() && len(list) > 1 && !slices.ContainsFunc(list, func(l changed) bool { return !l.b.IsSet() }) {
		blocks, err := c.scratch(c.x.DType.Wide(), c.ranks(), all.Shape[1])
		if err == nil {
			err = c.product(c.t.Permute(1, 0), all, kernels.Tensor{}, blocks)
		}
		for i, l := range list {
			if err == nil {
				err = c.Copy(l.b, c.block(blocks, i, l.b.Shape[0]))
			}
		}
		return err
	}
	for i, l := range list {
		if !l.b.IsSet() {
			continue
		}
		var err error
		if dys[i].IsSet() {
			err = c.product(c.ofRank(c.t, i).Permute(1, 0), dys[i], kernels.Tensor{}, l.b)
		} else {
			err = c.Fill(l.b, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gradientsOfA computes dA of all layers: where they read one input as parts of one product.
func (c *lowRankRun) gradientsOfA(dt kernels.Tensor, list []changed) error {
	if c.allA.IsSet() && c.readOne() {
		var ofA []kernels.ThinPart
		for i, l := range list {
			if l.a.IsSet() {
				ofA = append(ofA, kernels.ThinPart{Out: l.a.Permute(1, 0), Rank: c.places[i]})
			}
		}
		if ofA == nil {
			return nil
		}
		x := c.input(c.firstChanged())
		if done, err := c.thin(x, kernels.Tensor{}, dt, kernels.ThinOutputs{Down: ofA}); done || err != nil {
			return err
		}
	}
	if c.allA.IsSet() && c.readOne() && len(list) > 1 && !slices.ContainsFunc(list, func(l changed) bool { return !l.a.IsSet() }) {
		all, err := c.scratch(c.x.DType.Wide(), c.x.Shape[1], c.ranks())
		if err == nil {
			err = c.product(c.input(0).Permute(1, 0), dt, kernels.Tensor{}, all)
		}
		for i, l := range list {
			if err == nil {
				err = c.Copy(l.a, c.ofRank(all, i))
			}
		}
		return err
	}
	for i, l := range list {
		if !l.a.IsSet() {
			continue
		}
		if err := c.product(c.input(i).Permute(1, 0), c.ofRank(dt, i), kernels.Tensor{}, l.a); err != nil {
			return err
		}
	}
	return nil
}
