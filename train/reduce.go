package train

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// This file reduces the gradients of a step over the ranks. Batches are numbered for all: step n
// takes as many as one process would take that accumulates all of them, and each rank every
// Size-th.

// reduction is what is known of the gradients of a step that are reduced.
type reduction struct {
	ends  bool   // the run that is under way ends a step
	sent  []bool // by parameter, whether its gradient of the step is under way to the other ranks
	order []int  // those, in that order
}

// attach scales the loss of a graph that trains the parameters, and on a device has its gradients
// travel while others are computed.
func (o *Stepper) attach(g *gorgonia.ExprGraph, trained gorgonia.Nodes) error {
	if o.place.Device() != nil {
		switch sharers := o.place.SequenceRanks(); {
		case o.sharded && o.options.Accumulation == 1:
			ops.DeferSums(trained, func() bool { return o.ends })
		case !o.sharded && (sharers.Size() == 1 || sharers == o.summing()):
			// Where other ranks share sequences, or these share weights, other tensors travel
			// first.
			o.reduceEarly(trained)
		}
	}
	return o.ScaleLoss(g)
}

// reduceEarly lets the gradients of a graph's parameters travel while others are computed: as soon
// as they are known, in runs that end a step. It is for devices; on the host a machine adds up the
// gradients of a step's runs only after an op has computed them.
func (o *Stepper) reduceEarly(trained gorgonia.Nodes) {
	if o.ranks().Size() == 1 {
		return
	}
	numbers := map[string]int{}
	for i, p := range o.parameters {
		numbers[p.node.Name()] = i
	}
	ops.OnGradients(trained, func(i int, gradient kernels.Tensor) error {
		number, known := numbers[trained[i].Name()]
		if !o.ends || !known || o.parameters[number].isShard() || o.options.Accumulation > 1 && o.sums == nil {
			return nil
		}
		if o.options.Accumulation > 1 {
			sum := o.sums[number : number+1]
			if err := o.backend.Accumulate(sum, []kernels.Tensor{gradient}); err != nil {
				return err
			}
			gradient = sum[0]
		}
		o.sent[number], o.order = true, append(o.order, number)
		return o.sumLater(gradient)
	})
}

// beginRun says whether the run that comes now ends a step.
func (o *Stepper) beginRun(ends bool) {
	o.ends, o.order = ends, o.order[:0]
	clear(o.sent)
}

// reduce makes the gradients of this rank the sums over all ranks, or its own parts of them, and
// leaves the sums of the squares of all in squares: of those that have arrived while the last ones
// travel. Their order is that of the runs, the same on all ranks.
func (o *Stepper) reduce() error {
	ranks := o.ranks()
	if ranks.Size() == 1 {
		return o.backend.SumSquares(o.gradients, o.squares)
	}
	if err := ops.SettleSums(o.parameters[0].node.Graph()); err != nil {
		return err
	}
	all, order := make([]int, len(o.gradients)), slices.Clone(o.order)
	var list []kernels.Tensor
	for i, t := range o.gradients {
		all[i] = i
		if !o.sent[i] && !o.parameters[i].isShard() { // a part's is a sum
			list, order = append(list, t), append(order, i)
		}
	}
	if err := o.sumLater(list...); err != nil {
		return err
	}
	if o.copies().Size() > 1 {
		return o.reduceCopies(all)
	}
	arrived, last := []int(nil), all
	if len(o.order) > 0 { // early, and so there are no parts
		travelling, err := o.summing().Begin()
		if err != nil {
			return err
		}
		arrived, last = order[:len(order)-travelling], order[len(order)-travelling:]
	}
	if err := o.sumSquares(arrived, 0); err != nil {
		return err
	}
	if err := o.summing().Join(); err != nil {
		return err
	}
	if err := o.sumSquares(last, len(arrived)); err != nil {
		return err
	}
	if o.isSharded() {
		return ranks.Sum(o.squares)
	}
	return nil
}

// reduceCopies goes on where sums over the holders of one copy are under way: it adds them up over
// all copies. The squares are those that the holders of the first copy add up: where a network adds
// in an order of its own, other holders' may have another last bit, and copies would drift apart.
func (o *Stepper) reduceCopies(all []int) error {
	if err := o.holders().Join(); err != nil {
		return err
	}
	var own []kernels.Tensor
	for i, g := range o.gradients {
		if part := o.own(o.parameters[i], g); part.Elements() > 0 {
			own = append(own, part)
		}
	}
	if err := o.copies().Sum(own...); err != nil {
		return err
	}
	if err := o.sumSquares(all, 0); err != nil {
		return err
	}
	if o.copies().Rank() > 0 {
		if err := o.backend.Zero([]kernels.Tensor{o.squares}); err != nil {
			return err
		}
	}
	return o.ranks().Sum(o.squares)
}

// sumSquares puts the sums of the squares of some gradients, or of this rank's parts of them, into
// squares from a place on.
func (o *Stepper) sumSquares(numbers []int, at int) error {
	if len(numbers) == 0 {
		return nil
	}
	list := make([]kernels.Tensor, len(numbers))
	for i, number := range numbers {
		if list[i] = o.gradients[number]; o.isSharded() {
			list[i] = o.own(o.parameters[number], list[i])
		}
	}
	return o.backend.SumSquares(list, o.squares.Slice(0, at, at+len(list)))
}

// unsent are those of the parameters' tensors whose gradients are not under way.
func (o *Stepper) unsent(all []kernels.Tensor) []kernels.Tensor {
	var list []kernels.Tensor
	for i, t := range all {
		if !o.sent[i] {
			list = append(list, t)
		}
	}
	return list
}

func (o *Stepper) sumLater(gradients ...kernels.Tensor) error {
	if o.isSharded() {
		return o.summing().SumPartsLater(gradients...)
	}
	return o.summing().SumLater(gradients...)
}

// summing are the ranks over which gradients are added up first.
func (o *Stepper) summing() *distributed.Group {
	if o.isSharded() {
		return o.holders()
	}
	return o.ranks()
}

// batchesOfStep is how many batches, or parts of those that ranks share, the gradients of a step
// are a mean of.
func (o *Stepper) batchesOfStep() int { return o.options.Accumulation * o.ranks().Size() }

// batch is the number of this rank's batch i of a step.
func (o *Stepper) batch(step, i int) int {
	return step*o.batchesOfStep() + i*o.ranks().Size() + o.ranks().Rank()
}

// ranks are those that step together.
func (o *Stepper) ranks() *distributed.Group { return o.place.Ranks() }
