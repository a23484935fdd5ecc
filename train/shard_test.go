package train

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/freeport"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// sharing is a training of a few parameters, some of fewer elements than there are ranks.
type sharing struct {
	size, accumulation int
	dtype              tensor.Dtype
	shard              bool
	optimizer          Optimizer
	shapes             [][]int
	vectors            Optimizer // trains what is no matrix; nil for the optimizer
}

// sharer is what a rank has in the end.
type sharer struct {
	weights, state [][]float64
	reports        []Report
	elements       int // of the state that it holds
}

var sharedShapes = [][]int{{1}, {2}, {7}, {5, 33}, {1000}, {64}}

// sharedMatrices are more than there are ranks, wide and tall, and one of fewer elements.
var sharedMatrices = [][]int{{7}, {1, 3}, {8, 8}, {5, 33}, {12, 4}, {33, 5}, {8, 8}, {64}}

// rank trains as one of the ranks. In the third step rank 0 alone has a gradient that is not
// finite.
func (c sharing) rank(t *testing.T, place distributed.Config) (left sharer, err error) {
	group, err := distributed.Join(t.Context(), place)
	if err != nil {
		return left, err
	}
	defer group.Close()
	p := newProblem(t, c.dtype, strings.Split("abcdefghij", "")[:len(c.shapes)], c.shapes...)
	defer p.machine.Close()
	for i, n := range p.parameters {
		set(n, wave(1, i))
	}
	at := &Place{ranks: group}
	if c.shard {
		at.shard = ShardState
	}
	o, err := at.NewStepper(p.parameters, c.optimizer, Options{
		Schedule: ConstantRate(1e-2), ClipNorm: 1, Accumulation: c.accumulation,
		Groups: []Group{{Match: Named("d", "e"), LearningRateScale: 0.5}, {Match: Vectors, NoDecay: true, Optimizer: c.vectors}},
	})
	if err != nil {
		return left, err
	}
	for step := range 6 {
		for run := range c.accumulation {
			for i, n := range p.gradients {
				set(n, wave(0.3, 100*step+10*run+group.Rank()+i))
			}
			if step == 2 && group.Rank() == 0 {
				set(p.gradients[4], func(int) float64 { return math.Inf(1) })
			}
			p.run(t)
		}
		report, err := o.Step()
		if err != nil {
			return left, err
		}
		left.reports = append(left.reports, report)
	}
	for _, n := range p.parameters {
		left.weights = append(left.weights, floats(n.Value()))
	}
	for _, t := range o.stateTensors() {
		left.elements += t.view.Elements()
	}
	state, err := o.State()
	if err != nil {
		return left, err
	}
	for _, name := range slices.Sorted(maps.Keys(state.Tensors)) {
		left.state = append(left.state, slices.Clone(floats(state.Tensors[name])))
	}
	// A state that was put together is what all can go on from.
	if err := o.SetState(state); err != nil {
		return left, err
	}
	again, err := o.State()
	if err != nil {
		return left, err
	}
	for name, value := range state.Tensors {
		if !slices.Equal(floats(value), floats(again.Tensors[name])) {
			return left, fmt.Errorf("%s is another one after it was set", name)
		}
	}
	return left, nil
}

func (c sharing) train(t *testing.T) []sharer {
	t.Helper()
	address, err := freeport.OnLoopback()
	if err != nil {
		t.Fatal(err)
	}
	list, errs := make([]sharer, c.size), make([]error, c.size)
	var ranks sync.WaitGroup
	for rank := range c.size {
		place := distributed.Config{Rank: rank, Size: c.size, Address: address, Timeout: 5 * time.Minute}
		ranks.Go(func() { list[rank], errs[rank] = c.rank(t, place) })
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return list
}

// Ranks that share the state have the weights, the state and the reports of ranks that all have it,
// and together one state.
func TestShardState(t *testing.T) {
	for name, of := range map[string]sharing{
		"AdamW": {optimizer: AdamW{WeightDecay: 0.1}, shapes: sharedShapes},
		"SGD":   {optimizer: SGD{Momentum: 0.9, WeightDecay: 0.1}, shapes: sharedShapes},
		"Lion":  {optimizer: Lion{}, shapes: sharedShapes},
		"Muon":  {optimizer: Muon{WeightDecay: 0.1, MatchAdamW: true}, shapes: sharedMatrices, vectors: AdamW{}},
	} {
		for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			if slow.Racing() && dtype == tensor.Float64 {
				continue
			}
			for _, c := range []sharing{{size: 2, accumulation: 1}, {size: 3, accumulation: 2}, {size: 4, accumulation: 1}} {
				t.Run(fmt.Sprintf("%s, %v, %d ranks of %d runs", name, dtype, c.size, c.accumulation), func(t *testing.T) {
					c.dtype, c.optimizer, c.shapes, c.vectors = dtype, of.optimizer, of.shapes, of.vectors
					whole := c.train(t)
					c.shard = true
					shared := c.train(t)
					held := 0
					for rank, s := range shared {
						held += s.elements
						for kind, lists := range map[string][2][][]float64{"weights": {s.weights, whole[0].weights}, "state": {s.state, whole[0].state}} {
							for i := range lists[0] {
								if !sameNumbers(lists[0][i], lists[1][i], dtype) {
									t.Errorf("rank %d: %s %d are %v, of whole states %v", rank, kind, i, lists[0][i], lists[1][i])
								}
							}
						}
						for i, r := range s.reports {
							want := whole[0].reports[i]
							if r.Skipped != want.Skipped || r.Skipped != (i == 2) || r.NonFinite != want.NonFinite || !(math.Abs(r.GradientNorm-want.GradientNorm) <= 1e-12*want.GradientNorm) && !r.Skipped {
								t.Errorf("rank %d: the report of step %d is %+v, of whole states %+v", rank, i, r, want)
							}
						}
					}
					if held != whole[0].elements {
						t.Errorf("the ranks hold %d elements of state together, want %d", held, whole[0].elements)
					}
				})
			}
		}
	}
}

// sameNumbers reports whether lists have the same bits in float32, and nearly so in float64, where
// the norm's last bit counts: the bound is ten times the largest error seen, relative to the
// largest number, since moments near 0 are differences.
func sameNumbers(a, b []float64, dtype tensor.Dtype) bool {
	bound := 0.0
	if dtype == tensor.Float64 {
		for _, y := range b {
			bound = max(bound, 1e-13*math.Abs(y))
		}
	}
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= bound })
}
