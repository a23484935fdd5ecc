//go:build gpu

package driver

/*
#include <stdint.h>
#include <string.h>
#include <cuda.h>

// beginCapture records the event before the capture begins. Relaxed captures let the work be queued
// from any thread, and let the driver give memory and load modules meanwhile.
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

// endCapture ends the capture in any case, and gives what was recorded if all of it could be
// captured.
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

// destroy forgets what was recorded. What cannot be destroyed is lost, and nobody is there to be
// told.
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
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"
)

// Recording is work of a device that is queued again as a whole, in the time of one launch. What
// the work takes from the device's memory is its own for as long as it lives, so that nothing else
// is there when it runs again.
type Recording struct {
	gpu      *GPU
	work     func() error // keeps what it refers to, so that the tensors which the recorded work reads stay where they are
	recorded C.Recorded
	stepped  []C.Stepped // the kernels that draw masks of dropout

	launching sync.Mutex // guards what changes from launch to launch
	parts     []*part
	vectors   vectors
	step      *uint32 // of dropout, nil for what was recorded
}

// Unrecordable is the error of a call that cannot be part of a recording: one that waits for the
// device, or moves data between it and the host.
type Unrecordable struct {
	Device string // its name
	Call   string // such as "Synchronize"
}

func (u Unrecordable) Error() string {
	return fmt.Sprintf("%s: %s cannot be recorded", u.Device, u.Call)
}

// recorders are the recording that a device makes, if it makes one.
type recorders struct {
	current atomic.Pointer[recorder]
	chain   func([]Link) error // of Kernels

	// While a recording is made, what must not be a part of it runs here, after the work before the
	// recording.
	aside  cu.Stream
	before cu.Event
}

// Capture records what work queues on the device, without running it: [Recording.Launch] does that,
// as often as it is called. Until Capture returns nothing but work may use the device, from
// whatever goroutines.
//
// All that the recorded kernels read and write keeps its place: tensors that work makes lie in
// memory of the recording's own, and hold what the latest launch wrote. Those that it finds need to
// live as long as the recording; it keeps work itself, and so what that refers to. Numbers that
// were arguments of the kernels (not in the device's memory) stay what they were, except the step
// of dropout, see [Recording.SetDropoutStep], and those of work that varies, see [GPU.Vary].
//
// A call that cannot be recorded returns [Unrecordable]. After an error the device is as it was
// before.
func (g *GPU) Capture(work func() error) (_ *Recording, err error) {
	g.memory.collectDead()
	q, err := g.beginCapture()
	if err != nil {
		return nil, err
	}
	r := &Recording{gpu: g, work: work}
	finished := false
	defer func() { // also when work panics
		result := C.endCapture(rawContext(g.context), rawStream(g.stream), &r.recorded)
		g.recorder.current.Store(nil)
		if finished && err == nil {
			err = g.check("cuStreamEndCapture", result)
		}
		if !finished || err != nil {
			g.forgetTransfers()
			q.forget(r.recorded)
			return
		}
		r.stepped, r.parts = q.stepped, q.parts
		q.parts = nil // what it refers to may refer to r
		runtime.AddCleanup(r, func(recorded C.Recorded) { q.forget(recorded) }, r.recorded)
	}()
	if err = work(); err == nil {
		err = g.SettleLinks()
	}
	finished = true
	return r, err
}

// IsRecording reports whether a recording is made.
func (g *GPU) IsRecording() bool { return g.recorder.current.Load() != nil }

// beginCapture begins to record.
func (g *GPU) beginCapture() (*recorder, error) {
	q := &recorder{direct: direct{g}}
	if !g.recorder.current.CompareAndSwap(nil, q) {
		return nil, Unrecordable{g.Name(), "Capture"}
	}
	result := C.beginCapture(rawContext(g.context), rawStream(g.stream), rawEvent(g.recorder.before))
	if err := g.check("cuStreamBeginCapture", result); err != nil {
		g.recorder.current.Store(nil)
		return nil, err
	}
	return q, nil
}

// Launch queues the recorded work.
func (r *Recording) Launch() error {
	if err := r.gpu.unrecordable("Launch"); err != nil {
		return err
	}
	defer runtime.KeepAlive(r)
	r.launching.Lock()
	defer r.launching.Unlock()
	if err := r.vary(); err != nil {
		return err
	}
	g := r.gpu
	return g.check("cuGraphLaunch", C.launchGraph(rawContext(g.context), r.recorded.executable, rawStream(g.stream)))
}

// SetDropoutStep gives the recorded dropout the step of the launches to come. The step is an
// argument of the kernels, since those of attention have no register to spare for what they would
// read from memory: the graph's copy of it is changed.
func (r *Recording) SetDropoutStep(step uint32) error {
	if err := r.gpu.unrecordable("SetDropoutStep"); err != nil {
		return err
	}
	r.launching.Lock()
	defer r.launching.Unlock()
	r.step = &step
	if len(r.stepped) == 0 {
		return nil
	}
	defer runtime.KeepAlive(r)
	return r.gpu.check("cuGraphExecKernelNodeSetParams",
		C.setStep(rawContext(r.gpu.context), r.recorded.executable, &r.stepped[0], C.int(len(r.stepped)), C.uint32_t(step)))
}

// recorder records work. It has what the recording keeps from others; the allocator's lock guards
// waiting and over.
type recorder struct {
	direct
	waiting  map[int][]*Block // by size: what recorded work took and gave back
	over     bool             // the recording is gone
	counters Counters

	mutex     sync.Mutex
	constants []*Owner
	stepped   []C.Stepped
	parts     []*part
	links     []Link // held back
}

// Launch remembers kernels that have the step of dropout.
func (q *recorder) Launch(l Launch, maps []EncodedMap, arguments unsafe.Pointer) error {
	if err := q.direct.Launch(l, maps, arguments); err != nil || l.Step == nil {
		return err
	}
	bytes, g := l.Step.Bytes, q.gpu
	if len(maps) > C.MostMaps || bytes > C.MostBytes {
		return fmt.Errorf("%s: a kernel has %d maps and %d bytes of arguments, dropout is recorded with at most %d and %d",
			g.Name(), len(maps), bytes, C.MostMaps, C.MostBytes)
	}
	s := C.Stepped{maps: C.uint32_t(len(maps)), bytes: C.uint32_t(bytes), offset: C.uint32_t(l.Step.Offset)}
	var err error
	if s.node, err = g.lastNode(); err != nil {
		return err
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.stepped = append(q.stepped, s)
	return nil
}

// lastNode finds the kernel that was recorded last.
func (g *GPU) lastNode() (node C.CUgraphNode, err error) {
	err = g.check("cuStreamGetCaptureInfo", C.lastNode(rawContext(g.context), rawStream(g.stream), &node))
	return node, err
}

func (q *recorder) Scratch(bytes int) (*Block, error) { return q.gpu.memory.get(bytes, q) }

func (q *recorder) Vector(contents string) (*Owner, error) { return vectorOf(q, q.gpu, contents) }

func (q *recorder) Table(key string, contents func() []byte) (*Owner, error) {
	return q.gpu.constants.find(q, q.gpu, key, contents)
}

func (q *recorder) Counters() *Counters { return &q.counters }

// Keep keeps memory from being forgotten while the recording lives.
func (q *recorder) Keep(o *Owner) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.constants = append(q.constants, o)
	return true
}

func (q *recorder) Makes() bool { return false }

func (q *recorder) waits(call string) error { return Unrecordable{q.gpu.Name(), call} }

// lasting makes the call at once, in memory that no recorded work uses.
func (q *recorder) lasting(call string, f func(cu.Stream) error) error {
	g := q.gpu
	return g.Do(call, func() error {
		aside := g.recorder.aside
		if err := aside.Wait(g.recorder.before, 0); err != nil {
			return err
		}
		if err := f(aside); err != nil {
			return err
		}
		return aside.Synchronize()
	})
}

func (q *recorder) upload(to Address, contents []byte) error {
	return q.lasting("cuMemcpyHtoDAsync", func(s cu.Stream) error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(contents)), int64(len(contents)), s)
	})
}

// forget ends the life of a recording. The driver lets what was launched finish, and what the
// memory is used for next comes after it.
func (q *recorder) forget(recorded C.Recorded) {
	C.destroy(rawContext(q.gpu.context), recorded)
	for _, b := range q.counters.waiting {
		q.gpu.counters.Keep(b)
	}
	q.gpu.memory.release(q)
}
