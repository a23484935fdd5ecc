package nn

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// mergedChange is what takes a change out of a weight again.
type mergedChange struct {
	b       *tensor.Dense
	factors []float64 // of the columns; nil but for a DoRA
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
	for _, c := range p.lora.changes {
		if slices.Contains(p.lora.tied, c.weight) {
			return fmt.Errorf("Parameters: merging %s: %s makes logits too, which the LoRA does not change", c.b, c.weight)
		}
	}
	merged := map[string]mergedChange{}
	for _, c := range p.lora.changes { // what cannot be merged is known before a weight changes
		m, err := p.merging(c)
		if err != nil {
			return fmt.Errorf("Parameters: merging %s: %w", c.b, err)
		}
		merged[c.weight] = m
	}
	for _, c := range p.lora.changes {
		if err := p.merge(c, merged[c.weight]); err != nil {
			return fmt.Errorf("Parameters: merging %s: %w", c.b, err)
		}
	}
	p.lora.merged = merged
	return nil
}

// merging is what merging a change needs to know.
func (p *Parameters) merging(c change) (m mergedChange, err error) {
	if d := p.values[c.weight].Dtype(); isKept(d) {
		return m, fmt.Errorf("%s is kept in %v, which would round away much of what is added", c.weight, d)
	}
	b, err := ops.Download(p.values[c.b])
	if err != nil {
		return m, err
	}
	m.b = b.Clone().(*tensor.Dense)
	if c.magnitude != "" {
		m.factors, err = p.factors(c)
	}
	return m, err
}

// merge adds a change to its weight and sets it to zero. Afterwards a DoRA's lengths are those of
// the weight's columns.
func (p *Parameters) merge(c change, m mergedChange) error {
	if err := p.addChange(c, c.scale); err != nil {
		return err
	}
	if err := p.scaleColumns(c.weight, m.factors); err != nil {
		return err
	}
	return ops.Assign(p.values[c.b], filled(0, m.b.Dtype(), m.b.Shape()))
}

// UnmergeLoRA takes back what [Parameters.MergeLoRA] did, to rounding.
func (p *Parameters) UnmergeLoRA() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lora == nil || p.lora.merged == nil {
		return errors.New("Parameters: there is no LoRA that is merged, it needs MergeLoRA first")
	}
	for _, c := range p.lora.changes {
		m := p.lora.merged[c.weight]
		inverse := slices.Clone(m.factors)
		for i, f := range inverse {
			inverse[i] = 1 / f
		}
		err := errors.Join(ops.Assign(p.values[c.b], m.b), p.scaleColumns(c.weight, inverse))
		if err == nil {
			err = p.addChange(c, -c.scale)
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

// Adapter is a LoRA with the values of its changes, and of what it trains whole.
type Adapter struct {
	lora   *lowRank
	values map[string]*tensor.Dense
}

// TakeLoRA takes the LoRA out, so that another may be set: graphs made from now on are without it.
// Graphs that were made with it keep it. [Parameters.PutLoRA] brings it back.
func (p *Parameters) TakeLoRA() (*Adapter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lora == nil:
		return nil, errors.New("Parameters: there is no LoRA to take out, it needs SetLoRA first")
	case p.lora.merged != nil:
		return nil, errors.New("Parameters: the LoRA is merged, it needs UnmergeLoRA before it is taken out")
	case p.holders != nil:
		return nil, errors.New("Parameters: the values are shared out over ranks, a LoRA can be taken out where they are whole")
	}
	a := &Adapter{lora: p.lora, values: map[string]*tensor.Dense{}}
	for _, c := range p.lora.changes {
		for _, name := range c.parts() {
			if value := p.values[name]; value != nil {
				a.values[name] = value
				delete(p.values, name)
				delete(p.used, name)
			}
		}
	}
	p.names = slices.DeleteFunc(p.names, func(name string) bool { return p.values[name] == nil })
	for name, value := range p.lora.whole {
		a.values[name], p.values[name] = p.values[name], value
	}
	p.lora, p.trains = nil, a.lora.before
	return a, nil
}

// PutLoRA brings a LoRA back that [Parameters.TakeLoRA] of the same Parameters took out.
func (p *Parameters) PutLoRA(a *Adapter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case a == nil || a.lora == nil:
		return errors.New("Parameters: the adapter is empty, it needs to be one that TakeLoRA gave")
	case p.lora != nil:
		return errors.New("Parameters: there is a LoRA already, it needs TakeLoRA first")
	case p.holders != nil:
		return errors.New("Parameters: the values are shared out over ranks, a LoRA can be put where they are whole")
	}
	for _, name := range slices.Sorted(maps.Keys(a.lora.whole)) {
		if p.values[name] != a.lora.whole[name] {
			return fmt.Errorf("Parameters: %s is not what it was when the LoRA was taken out, it needs to be the same Parameters", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.values)) {
		if p.values[name] == nil {
			p.names = append(p.names, name)
			p.use(name)
		}
		p.values[name] = a.values[name]
	}
	a.lora.before = p.trains
	p.setLoRA(a.lora)
	return nil
}

// factors are what a DoRA multiplies the columns of W + scale·A·B by.
func (p *Parameters) factors(c change) ([]float64, error) {
	var v [4]*tensor.Dense
	for i, name := range []string{c.weight, c.a, c.b, c.magnitude} {
		var err error
		if v[i], err = ops.Download(p.values[name]); err != nil {
			return nil, err
		}
	}
	direction := v[0].Clone().(*tensor.Dense)
	if err := accumulate(direction, scaledBy(v[1], c.scale), v[2]); err != nil {
		return nil, err
	}
	factors := lengthsOfColumns(direction)
	for i, length := range factors {
		switch m := v[3].Data().(type) {
		case []float32:
			factors[i] = float64(m[i]) / length
		case []float64:
			factors[i] = m[i] / length
		}
		if f := factors[i]; f == 0 || f-f != 0 {
			return nil, fmt.Errorf("column %d of %s would count %v times, which cannot be taken back", i, c.weight, f)
		}
	}
	return factors, nil
}

// scaleColumns multiplies the columns of a weight; nil changes nothing.
func (p *Parameters) scaleColumns(name string, factors []float64) error {
	if factors == nil {
		return nil
	}
	w, err := ops.Download(p.values[name])
	if err != nil {
		return err
	}
	switch data := w.Data().(type) {
	case []float32:
		for i := range data {
			data[i] = float32(float64(data[i]) * factors[i%len(factors)])
		}
	case []float64:
		for i := range data {
			data[i] *= factors[i%len(factors)]
		}
	}
	return ops.Assign(p.values[name], w)
}

// addChange is W ← W + scale·A·B, where the values live.
func (p *Parameters) addChange(c change, scale float64) error {
	a, err := ops.Download(p.values[c.a])
	if err != nil {
		return err
	}
	scaled := scaledBy(a, scale)
	if p.device != nil {
		if scaled, err = p.device.Upload(scaled); err != nil {
			return err
		}
	}
	return accumulate(p.values[c.weight], scaled, p.values[c.b])
}

// scaledBy is a copy of a value, scaled.
func scaledBy(v *tensor.Dense, scale float64) *tensor.Dense {
	next, each := 0, func() float64 { return 0 }
	switch data := v.Data().(type) {
	case []float32:
		each = func() float64 { next++; return scale * float64(data[next-1]) }
	case []float64:
		each = func() float64 { next++; return scale * data[next-1] }
	}
	return fill(v.Dtype(), v.Shape(), each)
}

// accumulate adds A·B to a matrix where it lives.
func accumulate(to, a, b *tensor.Dense) error {
	place, err := ops.PlaceOf(to)
	if err != nil {
		return err
	}
	var views [3]kernels.Tensor
	for i, v := range []*tensor.Dense{a, b, to} {
		if views[i], err = ops.TensorOf(v); err != nil {
			return err
		}
	}
	if err := place.MatMul(&kernels.MatMul{A: views[0], B: views[1], Accumulate: true}, kernels.MatMulOutputs{C: views[2]}); err != nil {
		return err
	}
	return place.Synchronize()
}
