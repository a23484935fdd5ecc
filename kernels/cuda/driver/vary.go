//go:build gpu

package driver

/*
#include <stdint.h>
#include <string.h>
#include <cuda.h>

// changeKernel makes a recorded kernel another one for launches to come. Arguments are the encoded
// maps and then a struct, by value.
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
)

// This file lets parts of a recording follow what the host reads, such as the lengths of packed
// sequences. The work of such a part is asked for again before each launch, with a Queue that
// queues nothing. A kernel that is asked for there takes the next place among those that were
// recorded, whichever kernel that had been, and places that are left over stay empty.
//
// So a part is recorded with as many places as it can come to need (Spare), and with kernels alone,
// not with what the driver does itself: any kernel can take the place of any other. Its memory is
// that of the recording, and vectors are written before the launch, behind the work that read them.

// PartKernels are kernels that a part needs for itself.
type PartKernels struct {
	Empty func(q Queue) error                        // queues a kernel that does nothing
	Clear func(q Queue, at Address, bytes int) error // queues one that writes zeros
}

// part records such work.
type part struct {
	*recorder
	kernels PartKernels
	work    func(Queue) error
	places  []place
	blocks  []*lentBlock
	again   *replay // which asks for the work again, once it was asked for
}

// place is a kernel of a part.
type place struct {
	node  C.CUgraphNode
	empty bool
}

// lentBlock is memory of a part, which lends it for as long as the work's own call would have it.
type lentBlock struct {
	*Block
	inUse bool
	owner *Owner // that keeps it; nil for memory of the recording
}

// Vary does work that queues kernels. While a recording is made it is a part of that, and asked for
// again before each launch.
func (g *GPU) Vary(k PartKernels, work func(Queue) error) error {
	r := g.recorder.current.Load()
	if r == nil {
		return work(direct{g})
	}
	p := &part{recorder: r, kernels: k, work: work}
	if err := work(p); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.parts = append(r.parts, p)
	return nil
}

// Launch remembers the kernel's place. What varies is asked for with the step of dropout. No kernel
// overlaps others here: the one that takes its place may not wait.
func (p *part) Launch(l Launch, maps []EncodedMap, arguments unsafe.Pointer) error {
	l.Early = nil
	if err := p.direct.Launch(l, maps, arguments); err != nil {
		return err
	}
	node, err := p.gpu.lastNode()
	p.places = append(p.places, place{node: node})
	return err
}

func (p *part) Clear(at Address, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return p.kernels.Clear(p, at, bytes)
}

// Scratch remembers the memory, for lending it when the work is asked for again.
func (p *part) Scratch(bytes int) (*Block, error) {
	b, err := p.recorder.Scratch(bytes)
	if err == nil && !slices.ContainsFunc(p.blocks, func(l *lentBlock) bool { return l.Block == b }) {
		p.blocks = append(p.blocks, &lentBlock{Block: b})
	}
	return b, err
}

// Keep reports false: work that is asked for again may need other contents.
func (p *part) Keep(*Owner) bool { return false }

func (p *part) Spare(kernels int) error {
	for range kernels {
		if err := p.kernels.Empty(p); err != nil {
			return err
		}
	}
	return nil
}

// replay takes the work of a part when it is asked for again.
type replay struct {
	direct
	part      *part
	recording *Recording
	next      int // of the places
}

// vary asks for the work of all parts, and changes what was recorded of them.
func (r *Recording) vary() error {
	r.vectors.turn++
	for _, p := range r.parts {
		if p.again == nil {
			p.again = &replay{direct: direct{r.gpu}, part: p, recording: r}
		}
		q := p.again
		q.next = 0
		if err := p.work(q); err != nil {
			return err
		}
		for ; q.next < len(p.places); q.next++ {
			if err := q.setEmpty(true); err != nil {
				return err
			}
		}
	}
	return nil
}

// Launch makes the kernel in the next place the one that is asked for.
func (q *replay) Launch(l Launch, maps []EncodedMap, arguments unsafe.Pointer) error {
	g := q.gpu
	f, err := g.function(l)
	if err != nil {
		return err
	}
	if q.next == len(q.part.places) {
		return fmt.Errorf("%s: %s: %w", g.Name(), l.Kernel.Entry, kernels.ErrOutgrown)
	}
	result := C.changeKernel(rawContext(g.context), q.recording.recorded.executable, q.part.places[q.next].node, rawFunction(f),
		C.uint32_t(l.Grid[0]), C.uint32_t(l.Grid[1]), C.uint32_t(l.Grid[2]), C.uint32_t(l.Threads), C.uint32_t(l.SharedBytes),
		firstOf(maps), C.int(len(maps)), arguments)
	if result != 0 {
		return fmt.Errorf("%s: cuGraphExecKernelNodeSetParams of %v: %w", g.Name(), &l, driverError(result))
	}
	err = q.setEmpty(false)
	q.next++
	return err
}

// setEmpty says whether there is a kernel in the next place.
func (q *replay) setEmpty(empty bool) error {
	p := &q.part.places[q.next]
	if p.empty == empty {
		return nil
	}
	enabled := C.uint(1)
	if empty {
		enabled = 0
	}
	if err := q.gpu.check("cuGraphNodeSetEnabled",
		C.setEnabled(rawContext(q.gpu.context), q.recording.recorded.executable, p.node, enabled)); err != nil {
		return err
	}
	p.empty = empty
	return nil
}

func (q *replay) Clear(at Address, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return q.part.kernels.Clear(q, at, bytes)
}

// Scratch lends memory of the part. Work may come to need more than it had when it was recorded.
func (q *replay) Scratch(bytes int) (*Block, error) {
	p := q.part
	at := slices.IndexFunc(p.blocks, func(l *lentBlock) bool { return !l.inUse && l.Bytes >= bytes })
	if at < 0 {
		b, err := q.gpu.Lasting(bytes)
		if err != nil {
			return nil, err
		}
		at, p.blocks = len(p.blocks), append(p.blocks, &lentBlock{Block: b, owner: b.Owned()})
	}
	l := p.blocks[at]
	l.inUse = true
	return &Block{At: l.At, Bytes: l.Bytes, lent: l}, nil
}

func (q *replay) Vector(contents string) (*Owner, error) {
	return q.recording.vectors.take(q.gpu, contents)
}

func (q *replay) Counters() *Counters { return q.part.Counters() }
func (q *replay) Keep(*Owner) bool    { return false }
func (q *replay) Makes() bool         { return false }
func (q *replay) Fork() error         { return nil }
func (q *replay) Join() error         { return nil }

// Step is what [Recording.SetDropoutStep] gave.
func (q *replay) Step(step uint32) uint32 {
	if q.recording.step != nil {
		return *q.recording.step
	}
	return step
}

// vectors are constants of a recording's parts.
type vectors struct {
	list []*vector
	turn int // a number of the launch
}

type vector struct {
	*Owner
	contents string
	turn     int // that used it last
}

// take gives a vector for the launch: one that has the contents, or else one that the launch does
// not use yet, written anew.
func (l *vectors) take(g *GPU, contents string) (*Owner, error) {
	at := slices.IndexFunc(l.list, func(v *vector) bool { return v.contents == contents })
	if at < 0 {
		at = slices.IndexFunc(l.list, func(v *vector) bool { return v.turn != l.turn && v.Bytes >= len(contents) })
		if at < 0 {
			b, err := g.Lasting(len(contents))
			if err != nil {
				return nil, err
			}
			at, l.list = len(l.list), append(l.list, &vector{Owner: b.Owned()})
		}
		v := l.list[at]
		v.contents = ""
		if err := g.uploadBytes(v.At, unsafe.Pointer(unsafe.StringData(contents)), len(contents)); err != nil {
			return nil, err
		}
		v.contents = contents
	}
	l.list[at].turn = l.turn
	return l.list[at].Owner, nil
}
