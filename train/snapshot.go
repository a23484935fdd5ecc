package train

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// loopState is what a checkpoint holds besides tensors. Random numbers need no state: batches,
// dropout and first values are functions of seeds, which Settings hold, and of the number of the
// step.
type loopState struct {
	Done          int      `json:"done"`
	Batches       int      `json:"batches"` // of the data that were taken, or left out
	BestLoss      *float64 `json:"bestLoss"`
	BestStep      int      `json:"bestStep"`
	Optimizer     string   `json:"optimizer"`
	Updates       int      `json:"updates"`  // steps that changed the parameters: where the schedule is
	Schedule      string   `json:"schedule"` // for people: a resumed loop follows its own
	Skipped       int      `json:"skipped"`
	SkippedInARow int      `json:"skippedInARow"`
	LossScale     float64  `json:"lossScale,omitempty"`
	GoodSteps     int      `json:"lossScaleGoodSteps,omitempty"`
	Unevaluated   bool     `json:"unevaluated,omitempty"` // their evaluation is due
	Masks         int      `json:"masks"`                 // kernels.DropoutVersion; 0 means 1
	course
	Settings json.RawMessage `json:"settings,omitempty"`
}

// snapshot is the loop as a checkpoint. On the host its tensors are the loop's own, to be written
// before the next step. There are none where the ranks write their own.
func (s *saver) snapshot(inParts bool) (c checkpoint.Checkpoint, err error) {
	l := s.loop
	var o State
	if inParts {
		o, err = l.stepper.stateWithoutTensors()
	} else {
		o, err = l.stepper.giveState(true, s.copies)
	}
	if err != nil {
		return c, err
	}
	state := loopState{
		Done: l.done, Batches: (l.done + l.course.LeftOut) * l.batchesOfStep(), BestStep: l.bestStep,
		Optimizer: o.Optimizer, Updates: o.Step, Skipped: o.Skipped, SkippedInARow: o.SkippedInARow, Masks: kernels.DropoutVersion,
		LossScale: o.LossScale, GoodSteps: o.LossScaleGoodSteps,
		Schedule:    fmt.Sprintf("%T%+v", l.c.Options.Schedule, l.c.Options.Schedule),
		Unevaluated: l.evaluationDue(), course: l.course,
	}
	if !math.IsNaN(l.bestLoss) {
		state.BestLoss = &l.bestLoss
	}
	if state.Settings, err = s.settings(); err != nil {
		return c, err
	}
	c.Step = l.done
	if c.Meta, err = json.Marshal(state); err != nil || inParts {
		return c, err
	}
	c.Optimizer = safetensors.Sorted(o.Tensors)
	every := func(*gorgonia.Node) bool { return true }
	err = s.eachWeight(every, func(t safetensors.Tensor) { c.Weights = append(c.Weights, t) })
	return c, err
}

// settings are the caller's as JSON, nil if there are none.
func (s *saver) settings() (json.RawMessage, error) {
	if s.loop.c.Settings == nil {
		return nil, nil
	}
	text, err := json.Marshal(s.loop.c.Settings)
	if err != nil {
		return nil, fmt.Errorf("settings cannot be stored: %w", err)
	}
	return text, nil
}

// eachWeight hands out the parameters' values, on the host, of those that this rank wants. Where
// they are shared out, all ranks go through them together, and one that has an error goes on.
func (s *saver) eachWeight(wants func(*gorgonia.Node) bool, do func(safetensors.Tensor)) (first error) {
	var room kernels.Tensor
	for _, n := range s.loop.Parameters() {
		value, err := s.wholeValue(n, wants(n), &room)
		switch {
		case err != nil && first == nil:
			first = fmt.Errorf("%s: %w", n.Name(), err)
		case err == nil && value != nil:
			do(safetensors.Tensor{Name: n.Name(), Value: value})
		}
	}
	return first
}

// wholeValue is the value of a parameter on the host, if it is wanted. On a device it is put
// together in *room, one value after the other.
func (s *saver) wholeValue(n *gorgonia.Node, wanted bool, room *kernels.Tensor) (*tensor.Dense, error) {
	node, ranks := ops.WholeOf(n)
	if ranks == nil {
		if !wanted {
			return nil, nil
		}
		return s.copies.of(n.Name(), n.Value())
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
	if err := place.Copy(s.loop.stepper.part(whole), part.Reshape(part.Elements())); err != nil {
		return nil, err
	}
	if err := ranks.CollectParts(whole); err != nil || !wanted {
		return nil, err
	}
	return s.copies.of(n.Name(), ops.ValueOf(whole))
}
