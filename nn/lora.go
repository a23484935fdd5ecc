package nn

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LoRA describes changes of low rank to linear layers, which are trained in place of the weights:
// of a [Linear],
//
//	act(x·W + b)   becomes   act(x·W + b + scale·dropout(x)·A·B)
//
// with A of (In, Rank), which starts at random, and B of (Rank, Out), which starts at 0. They are
// parameters of the layer, lora_a and lora_b.
type LoRA struct {
	Rank    int
	Alpha   float64 // scale is Alpha/Rank; 0 means Rank, a scale of 1
	Dropout float64 // of what goes through A, while the graph trains; the same for queries, keys and values
	// RankStabilized makes scale Alpha/√Rank, so that it does not matter less the larger the rank
	// is.
	RankStabilized bool
	// Decomposed makes the changes DoRA's. The columns of V = W + scale·A·B then only give
	// directions. Their lengths are a parameter, lora_m of (Out), which starts as those of W: the
	// layer is act(x·(lora_m/‖V‖ ⊙ V) + b). To gradients ‖V‖ is a constant.
	Decomposed bool
	// Match picks linear layers by their names, such as blocks.3.attn.q; nil picks all.
	Match func(linear string) bool
	// Embeddings picks embeddings by their names; nil picks none. Their A is (Vocab, Rank) and
	// starts at 0, and their B starts at random. There is no dropout.
	Embeddings func(embedding string) bool
	// Sizes, if it is not nil, gives the layer of a name its own rank and alpha, in the place of
	// Rank and Alpha. An alpha of 0 means the rank.
	Sizes func(layer string) (rank int, alpha float64)
	// Whole, if it is not nil, picks further parameters, which are trained as they are.
	Whole func(parameter string) bool
	// Shared is the layer whose A a layer uses, itself or one of the same In: layers that other
	// programs keep as one matrix share it. Nil gives each its own.
	Shared func(linear string) string
}

// lowRank is a LoRA that layers are made with, and the changes that were made.
type lowRank struct {
	LoRA
	changes []change
	tied    []string                 // the weights of embeddings that heads use too
	whole   map[string]*tensor.Dense // the values that parameters trained whole had before
	before  func(name string) bool   // what was trained before
	merged  map[string]mergedChange  // by the weights; nil while they are not merged
}

// change is the names of a weight and of what changes it.
type change struct {
	weight, a, b string
	magnitude    string // empty where there is none
	scale        float64
}

// parts are the parameters of a change.
func (c change) parts() []string {
	if c.magnitude == "" {
		return []string{c.a, c.b}
	}
	return []string{c.a, c.b, c.magnitude}
}

// SetLoRA changes the linear layers that are made from now on. It freezes all parameters but the
// changes, see [Scope.Trainable]. It comes before the first layer that it is to change: a layer
// that was made without it stays as it is.
func (p *Parameters) SetLoRA(l LoRA) error {
	if _, err := l.scale(l.Rank, l.Alpha); err != nil {
		return fmt.Errorf("Parameters: %w", err)
	}
	if !(l.Dropout >= 0 && l.Dropout < 1) {
		return fmt.Errorf("Parameters: LoRA's dropout is %v, it needs to be in [0, 1)", l.Dropout)
	}
	if l.Match == nil {
		l.Match = func(string) bool { return true }
	}
	if l.Shared == nil {
		l.Shared = func(linear string) string { return linear }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lora != nil {
		return errors.New("Parameters: there is a LoRA already, it needs to be the only one, or TakeLoRA first")
	}
	set := &lowRank{LoRA: l, before: p.trains, whole: map[string]*tensor.Dense{}}
	for _, name := range p.names {
		if l.Whole == nil || !l.Whole(name) {
			continue
		}
		if d := p.values[name].Dtype(); isKept(d) {
			return fmt.Errorf("Parameters: %s is kept in %v, to be trained whole it needs to be float32", name, d)
		}
		set.whole[name] = p.values[name]
	}
	copies := map[string]*tensor.Dense{}
	for name, value := range set.whole {
		own, err := p.copied(value)
		if err != nil {
			return fmt.Errorf("Parameters: %s: %w", name, err)
		}
		copies[name] = own
	}
	maps.Copy(p.values, copies)
	p.setLoRA(set)
	return nil
}

// copied is a copy of a value where it lives.
func (p *Parameters) copied(value *tensor.Dense) (*tensor.Dense, error) {
	v, err := ops.Download(value)
	if err != nil || p.device != nil {
		if err == nil {
			v, err = p.device.Upload(v)
		}
		return v, err
	}
	return v.Clone().(*tensor.Dense), nil
}

// setLoRA makes a LoRA the one that layers are made with.
func (p *Parameters) setLoRA(l *lowRank) {
	p.lora = l
	p.trains = func(name string) bool {
		return l.Whole != nil && l.Whole(name) || slices.ContainsFunc(l.changes, func(c change) bool { return slices.Contains(c.parts(), name) })
	}
}

// scale is the factor of a change.
func (l *LoRA) scale(rank int, alpha float64) (float64, error) {
	switch {
	case rank < 1:
		return 0, fmt.Errorf("LoRA's rank is %d, it needs to be at least 1", rank)
	case !(alpha >= 0) || math.IsInf(alpha, 0):
		return 0, fmt.Errorf("LoRA's alpha is %v, it needs to be positive, or 0 for the rank", alpha)
	case alpha == 0:
		alpha = float64(rank)
	}
	if l.RankStabilized {
		return alpha / math.Sqrt(float64(rank)), nil
	}
	return alpha / float64(rank), nil
}

// size is the rank and the factor of the change of a layer.
func (l *LoRA) size(layer string) (rank int, scale float64, err error) {
	alpha := l.Alpha
	if rank = l.Rank; l.Sizes != nil {
		rank, alpha = l.Sizes(layer)
	}
	scale, err = l.scale(rank, alpha)
	return rank, scale, err
}

// FreezeRows keeps rows of an embedding, or of learned positions, from getting a gradient from what
// looks them up, such as the row of padding. It counts for graphs that are made after it.
func (p *Parameters) FreezeRows(name string, rows ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still == nil {
		p.still = map[string][]int{}
	}
	p.still[name] = slices.Clone(rows)
}

// frozenRows are the rows that FreezeRows named.
func (p *Parameters) frozenRows(name string) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.still[name]
}

// Freeze keeps parameters whose names match from being trained; see [Scope.Trainable]. It takes the
// place of what was frozen before; nil freezes none.
func (p *Parameters) Freeze(match func(name string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trains = nil; match != nil {
		p.trains = func(name string) bool { return !match(name) }
	}
}

// fix says that a parameter is a constant to gradients, which nothing else trains either.
func (p *Parameters) fix(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fixed == nil {
		p.fixed = map[string]bool{}
	}
	p.fixed[name] = true
}

// isTrained reports whether a parameter is neither frozen nor kept in less memory.
func (p *Parameters) isTrained(n *gorgonia.Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !isKept(n.Dtype()) && !p.fixed[n.Name()] && (p.trains == nil || p.trains(n.Name()))
}

// loraOf is the LoRA of a layer of the given name, nil for none.
func (p *Parameters) loraOf(layer string, embedding bool) *lowRank {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lora == nil:
		return nil
	case embedding && (p.lora.Embeddings == nil || !p.lora.Embeddings(layer)):
		return nil
	case !embedding && !p.lora.Match(layer):
		return nil
	}
	return p.lora
}

// linearChange is the change of one layer.
type linearChange struct {
	a, b, magnitude *gorgonia.Node // the last is nil but for DoRA
	scale           float64
	drop            *Dropout
}

// lora makes the parameters of the change that the layer's LoRA asks for; nil if there is none.
func (l layer) lora(in, out int) *linearChange {
	lora := l.changedBy(false)
	if lora == nil {
		return nil
	}
	rank, scale, err := lora.size(l.s.name)
	if !l.check(err) {
		return nil
	}
	names := change{weight: l.s.child("weight"), a: lora.Shared(l.s.name) + ".lora_a", b: l.s.child("lora_b"), scale: scale}
	c := &linearChange{scale: scale}
	if found := l.s.g.ByName(names.a); len(found) > 0 {
		if c.a, _ = ops.WholeOf(found[0]); !c.a.Shape().Eq(tensor.Shape{in, rank}) {
			l.failf("%s has shape %v, to share it needs to be (%d, %d)", names.a, []int(c.a.Shape()), in, rank)
		}
	} else {
		c.a = l.named(names.a, l.s.values.value, Uniform(1/math.Sqrt(float64(in))), in, rank)
	}
	c.b = l.named(names.b, l.s.values.value, Constant(0), rank, out)
	if lora.Decomposed {
		names.magnitude = l.s.child("lora_m")
		c.magnitude = l.named(names.magnitude, l.s.values.lengthsOf(names.weight), nil, out)
	}
	shared := *l.s
	shared.name = names.a
	c.drop = NewDropout(&shared, lora.Dropout)
	l.note(lora, names)
	return c
}

// loraOfEmbedding is lora for an embedding.
func (l layer) loraOfEmbedding(vocab, dim int) *linearChange {
	lora := l.changedBy(true)
	if lora == nil {
		return nil
	}
	rank, scale, err := lora.size(l.s.name)
	if lora.Decomposed && err == nil {
		err = errors.New("a DoRA changes linear layers alone, an embedding needs a LoRA that is not Decomposed")
	}
	if !l.check(err) {
		return nil
	}
	names := change{weight: l.s.child("weight"), a: l.s.child("lora_a"), b: l.s.child("lora_b"), scale: scale}
	c := &linearChange{scale: scale}
	c.a = l.named(names.a, l.s.values.value, Constant(0), vocab, rank)
	c.b = l.named(names.b, l.s.values.value, Normal(1), rank, dim)
	l.note(lora, names)
	return c
}

// changedBy is the LoRA that changes the layer, nil for none.
func (l layer) changedBy(embedding bool) *lowRank {
	if !l.isMade() {
		return nil
	}
	return l.s.values.loraOf(l.s.name, embedding)
}

// note keeps the names of a change that was made.
func (l layer) note(lora *lowRank, names change) {
	l.s.values.mu.Lock()
	defer l.s.values.mu.Unlock()
	if l.isMade() && !slices.Contains(lora.changes, names) {
		lora.changes = append(lora.changes, names)
	}
}

// lengthsOf gives a parameter the lengths of a weight's columns, if it has no value yet.
func (p *Parameters) lengthsOf(weight string) func(string, tensor.Dtype, Init, []int) (*tensor.Dense, error) {
	return func(name string, dtype tensor.Dtype, _ Init, shape []int) (*tensor.Dense, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.values[name] != nil {
			return p.get(name, dtype, nil, shape)
		}
		w := p.values[weight]
		switch {
		case p.holders != nil:
			return nil, fmt.Errorf("parameter %s: the values are shared out over ranks, a DoRA begins where they are whole", name)
		case isKept(w.Dtype()):
			return nil, fmt.Errorf("parameter %s: %s is kept in %v, beside a DoRA it needs to be float32", name, weight, w.Dtype())
		}
		whole, err := ops.Download(w)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		lengths := lengthsOfColumns(whole)
		next := 0
		value := fill(dtype, shape, func() float64 { next++; return lengths[next-1] })
		if p.device != nil {
			if value, err = p.device.Upload(value); err != nil {
				return nil, fmt.Errorf("parameter %s: %w", name, err)
			}
		}
		p.add(name, value)
		p.use(name)
		return value, nil
	}
}

// lengthsOfColumns are the lengths of a matrix's columns.
func lengthsOfColumns(w *tensor.Dense) []float64 {
	columns := w.Shape()[1]
	sums := make([]float64, columns)
	switch data := w.Data().(type) {
	case []float32:
		for i, x := range data {
			sums[i%columns] += float64(x) * float64(x)
		}
	case []float64:
		for i, x := range data {
			sums[i%columns] += x * x
		}
	}
	for i, sum := range sums {
		sums[i] = math.Sqrt(sum)
	}
	return sums
}

// of is the change as a layer of x has it.
func (c *linearChange) of(x Tensor) ops.Change {
	if c == nil {
		return ops.Change{}
	}
	change := ops.Change{A: c.a, B: c.b, Scale: c.scale}
	if in := c.drop.Forward(x); in.n != x.n {
		change.In = in.n
	}
	return change
}

// changesOf are the changes of layers of x that are computed together. The same elements of x are
// dropped for all of them.
func changesOf(x Tensor, layers ...*Linear) []ops.Change {
	list := make([]ops.Change, len(layers))
	var in *gorgonia.Node
	for i, l := range layers {
		switch {
		case l.change == nil:
		case in == nil:
			list[i] = l.change.of(x)
			in = list[i].In
		default:
			list[i] = ops.Change{A: l.change.a, B: l.change.b, Scale: l.change.scale, In: in}
		}
	}
	return list
}

// drops reports whether something of what goes through A is dropped.
func (c *linearChange) drops() bool { return c != nil && c.drop.p > 0 }

// isDecomposed reports whether the change is a DoRA's.
func (c *linearChange) isDecomposed() bool { return c != nil && c.magnitude != nil }

// decomposed is the layer with a DoRA. What is dropped counts for the direction alone, as in peft:
// x·W is of all of x.
func (l *Linear) decomposed(x Tensor) Tensor {
	c := l.change
	node := func(n *gorgonia.Node) Tensor { return l.s.of(n, nil) }
	direction := node(l.weight).Add(node(c.a).MatMul(node(c.b)).Mul(c.scale))
	factor := node(c.magnitude).Div(direction.Square().Sum(0).Sqrt().Detach())
	dropped := c.drop.Forward(x)
	product := func(x Tensor, change ops.Change) Tensor {
		if x.failed() {
			return x
		}
		return l.s.of(ops.Linear(x.n, l.weight, nil, ops.LinearOptions{Change: change}))
	}
	y := product(dropped, ops.Change{A: c.a, B: c.b, Scale: c.scale})
	y = y.Mul(factor.Cast(y.DType()))
	if dropped.n != x.n {
		y = y.Add(product(x, ops.Change{})).Sub(product(dropped, ops.Change{}))
	}
	if l.bias != nil {
		y = y.Add(node(l.bias).Cast(y.DType()))
	}
	return y.activate(l.c.Activation)
}
