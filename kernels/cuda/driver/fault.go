//go:build gpu

package driver

// An index that a kernel cannot use, such as an id outside an embedding's table, is met on the
// device, where nobody can be told. The kernel leaves the element out and notes the index in memory
// of the host, and the next call that waits for the device returns it as an error.

/*
#include <cuda.h>

static CUresult allocateOnHost(CUcontext context, size_t bytes, void** at) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuMemHostAlloc(at, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"
)

// Note is what a kernel notes: FaultNote in src/elements.cuh.
type Note struct {
	Position, Value, Limit int64
	Kernel                 int32
	There                  int32
}

// hostWords are what kernels and the host tell each other in memory of the host.
type hostWords struct {
	faults    faults
	abandoned atomic.Pointer[int32] // see Abandoned
}

// faults is where a device's kernels note an index: the first one since the last was reported.
type faults struct {
	sync.Mutex
	describe func(Note) error
	taken    *Owner
	note     atomic.Pointer[Note]
}

// Fault is where a kernel notes an index: the first one sets what lies at taken, which is zero.
func (g *GPU) Fault(q Queue) (taken, note Writable, err error) {
	f := &g.faults
	f.Lock()
	defer f.Unlock()
	if f.note.Load() == nil {
		taken, err := g.Lasting(4)
		if err != nil {
			return 0, 0, err
		}
		if err := clearFault(q, taken); err != nil {
			return 0, 0, err
		}
		note, err := g.hostMemory(unsafe.Sizeof(Note{}))
		if err != nil {
			return 0, 0, err
		}
		*(*Note)(note) = Note{}
		f.taken = taken.Owned()
		f.note.Store((*Note)(note))
	}
	return f.taken.At.Writable(), Writable(uintptr(unsafe.Pointer(f.note.Load()))), nil
}

// hostMemory is memory of the host that kernels reach, for as long as the process lives.
func (g *GPU) hostMemory(bytes uintptr) (at unsafe.Pointer, err error) {
	err = g.check("cuMemHostAlloc", C.allocateOnHost(rawContext(g.context), C.size_t(bytes), &at))
	return at, err
}

func clearFault(q Queue, taken *Block) error {
	return q.lasting("cuMemsetD8Async", func(s cu.Stream) error { return cu.MemsetD8Async(cu.DevicePtr(taken.At), 0, 4, s) })
}

// met returns the error of a wait: its own, or else what kernels noted before.
func (g *GPU) met(err error) error {
	note := g.faults.note.Load()
	if err != nil || note == nil || atomic.LoadInt32(&note.There) == 0 {
		return err
	}
	f := &g.faults
	f.Lock()
	defer f.Unlock()
	if atomic.LoadInt32(&note.There) == 0 {
		return nil
	}
	err = fmt.Errorf("%s: %w", g.Name(), f.describe(*note))
	atomic.StoreInt32(&note.There, 0)
	if clearing := clearFault(g.Queue(), f.taken.Block); clearing != nil {
		return clearing
	}
	return err
}
