package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file is what an optimiser and a loop do together with those of other ranks. Batches are numbered for all: step n takes as
// many as one process would take that accumulates all of them, and each rank every Size-th.

// joinEarly lets the gradients of a graph's parameters travel while others are computed: as soon as they are known, in runs that end a
// step. It is for devices; on the host a machine adds up the gradients of a step's runs only after an op has computed them.
func (o *Stepper) joinEarly(trained gorgonia.Nodes) {
	if o.ranks().Size() == 1 {
		return
	}
	numbers := map[string]int{}
	for i, p := range o.parameters {
		numbers[p.node.Name()] = i
	}
	ops.OnGradients(trained, func(i int, gradient kernels.Tensor) error {
		number, known := numbers[trained[i].Name()]
		if !o.ends || !known || o.parameters[number].isPart() || o.options.Accumulation > 1 && o.sums == nil {
			return nil
		}
		if o.options.Accumulation > 1 {
			sum := o.sums[number : number+1]
			if err := o.backend.Accumulate(sum, []kernels.Tensor{gradient}); err != nil {
				return err
			}
			gradient = sum[0]
		}
		o.joined[number], o.asked = true, append(o.asked, number)
		return o.sumLater(gradient)
	})
}

// beginRun says whether the run that comes now ends a step.
func (o *Stepper) beginRun(ends bool) {
	o.ends, o.asked = ends, o.asked[:0]
	clear(o.joined)
}

// joinGradients makes the gradients of this rank the sums over all ranks, or its own parts of them, and leaves the sums of the squares of all
// in squares: of those that have arrived while the last ones travel. Their order is that of the runs, the same on all ranks.
func (o *Stepper) joinGradients() error {
	ranks := o.ranks()
	if ranks.Size() == 1 {
		return o.backend.SumSquares(o.gradients, o.squares)
	}
	if err := ops.SettleSums(o.parameters[0].node.Graph()); err != nil {
		return err
	}
	all, asked := make([]int, len(o.gradients)), slices.Clone(o.asked)
	var list []kernels.Tensor
	for i, t := range o.gradients {
		all[i] = i
		if !o.joined[i] && !o.parameters[i].isPart() { // a part's is a sum
			list, asked = append(list, t), append(asked, i)
		}
	}
	if err := o.sumLater(list...); err != nil {
		return err
	}
	arrived, last := []int(nil), all
	if len(o.asked) > 0 { // early, and so there are no parts
		travelling, err := ranks.Begin()
		if err != nil {
			return err
		}
		arrived, last = asked[:len(asked)-travelling], asked[len(asked)-travelling:]
	}
	if err := o.sumSquares(arrived, 0); err != nil {
		return err
	}
	if err := ranks.Join(); err != nil {
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

// sumSquares puts the sums of the squares of some gradients, or of this rank's parts of them, into squares from a place on.
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

// notJoined are those of the parameters' tensors whose gradients do not travel yet.
func (o *Stepper) notJoined(all []kernels.Tensor) []kernels.Tensor {
	var list []kernels.Tensor
	for i, t := range all {
		if !o.joined[i] {
			list = append(list, t)
		}
	}
	return list
}

func (o *Stepper) sumLater(gradients ...kernels.Tensor) error {
	if o.isSharded() {
		return o.ranks().SumPartsLater(gradients...)
	}
	return o.ranks().SumLater(gradients...)
}

// batchesOfStep is how many batches, or parts of those that ranks share, the gradients of a step are a mean of.
func (o *Stepper) batchesOfStep() int { return o.options.Accumulation * o.ranks().Size() }

// batch is the number of this rank's batch i of a step.
func (o *Stepper) batch(step, i int) int {
	return step*o.batchesOfStep() + i*o.ranks().Size() + o.ranks().Rank()
}

// ranks are those that step together.
func (o *Stepper) ranks() *distributed.Group { return o.place.Ranks() }

// ranks are those that train with this loop.
func (l *Loop) ranks() *distributed.Group { return l.c.Place.Ranks() }

// share connects the ranks' devices, and gives all ranks the parameters of rank 0.
func (l *Loop) share() error {
	if l.ranks().Size() == 1 {
		return nil
	}
	if l.c.Place.Device() != nil {
		for _, group := range []*distributed.Group{l.ranks(), l.c.Place.SequenceRanks()} {
			if err := group.Connect(l.c.Place.Device().Backend()); err != nil {
				return err
			}
		}
	}
	var values []kernels.Tensor
	for _, n := range l.Parameters() {
		if isPart(n) {
			continue
		}
		value, err := viewOf(n.Value(), n.Dtype(), n.Shape())
		if err != nil {
			return fmt.Errorf("the value of %s %w", n.Name(), err)
		}
		values = append(values, value)
	}
	asked := []float64{0, 0} // by rank 0: checkpoints, and in parts
	if l.c.Checkpoints != nil {
		asked[0] = 1
	}
	if l.c.Place.sharedFiles {
		asked[1] = 1
	}
	if err := l.ranks().Broadcast(0, append(values, kernels.Of(asked, len(asked)))...); err != nil {
		return err
	}
	l.shares = asked[1] == 1
	l.helps = l.ranks().Rank() > 0 && asked[0] == 1 && (l.shares || l.optimizer.isSharded())
	return nil
}

// help is another rank's part in a checkpoint of rank 0: it writes it, or gives what it has of the optimiser's state.
func (l *Loop) help() error {
	if l.shares {
		return l.helpSave()
	}
	if _, err := l.optimizer.giveState(false, l.copies); err != nil {
		return err
	}
	return l.eachWeight(func(*gorgonia.Node) bool { return false }, nil)
}

// isPart reports whether a parameter is a part of what several ranks hold.
func isPart(n *gorgonia.Node) bool {
	_, ranks := ops.WholeOf(n)
	return ranks != nil
}

// checkHolders makes sure that those who hold a parameter, nil for this process alone, are those who train together.
func checkHolders(n *gorgonia.Node, holders kernels.Holders, ranks *distributed.Group) error {
	if holders == nil || holders == kernels.Holders(ranks) {
		return nil
	}
	return fmt.Errorf("%s is shared out over %d ranks that are not the place's: parameters can be shared out over the group of all that train together, not over a part of it",
		n.Name(), holders.Size())
}

// eachWeight hands out the parameters' values, on the host, of those that this rank wants. Where they are shared out, all ranks go through
// them together, and one that has an error goes on.
func (l *Loop) eachWeight(wants func(*gorgonia.Node) bool, do func(safetensors.Tensor)) (first error) {
	var room kernels.Tensor
	for _, n := range l.Parameters() {
		value, err := l.wholeValue(n, wants(n), &room)
		switch {
		case err != nil && first == nil:
			first = fmt.Errorf("%s: %w", n.Name(), err)
		case err == nil && value != nil:
			do(safetensors.Tensor{Name: n.Name(), Value: value})
		}
	}
	return first
}

// wholeValue is the value of a parameter on the host, if it is wanted. On a device it is put together in *room, one value after the other.
func (l *Loop) wholeValue(n *gorgonia.Node, wanted bool, room *kernels.Tensor) (*tensor.Dense, error) {
	node, ranks := ops.WholeOf(n)
	if ranks == nil {
		if !wanted {
			return nil, nil
		}
		return l.copies.of(n.Name(), n.Value())
	}
	part, err := ops.TensorOf(n.Value())
	if err != nil {
		return nil, err
	}
	place, err := ops.PlaceOf(n.Value())
	if err != nil {
		return nil, err
	}
	elements := node.Shape().TotalSize()
	if part.Owner == nil || room.DType != part.DType || room.Elements() < elements {
		if *room, err = place.Alloc(part.DType, elements); err != nil {
			return nil, err
		}
	}
	whole := room.Slice(0, 0, elements).Reshape(node.Shape()...)
	if err := place.Copy(l.optimizer.part(whole), part.Reshape(part.Elements())); err != nil {
		return nil, err
	}
	if err := ranks.CollectParts(whole); err != nil || !wanted {
		return nil, err
	}
	return l.copies.of(n.Name(), ops.ValueOf(whole))
}

// stopped is the error of a run that all ranks end before the same step, so that what they do together in the end can be done.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// goOn returns an error if any rank is to stop, since its context was cancelled or since it has no next batch: all stop before the
// same run.
func (l *Loop) goOn(ctx context.Context, problem error) error {
	ranks := l.ranks()
	cancelled := ctx.Err() != nil
	switch {
	case ranks.Size() == 1 && cancelled:
		return errCancelled
	case ranks.Size() == 1:
		return problem
	}
	asked := make([]float64, 1+ranks.Size()) // to cancel, and by rank, whether it has a problem
	switch {
	case cancelled:
		asked[0] = 1
	case problem != nil:
		asked[1+ranks.Rank()] = 1
	}
	if err := ranks.Sum(kernels.Of(asked, len(asked))); err != nil {
		return errors.Join(problem, err)
	}
	if first := slices.Index(asked[1:], 1); first >= 0 {
		text := ""
		if problem != nil {
			text = problem.Error()
		}
		text, err := l.shareText(first, text)
		switch {
		case err != nil:
			return errors.Join(problem, err)
		case first == ranks.Rank():
			return stopped{problem}
		}
		return stopped{fmt.Errorf("rank %d gave up: %s", first, text)}
	}
	if asked[0] > 0 {
		return errCancelled
	}
	return nil
}

// meet waits until all ranks have queued the step that this one is about to wait for on its device, where waiting has no time-out.
// Until it is known that the gradients of all have come, the weights count as torn.
func (l *Loop) meet() error {
	if l.c.Place.Device() == nil || l.ranks().Size() == 1 {
		return nil
	}
	l.torn = true
	return l.ranks().Barrier()
}

// meetToJudge is meet for an evaluation, in which ranks wait for each other where weights are shared out.
func (l *Loop) meetToJudge() error {
	if l.c.Place.Device() == nil || len(l.isPart) == 0 {
		return nil
	}
	return l.ranks().Barrier()
}

// joinMeans adds up over all ranks the sum of losses and what metrics' means are of.
func (l *Loop) joinMeans(loss *float64, means []mean) error {
	if l.ranks().Size() == 1 {
		return nil
	}
	sums := []float64{*loss}
	for _, m := range means {
		sums = append(sums, m.sum, m.count)
	}
	if err := l.ranks().Sum(kernels.Of(sums, len(sums))); err != nil {
		return err
	}
	*loss = sums[0]
	for i := range means {
		means[i] = mean{sums[1+2*i], sums[2+2*i]}
	}
	return nil
}

// joinCheckpoint gives all ranks what rank 0 has read: a checkpoint, or the error that there is none.
func (l *Loop) joinCheckpoint(c checkpoint.Checkpoint, err error) (checkpoint.Checkpoint, error) {
	ranks := l.ranks()
	if ranks.Size() == 1 || ranks.Rank() == 0 && err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return c, err
	}
	header := []int64{int64(c.Step), int64(len(c.Meta))}
	if err != nil {
		header[1] = 0
	}
	if shareErr := ranks.Broadcast(0, kernels.Of(header, 2)); shareErr != nil {
		return c, shareErr
	}
	if header[1] == 0 {
		return c, errors.Join(err, noneOf(ranks))
	}
	if ranks.Rank() == 0 {
		return c, errors.Join(l.fits(c), l.shareCheckpoint(c))
	}
	own, err := l.emptyCheckpoint(int(header[0]), int(header[1]))
	if err != nil {
		return c, err
	}
	return own, l.shareCheckpoint(own)
}

// noneOf is what ranks say that were told by rank 0 that there is no checkpoint.
func noneOf(ranks *distributed.Group) error {
	if ranks.Rank() == 0 {
		return nil
	}
	return fmt.Errorf("rank 0: %w", checkpoint.ErrNone)
}

// fits makes sure that a checkpoint has the tensors of the loop, before they are sent to ranks that expect these.
func (l *Loop) fits(c checkpoint.Checkpoint) error {
	own, err := l.emptyCheckpoint(c.Step, len(c.Meta))
	if err != nil {
		return err
	}
	return errors.Join(checkpoint.Match(c.Weights, own.Weights), checkpoint.Match(c.Optimizer, own.Optimizer))
}

// emptyCheckpoint has the tensors of a checkpoint of this loop, of zeros.
func (l *Loop) emptyCheckpoint(step, meta int) (checkpoint.Checkpoint, error) {
	c := checkpoint.Checkpoint{Step: step, Meta: make(json.RawMessage, meta)}
	for _, n := range l.Parameters() {
		whole, _ := ops.WholeOf(n)
		c.Weights = append(c.Weights, safetensors.Tensor{Name: n.Name(), Value: tensor.New(tensor.Of(n.Dtype()), tensor.WithShape(whole.Shape()...))})
	}
	state := map[string]*tensor.Dense{}
	err := l.optimizer.eachState(func(name string, p parameter, _ kernels.Tensor) error {
		state[name] = tensor.New(tensor.Of(p.node.Dtype()), tensor.WithShape(p.whole...))
		return nil
	})
	c.Optimizer = safetensors.Sorted(state)
	return c, err
}

// shareCheckpoint copies rank 0's checkpoint into one of the same tensors, whose order may be another.
func (l *Loop) shareCheckpoint(c checkpoint.Checkpoint) error {
	list := []kernels.Tensor{kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(c.Meta)), kernels.Bool, len(c.Meta))}
	for _, tensors := range []safetensors.Tensors{c.Weights, c.Optimizer} {
		for _, t := range safetensors.Sorted(tensors.Map()) {
			view, err := viewOf(t.Value, t.Value.Dtype(), t.Value.Shape())
			if err != nil {
				return fmt.Errorf("%s %w", t.Name, err)
			}
			list = append(list, view)
		}
	}
	return l.ranks().Broadcast(0, list...)
}
