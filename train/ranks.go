package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// ranks are the processes that train together, this one among them. The Group is nil or of one for
// a process alone, and what it does is then nothing.
type ranks struct {
	*distributed.Group
	onDevices    bool // and so a wait for work has no time-out
	shardWeights bool // each holds its shards of the weights, so all run each graph together
	waiting      *waiting
}

// newRanks finds the ranks of a place, and checks that the parameters' shards are theirs.
func newRanks(p *Place, parameters gorgonia.Nodes) (ranks, error) {
	r := ranks{Group: p.Ranks(), onDevices: p.Device() != nil, waiting: &waiting{}}
	for _, n := range parameters {
		_, holders := ops.WholeOf(n)
		if err := checkHolders(n, holders, p.ShardRanks()); err != nil {
			return r, err
		}
		r.shardWeights = r.shardWeights || holders != nil
	}
	return r, nil
}

// isShard reports whether a parameter is a shard of what several ranks hold.
func isShard(n *gorgonia.Node) bool {
	_, holders := ops.WholeOf(n)
	return holders != nil
}

// checkHolders makes sure that those who hold a parameter, nil for this process alone, are those of
// the place.
func checkHolders(n *gorgonia.Node, holders kernels.Holders, group *distributed.Group) error {
	if holders == nil || holders == kernels.Holders(group) {
		return nil
	}
	return fmt.Errorf("%s is shared out over %d ranks that are not the place's: parameters can be shared out over its ShardRanks, %d ranks",
		n.Name(), holders.Size(), group.Size())
}

func (r ranks) alone() bool { return r.Size() == 1 }

// connect connects the devices of the ranks and of all parts of them.
func (r ranks) connect(p *Place) error {
	if !r.onDevices {
		return nil
	}
	for _, group := range []*distributed.Group{r.Group, p.SequenceRanks(), p.ShardRanks(), p.copies()} {
		if err := group.Connect(p.Device().Backend()); err != nil {
			return err
		}
	}
	return nil
}

// decide gives all ranks rank 0's answers.
func (r ranks) decide(answers ...*bool) error {
	numbers := make([]float64, len(answers))
	for i, yes := range answers {
		if *yes {
			numbers[i] = 1
		}
	}
	err := r.Broadcast(0, kernels.Of(numbers, len(numbers)))
	for i, number := range numbers {
		*answers[i] = number == 1
	}
	return err
}

// stopped is the error of a run that all ranks end before the same step, so that the last
// collective work can still run.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// agree returns an error if any rank is to stop, since its context was cancelled or since it has no
// next batch: all stop before the same run.
func (r ranks) agree(ctx context.Context, problem error) error {
	cancelled := ctx.Err() != nil
	switch {
	case r.alone() && cancelled:
		return errCancelled
	case r.alone():
		return problem
	}
	// To cancel; by rank, whether it has a problem; and by rank, how long others waited for it.
	asked := append(make([]float64, 1+r.Size()), r.waiting.share(r.Group)...)
	switch {
	case cancelled:
		asked[0] = 1
	case problem != nil:
		asked[1+r.Rank()] = 1
	}
	if err := r.Sum(kernels.Of(asked, len(asked))); err != nil {
		return errors.Join(problem, err)
	}
	r.waiting.add(asked[1+r.Size():])
	if first := slices.Index(asked[1:1+r.Size()], 1); first >= 0 {
		text := ""
		if problem != nil {
			text = problem.Error()
		}
		text, err := r.share(first, text)
		switch {
		case err != nil:
			return errors.Join(problem, err)
		case first == r.Rank():
			return stopped{problem}
		}
		return stopped{fmt.Errorf("rank %d gave up: %s", first, text)}
	}
	if asked[0] > 0 {
		return errCancelled
	}
	return nil
}

// meet waits until all ranks have queued what this one is about to wait for on its device.
func (r ranks) meet() error {
	if r.alone() || !r.onDevices {
		return nil
	}
	return r.Barrier()
}

// addUp adds up over all ranks the sum of losses and what metrics' means are of.
func (r ranks) addUp(loss *float64, means []mean) error {
	if r.alone() {
		return nil
	}
	sums := []float64{*loss}
	for _, m := range means {
		sums = append(sums, m.sum, m.count)
	}
	if err := r.Sum(kernels.Of(sums, len(sums))); err != nil {
		return err
	}
	*loss = sums[0]
	for i := range means {
		means[i] = mean{sums[1+2*i], sums[2+2*i]}
	}
	return nil
}

// share gives all ranks the text of one.
func (r ranks) share(from int, text string) (string, error) {
	length := []int64{int64(len(text))}
	if err := r.Broadcast(from, kernels.Of(length, 1)); err != nil || length[0] == 0 {
		return "", err
	}
	bytes := make([]byte, length[0])
	if r.Rank() == from {
		copy(bytes, text)
	}
	err := r.Broadcast(from, bytesTensor(bytes))
	return string(bytes), err
}

// shareAll gives all ranks a text of each, or the error of the first rank that has one. A rank with
// an error of its own takes part too.
func (r ranks) shareAll(own string, err error) ([]string, error) {
	const good, bad = "+", "-"
	text := good + own
	if err != nil {
		text = bad + err.Error()
	}
	texts := make([]string, r.Size())
	for rank := range texts {
		shared, shareErr := r.share(rank, text)
		if shareErr != nil {
			return nil, errors.Join(err, shareErr)
		}
		what, failed := strings.CutPrefix(shared, bad)
		if failed && err == nil {
			err = fmt.Errorf("rank %d: %s", rank, what)
		}
		texts[rank] = strings.TrimPrefix(what, good)
	}
	return texts, err
}

func bytesTensor(bytes []byte) kernels.Tensor {
	return kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(bytes)), kernels.Bool, len(bytes))
}
