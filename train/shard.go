package train

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// This file is the optimiser whose state is shared out over the ranks (ShardState). Of each
// parameter a rank has its part, see kernels.Part: it gets that part of the sum of the gradients,
// updates that part of the weights, and all collect the weights. As many bytes travel as without.
//
// Of parameters that are shared out themselves (ShardWeights) a rank has nothing but its part, of
// the weights, of the sum of the gradients, which the graph has made, and of the state. The others'
// state is then shared out too.
//
// With ShardRanks the holders, who share all this out, are a part of the ranks. The others hold
// copies, and a sum over the holders is then added up once more over those who hold the same part.
// All copies have the same bits: that sum has, and so has the step that is made of it.

// isSharded reports whether this rank has only its part of the state.
func (o *Stepper) isSharded() bool {
	return o.holders().Size() > 1 && (o.place.shards() || o.sharded)
}

// holders are the ranks that hold one copy of what is shared out.
func (o *Stepper) holders() *distributed.Group { return o.place.ShardRanks() }

// copies are the ranks that hold the same part of what is shared out.
func (o *Stepper) copies() *distributed.Group { return o.place.copies() }

// own is this rank's part of a parameter, or of a tensor of the shape that it has here.
func (o *Stepper) own(p parameter, t kernels.Tensor) kernels.Tensor {
	if p.isShard() {
		return t.Reshape(t.Elements())
	}
	return o.part(t)
}

// part is this rank's part of a whole tensor.
func (o *Stepper) part(t kernels.Tensor) kernels.Tensor {
	n := t.Elements()
	at, end := o.partOf(o.ranks().Rank(), n)
	if at == end {
		at, end = 0, 0 // no address behind the tensor's end
	}
	return t.Reshape(n).Slice(0, at, end)
}

// partOf is where the part of a rank begins and ends in a tensor of n elements.
func (o *Stepper) partOf(rank, n int) (at, end int) {
	return o.holders().Part(rank%o.holders().Size(), n)
}

// owned are this rank's parts of tensors of some parameters.
func (o *Stepper) owned(parameters []parameter, list []kernels.Tensor) []kernels.Tensor {
	parts := make([]kernels.Tensor, len(list))
	for i, t := range list {
		parts[i] = o.own(parameters[i], t)
	}
	return parts
}

// held are those of the parameters' tensors that this rank has all of.
func (o *Stepper) held(all []kernels.Tensor) []kernels.Tensor {
	var list []kernels.Tensor
	for i, t := range all {
		if !o.parameters[i].isShard() {
			list = append(list, t)
		}
	}
	return list
}

// stateShape is the shape of what this rank has of a tensor of the state.
func (o *Stepper) stateShape(t stateTensor) []int {
	if !o.isSharded() {
		return t.whole
	}
	return o.own(t.of, kernels.Tensor{Shape: t.of.shape}).Shape
}

// shardOf is this rank's shard of an update.
func (o *Stepper) shardOf(u Update, parameters []parameter) Update {
	u.ClearGradients = false // gather does, of all shards
	u.shared = &shared{ranks: o.holders()}
	for _, p := range parameters {
		u.shared.shapes = append(u.shared.shapes, p.whole)
	}
	u.Weights, u.Gradients = o.owned(parameters, u.Weights), o.owned(parameters, u.Gradients)
	return u
}

// gather gives all ranks the weights of all shards, and clears the gradients.
func (o *Stepper) gather() error {
	if !o.isSharded() {
		return nil
	}
	if err := o.holders().CollectParts(o.held(o.weights)...); err != nil || !o.keepsGradients() {
		return err
	}
	return o.backend.Zero(o.gradients)
}

// collectState puts the shards of the state together, a tensor at a time. Every rank calls it;
// those that do not keep the tensors get none.
func (o *Stepper) collectState(keep bool) (map[string]*tensor.Dense, error) {
	all := map[string]*tensor.Dense{}
	for _, t := range o.stateTensors() {
		whole, err := o.backend.Alloc(t.view.DType, t.whole...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if err := o.backend.Copy(o.part(whole), *t.view); err != nil {
			return nil, err
		}
		if err := o.holders().CollectParts(whole); err != nil {
			return nil, err
		}
		if !keep {
			continue
		}
		if all[t.name], err = ops.Download(ops.ValueOf(whole)); err != nil {
			return nil, err
		}
	}
	return all, nil
}
