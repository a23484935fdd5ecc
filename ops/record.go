package ops

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Record records one run of a graph on a device, which the caller's function makes, so that later
// runs cost the host one launch:
//
//	recording, err := ops.Record(g, device, machine.RunAll)
//	...
//	err = recording.Launch() // reads the inputs as they are now, and writes the results where they were written when recorded
//
// The graph has run before, so that its memory is there, and does not run unrecorded afterwards.
// Its [Mode] is what it was: dropout is recorded after [Mode.Train] and has the masks of the step
// that Train was called with last. Each launch reads on the host the lengths of sequences, packed
// or padded, where they are inputs of the graph, and how much a [KVCache] holds, to which it adds.
// Anything else that an op reads on the host would stay what it was: such a graph cannot be
// recorded, and the error says which op that is: attention over lengths that ranks share, and
// dropout that counts its own runs. The graph is still right unrecorded.
func Record(g *gorgonia.ExprGraph, d *Device, run func() error) (kernels.Recording, error) {
	if g == nil || run == nil {
		return nil, errors.New("Record: g or run is nil, it needs a graph and what runs it")
	}
	if err := d.isOpen(); err != nil {
		return nil, fmt.Errorf("Record: %w", err)
	}
	recorder, ok := d.backend.(kernels.Recorder)
	if !ok {
		return nil, fmt.Errorf("Record: %w", kernels.Unsupported{Device: d.backend.Name(), What: "recording"})
	}
	state := stateOf(g)
	p := &state.pool
	p.recording.Store(true)
	defer p.recording.Store(false)
	r, err := recorder.Capture(run)
	if err != nil {
		return nil, fmt.Errorf("Record: %w", err)
	}
	mode := ModeOf(g)
	return &recording{r, mode, mode.state.Load(), &state.gradients}, nil
}

// recording is what was recorded of a graph.
type recording struct {
	kernels.Recording
	mode  *Mode
	state uint64 // of the mode in the last launch

	gradients *atomic.Uint64 // of the graph
}

// Launch does the work again, with the masks of the mode's step.
func (r *recording) Launch() error {
	now := r.mode.state.Load()
	if now != r.state && r.mode.Drops() {
		if now&training == 0 || r.state&training == 0 {
			return errors.New("the graph's mode is no longer that of the recording: dropout is switched on or off when it is recorded")
		}
		if err := r.SetDropoutStep(uint32(now)); err != nil {
			return err
		}
		r.state = now
	}
	r.gradients.Add(1)
	return r.Recording.Launch()
}

// errReadOnHost is the error of an op that would be recorded with what it reads on the host.
var errReadOnHost = errors.New("cannot be recorded: what it reads on the host changes from run to run")

// checkRecording returns an error while the graph is recorded.
func (m *member) checkRecording() error {
	if m.state.pool.recording.Load() {
		return errReadOnHost
	}
	return nil
}
