package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Record records one run of a graph on a device, which the caller's function makes, so that later runs cost the host one launch:
//
//	recording, err := ops.Record(g, device, machine.RunAll)
//	...
//	err = recording.Launch() // reads the inputs as they are now, and writes the results where they were written when recorded
//
// The graph has run before, so that its memory is there, and does not run unrecorded afterwards. What an op reads on the host
// would stay what it was: such a graph cannot be recorded, and the error says which op that is: attention over packed sequences,
// whose lengths lie on the host, attention with a cache, and dropout in a graph that trains. The graph is still right unrecorded.
func Record(g *gorgonia.ExprGraph, d *Device, run func() error) (kernels.Recording, error) {
	recorder, ok := d.backend.(kernels.Recorder)
	if !ok {
		return nil, fmt.Errorf("Record: %w", kernels.Unsupported{Device: d.backend.Name(), What: "recording"})
	}
	p := &stateOf(g).pool
	p.recording.Store(true)
	defer p.recording.Store(false)
	r, err := recorder.Capture(run)
	if err != nil {
		return nil, fmt.Errorf("Record: %w", err)
	}
	return r, nil
}

// errReadOnHost is the error of an op that would be recorded with what it reads on the host.
var errReadOnHost = errors.New("cannot be recorded: what it reads on the host changes from run to run")

// checkRecording returns an error while the graph is recorded.
func (c *call) checkRecording() error {
	if c.memory.pool.recording.Load() {
		return errReadOnHost
	}
	return nil
}
