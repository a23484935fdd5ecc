package train

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	host "github.com/stheno-ml/stheno/internal/memory"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// Bytes is an amount of memory. As a flag it takes 24G, 800M, 1.5T or a number of bytes, where K,
// M, G and T are powers of 1024.
type Bytes int

const byteUnits = "KMGT"

// String is the amount in the largest unit of which it has at least one.
func (b Bytes) String() string {
	x, unit := float64(b), ""
	for i := 0; i < len(byteUnits) && math.Abs(x) >= 1024; i++ {
		x, unit = x/1024, byteUnits[i:i+1]
	}
	return strconv.FormatFloat(x, 'g', 4, 64) + unit
}

// Set reads an amount.
func (b *Bytes) Set(text string) error {
	number, unit := strings.ToUpper(strings.TrimSpace(text)), 1.0
	number = strings.TrimSuffix(strings.TrimSuffix(number, "B"), "I")
	if last := len(number) - 1; last >= 0 {
		if i := strings.IndexByte(byteUnits, number[last]); i >= 0 {
			number, unit = number[:last], math.Pow(1024, float64(i+1))
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x >= 0) || x*unit >= 1<<62 {
		return fmt.Errorf("it is %q, it needs to be an amount of memory such as 24G or 800M", text)
	}
	*b = Bytes(x * unit)
	return nil
}

// memory is what a budget has decided.
type memory struct {
	needs Bytes
	again []string
}

// Memory is how many bytes a step is estimated to take, and the names of the parts of the model
// that are computed again, for batches like the first: "blocks.3" is a whole block, "blocks.3.mlp"
// its MLP, and "blocks.3/keeps-attention" all of it but what attention gives. They are 0 and none
// where the config limits nothing.
func (l *Loop) Memory() (needs Bytes, again []string) { return l.memory.needs, l.memory.again }

// regions are the parts of the model that are computed again so that a step on batches like b keeps
// within the memory that the config allows.
func (l *Loop) regions(b data.Batch) ([]string, error) {
	beside, err := l.beside()
	if err != nil {
		return nil, err
	}
	var last *graph // of which only the graph's memory is of interest
	needs := func(e ops.Estimate) int { return beside + e.Inputs + e.Results }
	names, estimate, err := ops.ChooseRegions(int(l.c.Memory), func(names []string) (*gorgonia.ExprGraph, error) {
		first := last == nil
		var err error
		last, err = newPlainGraph(l.c, b, true, func(g *gorgonia.ExprGraph) { ops.RecomputeRegions(g, names...) })
		if err == nil && first {
			var state int
			if state, err = stateBytes(l.c, last.trained); err == nil {
				beside += state
			}
		}
		if err != nil {
			return nil, err
		}
		return last.g, nil
	}, needs)
	if of := (*ops.BudgetError)(nil); errors.As(err, &of) {
		return nil, fmt.Errorf("memory is %v, a step on batches of %v needs at least %v: fewer or shorter sequences, or a smaller model, need less",
			Bytes(of.Budget), b, Bytes(of.Least+1<<10))
	}
	if l.training == nil && err == nil {
		l.memory = memory{Bytes(needs(estimate)), names}
	}
	return names, err
}

// checkFits makes sure that a step on batches like b can be within the host's memory, which would
// otherwise end the program. It leaves to a device to say so itself.
func (t *graph) checkFits(c LoopConfig, b data.Batch) error {
	total, known := hostMemory()
	if !known || t.device != nil || c.Place.SequenceRanks().Size() > 1 {
		return nil
	}
	estimate, err := ops.EstimateRun(t.g)
	if err != nil {
		return nil // the host reads an input that has no value yet: nothing is known before the run
	}
	if needs := estimate.Inputs + estimate.Results; uint64(needs) > total {
		return fmt.Errorf("a step on batches of %v takes about %v, the memory here is %v: "+
			"fewer or shorter sequences, or a smaller model, need less, and so does one with Memory set", b, Bytes(needs), Bytes(total))
	}
	return nil
}

// hostMemory is how much memory there is.
var hostMemory = host.Total

// beside is the memory of the graphs of evaluations, without parameters.
func (l *Loop) beside() (bytes int, err error) {
	e := l.c.Evaluations
	if e.Every == 0 {
		return 0, nil
	}
	seen := map[string]bool{}
	for _, batches := range []data.Batches{e.Data, e.Validation} {
		if batches == nil {
			continue
		}
		b, err := batchOf(batches, 0)
		if err != nil {
			return 0, fmt.Errorf("evaluations: batch 0: %w", err)
		}
		if seen[b.String()] {
			continue
		}
		seen[b.String()] = true
		t, err := newPlainGraph(l.c, b, false, func(*gorgonia.ExprGraph) {})
		if err != nil {
			return 0, err
		}
		estimate, err := ops.EstimateRun(t.g)
		if err != nil {
			return 0, err
		}
		bytes += estimate.Results
	}
	return bytes, nil
}

// stateBytes is the memory of the optimiser's state, of the sums of gradients, and on the host of
// the values that Gorgonia binds to parameters for their gradients.
func stateBytes(c LoopConfig, trained gorgonia.Nodes) (bytes int, err error) {
	o, err := c.Place.NewStepper(trained, c.Optimizer, c.Options)
	if err != nil {
		return 0, err
	}
	size := dtypeOf(trained[0]).Size()
	for _, t := range o.stateTensors() {
		bytes += (kernels.Tensor{Shape: o.stateShape(t)}).Elements() * size
	}
	copies := 0
	if o.options.Accumulation > 1 {
		copies++
	}
	if c.Place.Device() == nil {
		copies++
	}
	for _, n := range trained {
		bytes += copies * n.Shape().TotalSize() * size
	}
	return bytes, nil
}
