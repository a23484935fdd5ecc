//go:build gpu

package cuda

/*
#include <stdint.h>
#include <string.h>
#include <cuda.h>

// changeKernel makes a recorded kernel another one for launches to come. Arguments are the encoded maps and then a struct, by value.
static CUresult changeKernel(CUcontext context, CUgraphExec executable, CUgraphNode node, CUfunction f, uint32_t x, uint32_t y, uint32_t z,
                             uint32_t threads, uint32_t sharedBytes, const unsigned char* maps, int count, void* arguments) {
  enum { Most = 5 };
  _Alignas(128) CUtensorMap aligned[Most];
  void* pointers[Most + 1];
  CUresult result = cuCtxSetCurrent(context);
  if (result) return result;
  if (count) memcpy(aligned, maps, count * sizeof(CUtensorMap));
  for (int i = 0; i < count; i++) pointers[i] = &aligned[i];
  pointers[count] = arguments;
  CUDA_KERNEL_NODE_PARAMS kernel;
  memset(&kernel, 0, sizeof kernel);
  kernel.func = f;
  kernel.gridDimX = x, kernel.gridDimY = y, kernel.gridDimZ = z;
  kernel.blockDimX = threads, kernel.blockDimY = 1, kernel.blockDimZ = 1;
  kernel.sharedMemBytes = sharedBytes;
  kernel.kernelParams = pointers;
  return cuGraphExecKernelNodeSetParams(executable, node, &kernel);
}

static CUresult setEnabled(CUcontext context, CUgraphExec executable, CUgraphNode node, unsigned enabled) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuGraphNodeSetEnabled(executable, node, enabled);
}
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/cu"
)

// This file lets parts of a recording follow what the host reads, such as the lengths of packed sequences. The work of such a part is
// asked for again before each launch, of a Device that queues nothing. A kernel that is asked for there takes the next place among those that
// were recorded, whichever kernel that had been, and places that are left over stay empty.
//
// So a part is recorded with as many places as it can come to need (spare), and with kernels alone, not with what the driver does itself:
// any kernel can take the place of any other. Its memory is that of the recording, and vectors are written before the launch, behind the work
// that read them.

// varied is such a part.
type varied struct {
	kept   *recordedMemory // of its recording
	work   func(kernels.Backend) error
	places []place
	blocks []*lentBlock

	// While the work is asked for again.
	executable C.CUgraphExec // nil while the part is recorded
	next       int           // of the places
	vectors    *vectors
	step       *uint32 // of dropout, nil for that of the work
}

// place is a kernel of a part.
type place struct {
	node  C.CUgraphNode
	empty bool
}

// lentBlock is memory of a part, which lends it for as long as the work's own call would have it.
type lentBlock struct {
	*block
	inUse bool
	owner *owner // that keeps it; nil for memory of the recording
}

// Vary does work that asks a device for kernels. While a recording is made it is a part of that, and asked for again before each
// launch: see [kernels.Recorder].
func (d *Device) Vary(work func(kernels.Backend) error) error {
	kept := d.memory.recording.Load()
	if kept == nil || d.varied != nil {
		return work(d)
	}
	v := &varied{kept: kept, work: work}
	if err := work(&Device{d.hardware, v}); err != nil {
		return err
	}
	kept.mutex.Lock()
	defer kept.mutex.Unlock()
	kept.varied = append(kept.varied, v)
	return nil
}

// isVarying reports whether work is asked for again: nothing is queued then.
func (d *Device) isVarying() bool { return d.varied != nil && d.varied.executable != nil }

// vary asks for the work of all parts, and changes what was recorded of them.
func (r *Recording) vary() error {
	r.vectors.turn++
	for _, v := range r.varied {
		v.executable, v.vectors, v.step, v.next = r.recorded.executable, &r.vectors, r.step, 0
		if err := v.work(&Device{r.device.hardware, v}); err != nil {
			return err
		}
		for ; v.next < len(v.places); v.next++ {
			if err := v.setEmpty(r.device, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// note remembers the kernel that was recorded last.
func (v *varied) note(d *Device) error {
	node, err := d.lastNode()
	v.places = append(v.places, place{node: node})
	return err
}

// change makes the kernel in the next place one that is asked for.
func (v *varied) change(d *Device, f cu.Function, s launchShape, maps []encodedMap, arguments unsafe.Pointer) error {
	if v.next == len(v.places) {
		return fmt.Errorf("cuda:%d: %s: %w", d.index, s.kernel.entry, kernels.ErrOutgrown)
	}
	var first *C.uchar
	if len(maps) > 0 {
		first = (*C.uchar)(&maps[0][0])
	}
	result := C.changeKernel(rawContext(d.context), v.executable, v.places[v.next].node, rawFunction(f),
		C.uint32_t(s.grid[0]), C.uint32_t(s.grid[1]), C.uint32_t(s.grid[2]), C.uint32_t(s.threads), C.uint32_t(s.sharedBytes),
		first, C.int(len(maps)), arguments)
	if result != 0 {
		return fmt.Errorf("cuda:%d: cuGraphExecKernelNodeSetParams of %v: %w", d.index, &s, driverError(result))
	}
	err := v.setEmpty(d, false)
	v.next++
	return err
}

// setEmpty says whether there is a kernel in the next place.
func (v *varied) setEmpty(d *Device, empty bool) error {
	p := &v.places[v.next]
	if p.empty == empty {
		return nil
	}
	enabled := C.uint(1)
	if empty {
		enabled = 0
	}
	if err := d.check("cuGraphNodeSetEnabled", C.setEnabled(rawContext(d.context), v.executable, p.node, enabled)); err != nil {
		return err
	}
	p.empty = empty
	return nil
}

// spare records places for kernels that there may be in other launches, where a part of a recording is made.
func (d *Device) spare(places int) error {
	if d.varied == nil || d.isVarying() {
		return nil
	}
	for range places {
		s := launchShape{kernelName{"copy", "fill_2"}, [3]int{1, 1, 1}, elementwiseThreads, 0}
		if err := d.launch(s, nil, unsafe.Pointer(&elementwise{})); err != nil {
			return err
		}
	}
	return nil
}

// zeroByKernel writes zeros into tensors of 16 bits or more.
func (d *Device) zeroByKernel(at address, bytes int) error {
	words := kernels.Contiguous(pointer(at), kernels.BF16, bytes/kernels.BF16.Size())
	return d.launchElementwise("zero", kernelName{"copy", fillKernels[kernels.BF16.Size()]}, &elementwise{}, operand{"t", words})
}

// scratch finds a block of at least so many bytes, which the caller frees.
func (d *Device) scratch(bytes int) (*block, error) {
	v := d.varied
	switch {
	case v == nil:
		return d.memory.get(bytes)
	case v.executable == nil:
		b, err := d.memory.get(bytes)
		if err == nil && !slices.ContainsFunc(v.blocks, func(l *lentBlock) bool { return l.block == b }) {
			v.blocks = append(v.blocks, &lentBlock{block: b})
		}
		return b, err
	}
	at := slices.IndexFunc(v.blocks, func(l *lentBlock) bool { return !l.inUse && l.bytes >= bytes })
	if at < 0 {
		b, err := d.memory.getLasting(bytes)
		if err != nil {
			return nil, err
		}
		at, v.blocks = len(v.blocks), append(v.blocks, &lentBlock{block: b, owner: b.owned()})
	}
	l := v.blocks[at]
	l.inUse = true
	return &block{at: l.at, bytes: l.bytes, lent: l}, nil
}

// vectors are constants of a recording's parts.
type vectors struct {
	list []*vector
	turn int // a number of the launch
}

type vector struct {
	*owner
	contents string
	turn     int // that used it last
}

// take gives a vector for the launch: one that has the contents, or else one that the launch does not use yet, written anew.
func (l *vectors) take(d *Device, contents string) (*owner, error) {
	at := slices.IndexFunc(l.list, func(v *vector) bool { return v.contents == contents })
	if at < 0 {
		at = slices.IndexFunc(l.list, func(v *vector) bool { return v.turn != l.turn && v.bytes >= len(contents) })
		if at < 0 {
			b, err := d.memory.getLasting(len(contents))
			if err != nil {
				return nil, err
			}
			at, l.list = len(l.list), append(l.list, &vector{owner: b.owned()})
		}
		v := l.list[at]
		v.contents = ""
		if err := d.uploadBytes(v.at, unsafe.Pointer(unsafe.StringData(contents)), len(contents)); err != nil {
			return nil, err
		}
		v.contents = contents
	}
	l.list[at].turn = l.turn
	return l.list[at].owner, nil
}

// dropoutStep is the step of dropout, or what [Recording.SetDropoutStep] gave in its place.
func (d *Device) dropoutStep(step uint32) uint32 {
	if d.isVarying() && d.varied.step != nil {
		return *d.varied.step
	}
	return step
}
