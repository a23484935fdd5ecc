//go:build gpu

package cuda

/*
#include <stdint.h>
#include <string.h>
#include <cuda.h>

// beginCapture records the event before the capture begins. Relaxed captures let the work be queued from any thread, and
// let the driver give memory and load modules meanwhile.
static CUresult beginCapture(CUcontext context, CUstream stream, CUevent before) {
  CUresult result = cuCtxSetCurrent(context);
  if (!result) result = cuEventRecord(before, stream);
  return result ? result : cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

// Recorded is a graph, whose nodes say what was recorded, and what runs it. Either may be null.
typedef struct {
  CUgraph graph;
  CUgraphExec executable;
} Recorded;

// endCapture ends the capture in any case, and gives what was recorded if all of it could be captured.
static CUresult endCapture(CUcontext context, CUstream stream, Recorded* recorded) {
  CUresult result = cuCtxSetCurrent(context);
  if (!result) result = cuStreamEndCapture(stream, &recorded->graph);
  return result ? result : cuGraphInstantiateWithFlags(&recorded->executable, recorded->graph, 0);
}

// Stepped is a kernel whose last argument, a struct, has the step of dropout at an offset.
typedef struct {
  CUgraphNode node;
  uint32_t maps, bytes, offset;  // maps: the arguments before the struct
} Stepped;

enum { MostMaps = 5, MostBytes = 4096 };

// lastNode finds the kernel that was captured last.
static CUresult lastNode(CUcontext context, CUstream stream, CUgraphNode* node) {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes;
  size_t count = 0;
  CUresult result = cuCtxSetCurrent(context);
#if CUDA_VERSION >= 13000
  if (!result) result = cuStreamGetCaptureInfo(stream, &status, 0, 0, &nodes, 0, &count);
#else
  if (!result) result = cuStreamGetCaptureInfo_v2(stream, &status, 0, 0, &nodes, &count);
#endif
  if (result) return result;
  if (count != 1) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *node = nodes[0];
  return CUDA_SUCCESS;
}

// setStep changes the step of kernels for launches to come.
static CUresult setStep(CUcontext context, CUgraphExec executable, const Stepped* list, int count, uint32_t step) {
  _Alignas(16) unsigned char arguments[MostBytes];
  void* pointers[MostMaps + 1];
  CUresult result = cuCtxSetCurrent(context);
  for (int i = 0; i < count && !result; i++) {
    CUDA_KERNEL_NODE_PARAMS kernel;
    const Stepped s = list[i];
    if ((result = cuGraphKernelNodeGetParams(s.node, &kernel))) break;
    memcpy(pointers, kernel.kernelParams, (s.maps + 1) * sizeof *pointers);
    memcpy(arguments, pointers[s.maps], s.bytes);
    memcpy(arguments + s.offset, &step, sizeof step);
    pointers[s.maps] = arguments;
    kernel.kernelParams = pointers;
    result = cuGraphExecKernelNodeSetParams(executable, s.node, &kernel);
  }
  return result;
}

static CUresult launchGraph(CUcontext context, CUgraphExec executable, CUstream stream) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuGraphLaunch(executable, stream);
}

// destroy forgets what was recorded. What cannot be destroyed is lost, and nobody is there to be told.
static void destroy(CUcontext context, Recorded recorded) {
  if (cuCtxSetCurrent(context)) return;
  if (recorded.executable) cuGraphExecDestroy(recorded.executable);
  if (recorded.graph) cuGraphDestroy(recorded.graph);
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
	device   *Device
	work     func() error // keeps what it refers to, so that the tensors which the recorded work reads stay where they are
	recorded C.Recorded
	stepped  []C.Stepped // the kernels that draw masks of dropout
	rounded  map[*roundedWeight]roundedState

	launching sync.Mutex // guards what changes from launch to launch
	varied    []*varied
	vectors   vectors
	step      *uint32 // of dropout, nil for what was recorded
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
// what that refers to. Numbers that were arguments of the kernels (not in the device's memory) stay what they were, except
// the step of dropout, see [Recording.SetDropoutStep], and those of work that varies, see [Device.Vary].
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
		result := C.endCapture(rawContext(d.context), rawStream(d.stream), &r.recorded)
		d.memory.recording.Store(nil)
		if finished && err == nil {
			err = d.check("cuStreamEndCapture", result)
		}
		if !finished || err != nil {
			d.forgetTransfers()
			d.forget(kept, r.recorded)
			return
		}
		r.stepped, r.rounded, r.varied = kept.stepped, kept.rounded, kept.varied
		kept.varied = nil // what it refers to may refer to r
		runtime.AddCleanup(r, func(recorded C.Recorded) { d.forget(kept, recorded) }, r.recorded)
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
func (d *Device) forget(kept *recordedMemory, recorded C.Recorded) {
	C.destroy(rawContext(d.context), recorded)
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
	r.launching.Lock()
	defer r.launching.Unlock()
	if err := r.vary(); err != nil {
		return err
	}
	if err := r.device.beforeLaunch(r.rounded); err != nil {
		return err
	}
	if err := r.device.check("cuGraphLaunch", C.launchGraph(rawContext(r.device.context), r.recorded.executable, rawStream(r.device.stream))); err != nil {
		return err
	}
	r.device.afterLaunch(r.rounded)
	return nil
}

// SetDropoutStep gives the recorded dropout the step of the launches to come. The step is an argument of the kernels, since those
// of attention have no register to spare for what they would read from memory: the graph's copy of it is changed.
func (r *Recording) SetDropoutStep(step uint32) error {
	if err := r.device.unrecordable("SetDropoutStep"); err != nil {
		return err
	}
	r.launching.Lock()
	defer r.launching.Unlock()
	r.step = &step
	if len(r.stepped) == 0 {
		return nil
	}
	defer runtime.KeepAlive(r)
	return r.device.check("cuGraphExecKernelNodeSetParams",
		C.setStep(rawContext(r.device.context), r.recorded.executable, &r.stepped[0], C.int(len(r.stepped)), C.uint32_t(step)))
}

// noteStep remembers, where a recording is made, that the kernel queued last has the step of dropout at an offset of its
// struct of arguments, which comes after maps.
func (d *Device) noteStep(maps int, bytes, offset uintptr) error {
	kept := d.memory.recording.Load()
	if kept == nil || d.varied != nil { // what varies is given the step
		return nil
	}
	if maps > C.MostMaps || bytes > C.MostBytes {
		return fmt.Errorf("cuda:%d: a kernel has %d maps and %d bytes of arguments, dropout is recorded with at most %d and %d",
			d.index, maps, bytes, C.MostMaps, C.MostBytes)
	}
	s := C.Stepped{maps: C.uint32_t(maps), bytes: C.uint32_t(bytes), offset: C.uint32_t(offset)}
	var err error
	if s.node, err = d.lastNode(); err != nil {
		return err
	}
	kept.mutex.Lock()
	defer kept.mutex.Unlock()
	kept.stepped = append(kept.stepped, s)
	return nil
}

// lastNode finds the kernel that was recorded last.
func (d *Device) lastNode() (node C.CUgraphNode, err error) {
	err = d.check("cuStreamGetCaptureInfo", C.lastNode(rawContext(d.context), rawStream(d.stream), &node))
	return node, err
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
	stepped   []C.Stepped
	varied    []*varied

	rounded map[*roundedWeight]roundedState // guarded by the device's rounding
}

// keepConstant keeps a vector from being forgotten while the recording lives.
func (r *recordedMemory) keepConstant(o *owner) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.constants = append(r.constants, o)
}
