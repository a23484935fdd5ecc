package nn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ShareOut leaves this process, one of several ranks that train together, its part of each value
// with at least two axes, for models that no device holds whole: see [ops.Whole]. Layers work as
// before, and a weight is whole while one computes with it, and beside the attention before; those
// of one's own need to read their weights by ops of package ops. Vectors, which are a thousandth of
// a model, stay whole on each rank, and so does what has fewer elements than there are ranks.
//
// It comes before the first layer is made. Values that were set before become parts; what is set or
// loaded later is given whole. All ranks need the same seed, and the same values to be set. Every
// graph over the parameters, also one that only predicts, needs to run on all ranks at once.
func (p *Parameters) ShareOut(ranks kernels.Holders) error {
	if ranks == nil || ranks.Size() <= 1 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.used) > 0:
		return errors.New("Parameters: layers have been made already, ShareOut needs to come before the first")
	case p.kept != keeping{}:
		return fmt.Errorf("Parameters: weights are kept in %v, values that are shared out need to be trained", cmp.Or(p.kept.linear, p.kept.embedding))
	case p.holders != nil:
		return errors.New("Parameters: the values are shared out already")
	}
	p.holders = ranks
	parts := map[string]*tensor.Dense{}
	for name, value := range p.values {
		part, err := p.partOf(name, value)
		if err != nil {
			p.holders, p.wholes = nil, nil
			return fmt.Errorf("Parameters: %s: %w", name, err)
		}
		parts[name] = part
	}
	p.values = parts
	return nil
}

// IsSharedOut reports whether values may be parts, of which other ranks have the rest.
func (p *Parameters) IsSharedOut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holders != nil
}

// partOf is what this rank keeps of a value.
func (p *Parameters) partOf(name string, value *tensor.Dense) (*tensor.Dense, error) {
	if p.holders == nil || value.Dims() < 2 || value.Shape().TotalSize() < p.holders.Size() {
		return value, nil
	}
	if p.wholes == nil {
		p.wholes = map[string][]int{}
	}
	p.wholes[name] = slices.Clone([]int(value.Shape()))
	return ops.PartOf(p.holders, value)
}

// whole is the node that layers compute with, of a parameter's.
func (p *Parameters) whole(n *gorgonia.Node) (*gorgonia.Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if shape := p.wholes[n.Name()]; shape != nil {
		return ops.Whole(n, p.holders, shape...)
	}
	return n, nil
}
