//go:build gpu

package cuda

/*
#include <cuda.h>

// beginCapture records the event before the capture begins. Relaxed captures let the work be queued from any thread, and
// let the driver give memory and load modules meanwhile.
static CUresult beginCapture(CUcontext context, CUstream stream, CUevent before) {
  CUresult result = cuCtxSetCurrent(context);
  if (!result) result = cuEventRecord(before, stream);
  return result ? result : cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

// endCapture ends the capture in any case, and gives a graph if all of it could be captured.
static CUresult endCapture(CUcontext context, CUstream stream, CUgraphExec* executable) {
  CUgraph graph = 0;
  CUresult result = cuCtxSetCurrent(context);
  if (!result) result = cuStreamEndCapture(stream, &graph);
  if (!result) result = cuGraphInstantiateWithFlags(executable, graph, 0);
  if (graph) cuGraphDestroy(graph);
  return result;
}

static CUresult launchGraph(CUcontext context, CUgraphExec executable, CUstream stream) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuGraphLaunch(executable, stream);
}

static CUresult destroyGraph(CUcontext context, CUgraphExec executable) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuGraphExecDestroy(executable);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/cu"
)

// Recording is work of a device that is queued again as a whole, in the time of one launch. What the work takes from the
// device's memory is its own for as long as it lives, so that nothing else is there when it runs again.
type Recording struct {
	device     *Device
	work       func() error // keeps what it refers to, so that the tensors which the recorded work reads stay where they are
	executable C.CUgraphExec
}

// Unrecordable is the error of a call that cannot be part of a recording: one that waits for the device, or moves data
// between it and the host.
type Unrecordable struct {
	Device string // its name
	Call   string // such as "Synchronize"
}

func (u Unrecordable) Error() string {
	return fmt.Sprintf("%s: %s cannot be recorded", u.Device, u.Call)
}

// Capture records what work queues on the device, without running it: [Recording.Launch] does that, as often as it is
// called. Until Capture returns nothing but work may use the device, from whatever goroutines.
//
// All that the recorded kernels read and write keeps its place: tensors that work makes lie in memory of the recording's own, and
// hold what the latest launch wrote. Those that it finds need to live as long as the recording; it keeps work itself, and so
// what that refers to. Numbers that were arguments of the kernels (not in the device's memory) stay what they were.
//
// A call that cannot be recorded returns [Unrecordable]. After an error the device is as it was before.
func (d *Device) Capture(work func() error) (_ kernels.Recording, err error) {
	d.memory.collectDead()
	kept, err := d.beginCapture()
	if err != nil {
		return nil, err
	}
	r := &Recording{device: d, work: work}
	finished := false
	defer func() { // also when work panics
		result := C.endCapture(rawContext(d.context), rawStream(d.stream), &r.executable)
		d.memory.recording.Store(nil)
		if finished && err == nil {
			err = d.check("cuStreamEndCapture", result)
		}
		if !finished || err != nil {
			d.forget(kept, r.executable)
			return
		}
		runtime.AddCleanup(r, func(executable C.CUgraphExec) { d.forget(kept, executable) }, r.executable)
	}()
	err = work()
	finished = true
	return r, err
}

// beginCapture begins to record.
func (d *Device) beginCapture() (*recordedMemory, error) {
	kept := &recordedMemory{}
	if !d.memory.recording.CompareAndSwap(nil, kept) {
		return nil, Unrecordable{d.Name(), "Capture"}
	}
	result := C.beginCapture(rawContext(d.context), rawStream(d.stream), rawEvent(d.beforeRecording))
	if err := d.check("cuStreamBeginCapture", result); err != nil {
		d.memory.recording.Store(nil)
		return nil, err
	}
	return kept, nil
}

// forget ends the life of a recording. The driver lets what was launched finish, and what the memory is used for next comes
// after it.
func (d *Device) forget(kept *recordedMemory, executable C.CUgraphExec) {
	if executable != nil {
		// A graph that cannot be destroyed is lost, and nobody is there to be told.
		_ = C.destroyGraph(rawContext(d.context), executable)
	}
	for _, b := range kept.counters.waiting {
		d.counters.keep(b)
	}
	d.memory.release(kept)
}

// Launch queues the recorded work.
func (r *Recording) Launch() error {
	if err := r.device.unrecordable("Launch"); err != nil {
		return err
	}
	defer runtime.KeepAlive(r)
	return r.device.check("cuGraphLaunch", C.launchGraph(rawContext(r.device.context), r.executable, rawStream(r.device.stream)))
}

// unrecordable returns the error of a call while a recording is made, and nil otherwise.
func (d *Device) unrecordable(call string) error {
	if d.memory.recording.Load() == nil {
		return nil
	}
	return Unrecordable{d.Name(), call}
}

// unrecorded makes a call of the driver that is no part of a recording: in the stream's order where none is made, and where
// one is, at once, in memory that no recorded work uses.
func (d *Device) unrecorded(call string, f func(cu.Stream) error) error {
	return d.do(call, func() error {
		if d.memory.recording.Load() == nil {
			return f(d.stream)
		}
		if err := d.aside.Wait(d.beforeRecording, 0); err != nil {
			return err
		}
		if err := f(d.aside); err != nil {
			return err
		}
		return d.aside.Synchronize()
	})
}

// recordedMemory is what a recording keeps from others. The allocator's lock guards waiting and over.
type recordedMemory struct {
	waiting map[int][]*block // by size: what recorded work took and gave back
	over    bool             // the recording is gone

	counters counters

	mutex     sync.Mutex
	constants []*owner
}

// keepConstant keeps a vector from being forgotten while the recording lives.
func (r *recordedMemory) keepConstant(o *owner) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.constants = append(r.constants, o)
}
