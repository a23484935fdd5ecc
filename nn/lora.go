package nn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
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
	// Match picks linear layers by their names, such as blocks.3.attn.q; nil picks all.
	Match func(linear string) bool
	// Shared is the layer whose A a layer uses, itself or one of the same In: layers that other
	// programs keep as one matrix share it. Nil gives each its own.
	Shared func(linear string) string
}

// lowRank is a LoRA that layers are made with, and the changes that were made.
type lowRank struct {
	LoRA
	scale   float64
	changes []change
	merged  map[string]*tensor.Dense // what the Bs were before they were merged; nil while they are not
}

// change is the names of a weight and of what changes it.
type change struct{ weight, a, b string }

// SetLoRA changes the linear layers that are made from now on. It freezes all parameters but the
// changes, see [Scope.Trainable]. It comes before the first layer that it is to change: a layer
// that was made without it stays as it is.
func (p *Parameters) SetLoRA(l LoRA) error {
	switch {
	case l.Rank < 1:
		return fmt.Errorf("Parameters: LoRA's rank is %d, it needs to be at least 1", l.Rank)
	case !(l.Alpha >= 0) || math.IsInf(l.Alpha, 0):
		return fmt.Errorf("Parameters: LoRA's alpha is %v, it needs to be positive, or 0 for the rank", l.Alpha)
	case !(l.Dropout >= 0 && l.Dropout < 1):
		return fmt.Errorf("Parameters: LoRA's dropout is %v, it needs to be in [0, 1)", l.Dropout)
	}
	if l.Alpha == 0 {
		l.Alpha = float64(l.Rank)
	}
	if l.Match == nil {
		l.Match = func(string) bool { return true }
	}
	if l.Shared == nil {
		l.Shared = func(linear string) string { return linear }
	}
	scale := l.Alpha / float64(l.Rank)
	if l.RankStabilized {
		scale = l.Alpha / math.Sqrt(float64(l.Rank))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lora != nil {
		return errors.New("Parameters: there is a LoRA already, it needs to be the only one")
	}
	p.lora = &lowRank{LoRA: l, scale: scale}
	p.trains = func(name string) bool {
		return slices.ContainsFunc(p.lora.changes, func(c change) bool { return name == c.a || name == c.b })
	}
	return nil
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

// loraOf is the LoRA of a linear layer of the given name, nil for none.
func (p *Parameters) loraOf(linear string) *lowRank {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lora == nil || !p.lora.Match(linear) {
		return nil
	}
	return p.lora
}

// MergeLoRA adds what the changes are to the weights and sets the changes to zero, so that graphs
// made without a LoRA, and the weights when they are saved, have it in them. What graphs compute
// stays the same to rounding, but it is not to be trained before [Parameters.UnmergeLoRA].
func (p *Parameters) MergeLoRA() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lora == nil {
		return errors.New("Parameters: there is no LoRA to merge, it needs SetLoRA and a layer first")
	}
	if p.holders != nil {
		return errors.New("Parameters: the values are shared out over ranks, a LoRA can be merged where they are whole")
	}
	if p.lora.merged != nil {
		return errors.New("Parameters: the LoRA is merged already, it needs UnmergeLoRA first")
	}
	merged := map[string]*tensor.Dense{}
	for _, c := range p.lora.changes {
		b, err := ops.Download(p.values[c.b])
		if err == nil {
			merged[c.b] = b.Clone().(*tensor.Dense)
			err = p.addChange(c, p.lora.scale)
		}
		if err == nil {
			err = ops.Assign(p.values[c.b], filled(0, b.Dtype(), b.Shape()))
		}
		if err != nil {
			return fmt.Errorf("Parameters: merging %s: %w", c.b, err)
		}
	}
	p.lora.merged = merged
	return nil
}

// UnmergeLoRA takes back what [Parameters.MergeLoRA] did, to rounding.
func (p *Parameters) UnmergeLoRA() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lora == nil || p.lora.merged == nil {
		return errors.New("Parameters: there is no LoRA that is merged, it needs MergeLoRA first")
	}
	for _, c := range p.lora.changes {
		err := ops.Assign(p.values[c.b], p.lora.merged[c.b])
		if err == nil {
			err = p.addChange(c, -p.lora.scale)
		}
		if err != nil {
			return fmt.Errorf("Parameters: taking %s back: %w", c.b, err)
		}
	}
	p.lora.merged = nil
	return nil
}

// HasLoRA reports whether there is a LoRA, and whether it is merged into the weights.
func (p *Parameters) HasLoRA() (set, merged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lora != nil, p.lora != nil && p.lora.merged != nil
}

// addChange is W ← W + scale·A·B, where the values live.
func (p *Parameters) addChange(c change, scale float64) error {
	if d := p.values[c.weight].Dtype(); isKept(d) {
		return fmt.Errorf("%s is kept in %v, which would round away much of what is added", c.weight, d)
	}
	a, err := ops.Download(p.values[c.a])
	if err != nil {
		return err
	}
	next, each := 0, func() float64 { return 0 }
	switch data := a.Data().(type) {
	case []float32:
		each = func() float64 { next++; return scale * float64(data[next-1]) }
	case []float64:
		each = func() float64 { next++; return scale * data[next-1] }
	}
	scaled := fill(a.Dtype(), a.Shape(), each)
	if p.device != nil {
		if scaled, err = p.device.Upload(scaled); err != nil {
			return err
		}
	}
	b, err := ops.PlaceOf(p.values[c.weight])
	if err != nil {
		return err
	}
	var views [3]kernels.Tensor
	for i, v := range []*tensor.Dense{scaled, p.values[c.b], p.values[c.weight]} {
		if views[i], err = ops.TensorOf(v); err != nil {
			return err
		}
	}
	if err := b.MatMul(&kernels.MatMul{A: views[0], B: views[1], Accumulate: true}, kernels.MatMulOutputs{C: views[2]}); err != nil {
		return err
	}
	return b.Synchronize()
}

// linearChange is the change of one linear layer.
type linearChange struct {
	a, b  *gorgonia.Node
	scale float64
	drop  *Dropout
}

// lora makes the parameters of the change that the layer's LoRA asks for; nil if there is none.
func (l layer) lora(in, out int) *linearChange {
	if !l.isMade() {
		return nil
	}
	lora := l.s.values.loraOf(l.s.name)
	if lora == nil {
		return nil
	}
	names := change{l.s.child("weight"), lora.Shared(l.s.name) + ".lora_a", l.s.child("lora_b")}
	c := &linearChange{scale: lora.scale}
	if found := l.s.g.ByName(names.a); len(found) > 0 {
		if c.a, _ = ops.WholeOf(found[0]); !c.a.Shape().Eq(tensor.Shape{in, lora.Rank}) {
			l.failf("%s has shape %v, to share it needs to be (%d, %d)", names.a, []int(c.a.Shape()), in, lora.Rank)
		}
	} else {
		c.a = l.named(names.a, l.s.values.value, Uniform(1/math.Sqrt(float64(in))), in, lora.Rank)
	}
	c.b = l.named(names.b, l.s.values.value, Constant(0), lora.Rank, out)
	shared := *l.s
	shared.name = names.a
	c.drop = NewDropout(&shared, lora.Dropout)
	l.s.values.mu.Lock()
	defer l.s.values.mu.Unlock()
	if l.isMade() && !slices.Contains(lora.changes, names) {
		lora.changes = append(lora.changes, names)
	}
	return c
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
