//go:build gpu

package driver

import (
	"errors"
	"runtime"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/cu"
)

// Event is a point in the order of a device's work, for measuring time.
type Event struct {
	gpu   *GPU
	event cu.Event
}

// Record marks the point after all work that was queued so far.
func (g *GPU) Record() (kernels.Event, error) {
	if err := g.unrecordable("Record"); err != nil {
		return nil, err
	}
	e := &Event{gpu: g}
	if err := g.Do("cuEventCreate", func() (err error) {
		e.event, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	}); err != nil {
		return nil, err
	}
	runtime.AddCleanup(e, func(event cu.Event) {
		// An event that cannot be destroyed is lost, and nobody is there to be told.
		_ = g.Do("cuEventDestroy", func() error { return cu.DestroyEvent(&event) })
	}, e.event)
	return e, g.Do("cuEventRecord", func() error { return e.event.Record(g.stream) })
}

// Wait waits until the work before the event is done.
func (e *Event) Wait() error {
	defer runtime.KeepAlive(e)
	return e.gpu.met(e.gpu.Do("cuEventSynchronize", e.event.Synchronize))
}

// Since waits for both points and returns the time between them.
func (e *Event) Since(earlier kernels.Event) (time.Duration, error) {
	from, ok := earlier.(*Event)
	if !ok || e.gpu != from.gpu {
		return 0, errors.New("cuda: the events are of two devices")
	}
	var milliseconds float64
	err := e.gpu.Do("cuEventElapsedTime", func() (err error) {
		if err := e.event.Synchronize(); err != nil {
			return err
		}
		milliseconds, err = from.event.Elapsed(e.event)
		return err
	})
	runtime.KeepAlive(from)
	runtime.KeepAlive(e)
	return time.Duration(milliseconds * float64(time.Millisecond)), err
}
