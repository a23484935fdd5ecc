//go:build gpu

package cuda

// An index that a kernel cannot use, such as an id outside an embedding's table, is met on the device, where nobody can be
// told. The kernel leaves the element out and notes the index in memory of the host, and the next call that waits for the
// device returns it as an error.

/*
#include <cuda.h>

static CUresult allocateNote(CUcontext context, size_t bytes, void** at) {
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

// fault is Fault in src/elements.cuh.
type fault struct {
	taken, note address
	kernel      faultKernel
	zero        int32
}

// faultNote is FaultNote there.
type faultNote struct {
	position, value, limit int64
	kernel                 faultKernel
	there                  int32
}

// faultKernel is a kernel that takes indices.
type faultKernel int32

const (
	faultEmbedding faultKernel = iota
	faultEmbeddingBackward
	faultCrossEntropy
	faultCrossEntropyBackward
	faultLinearCrossEntropy
)

// faultNames are what messages call the kernels and their indices.
var faultNames = [...]struct{ kernel, indices string }{
	faultEmbedding:            {"embedding forward", "ids"},
	faultEmbeddingBackward:    {"embedding backward", "ids"},
	faultCrossEntropy:         {"cross-entropy forward", "targets"},
	faultCrossEntropyBackward: {"cross-entropy backward", "targets"},
	faultLinearCrossEntropy:   {"linear cross-entropy", "targets"},
}

// faults is where a device's kernels note an index: the first one since the last was reported.
type faults struct {
	sync.Mutex
	taken *owner
	note  atomic.Pointer[faultNote]
}

// fault tells a kernel where to note an index.
func (d *Device) fault(kernel faultKernel) (fault, error) {
	f := &d.faults
	f.Lock()
	defer f.Unlock()
	if f.note.Load() == nil {
		taken, err := d.memory.getLasting(4)
		if err != nil {
			return fault{}, err
		}
		if err := d.clearFault(taken); err != nil {
			return fault{}, err
		}
		var note unsafe.Pointer
		if err := d.check("cuMemHostAlloc", C.allocateNote(rawContext(d.context), C.size_t(unsafe.Sizeof(faultNote{})), &note)); err != nil {
			return fault{}, err
		}
		*(*faultNote)(note) = faultNote{}
		f.taken = taken.owned()
		f.note.Store((*faultNote)(note))
	}
	return fault{taken: f.taken.at, note: address(uintptr(unsafe.Pointer(f.note.Load()))), kernel: kernel}, nil
}

func (d *Device) clearFault(taken *block) error {
	return d.unrecorded("cuMemsetD8Async", func(s cu.Stream) error { return cu.MemsetD8Async(cu.DevicePtr(taken.at), 0, 4, s) })
}

// met returns the error of a wait: its own, or else what kernels noted before.
func (d *Device) met(err error) error {
	note := d.faults.note.Load()
	if err != nil || note == nil || atomic.LoadInt32(&note.there) == 0 {
		return err
	}
	f := &d.faults
	f.Lock()
	defer f.Unlock()
	if atomic.LoadInt32(&note.there) == 0 {
		return nil
	}
	name := faultNames[note.kernel]
	err = fmt.Errorf("cuda:%d: %s: element %d of %s is %d, it needs to be from 0 to %d",
		d.index, name.kernel, note.position, name.indices, note.value, note.limit-1)
	atomic.StoreInt32(&note.there, 0)
	if clearing := d.clearFault(f.taken.block); clearing != nil {
		return clearing
	}
	return err
}
