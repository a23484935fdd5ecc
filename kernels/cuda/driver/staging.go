//go:build gpu

package driver

// Copies between Go's memory and the device's that wait for nothing go through memory of the host
// that the device reads and writes by itself. It is taken from the driver once and used again when
// the copy that used it is done.

/*
#include <stdint.h>
#include <cuda.h>

static CUresult allocateStaging(CUcontext context, size_t bytes, void** at) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuMemHostAlloc(at, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

static CUresult createEvent(CUcontext context, CUevent* event) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
}

// copyStaged copies to the device or from it, and records the event behind the copy.
static CUresult copyStaged(CUcontext context, CUdeviceptr device, void* host, size_t bytes, int toDevice, CUstream stream, CUevent done) {
  CUresult result = cuCtxSetCurrent(context);
  if (!result) {
    result = toDevice ? cuMemcpyHtoDAsync(device, host, bytes, stream) : cuMemcpyDtoHAsync(host, device, bytes, stream);
  }
  return result ? result : cuEventRecord(done, stream);
}

static CUresult isDone(CUcontext context, CUevent event) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuEventQuery(event);
}

static CUresult waitFor(CUcontext context, CUevent event) {
  const CUresult result = cuCtxSetCurrent(context);
  return result ? result : cuEventSynchronize(event);
}
*/
import "C"

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// staging is a piece of such memory.
type staging struct {
	at    unsafe.Pointer
	bytes int
	done  C.CUevent // behind the copy that used it last
}

// stagings are the pieces of a device.
type stagings struct {
	sync.Mutex
	free map[int][]*staging // by size
	used []*staging         // by copies that may not be done, in the order of the copies
	held int                // bytes of all
}

const (
	leastStaging = 64
	mostStaging  = 4 << 20  // larger copies go in pieces
	stagingPage  = 64 << 10 // small pieces are cut from it
	stagingLimit = 32 << 20 // what pieces may hold before a copy waits for one to come back
)

// takeStaging returns a piece of at least so many bytes, at most mostStaging.
func (g *GPU) takeStaging(bytes int) (*staging, error) {
	size := max(leastStaging, 1<<bits.Len(uint(bytes-1)))
	p := &g.stagings
	p.Lock()
	defer p.Unlock()
	for {
		if err := g.reclaimStaging(); err != nil {
			return nil, err
		}
		if list := p.free[size]; len(list) > 0 {
			p.free[size] = list[:len(list)-1]
			return list[len(list)-1], nil
		}
		if p.held+size <= stagingLimit || len(p.used) == 0 {
			return g.newStaging(size)
		}
		if err := g.check("cuEventSynchronize", C.waitFor(rawContext(g.context), p.used[0].done)); err != nil {
			return nil, err
		}
	}
}

// reclaimStaging frees the pieces whose copies are done. The caller holds the lock.
func (g *GPU) reclaimStaging() error {
	p := &g.stagings
	for len(p.used) > 0 {
		result := C.isDone(rawContext(g.context), p.used[0].done)
		if result == C.CUDA_ERROR_NOT_READY {
			return nil
		}
		if err := g.check("cuEventQuery", result); err != nil {
			return err
		}
		p.keep(p.used[0])
		p.used = p.used[1:]
	}
	return nil
}

func (p *stagings) keep(s *staging) {
	if p.free == nil {
		p.free = map[int][]*staging{}
	}
	p.free[s.bytes] = append(p.free[s.bytes], s)
}

// newStaging takes memory from the driver. The caller holds the lock.
func (g *GPU) newStaging(size int) (*staging, error) {
	page := max(size, stagingPage)
	var at unsafe.Pointer
	if err := g.check("cuMemHostAlloc", C.allocateStaging(rawContext(g.context), C.size_t(page), &at)); err != nil {
		return nil, err
	}
	g.stagings.held += page
	var last *staging
	for from := 0; from < page; from += size {
		s := &staging{at: unsafe.Add(at, from), bytes: size}
		if err := g.check("cuEventCreate", C.createEvent(rawContext(g.context), &s.done)); err != nil {
			return nil, err
		}
		if last != nil {
			g.stagings.keep(last)
		}
		last = s
	}
	return last, nil
}

// use gives a piece back that is free when its copy is done.
func (p *stagings) use(s *staging) {
	p.Lock()
	defer p.Unlock()
	p.used = append(p.used, s)
}

// uploadBytes copies from Go's memory, which is the caller's again when it returns, without waiting
// for the device.
func (g *GPU) uploadBytes(to Address, from unsafe.Pointer, bytes int) error {
	if err := g.unrecordable("Copy from the host"); err != nil {
		return err
	}
	for at := 0; at < bytes; at += mostStaging {
		n := min(mostStaging, bytes-at)
		s, err := g.takeStaging(n)
		if err != nil {
			return err
		}
		copy(unsafe.Slice((*byte)(s.at), n), unsafe.Slice((*byte)(unsafe.Add(from, at)), n))
		err = g.check("cuMemcpyHtoDAsync", C.copyStaged(rawContext(g.context), C.CUdeviceptr(to)+C.CUdeviceptr(at), s.at, C.size_t(n), 1, rawStream(g.stream), s.done))
		g.stagings.use(s)
		if err != nil {
			return err
		}
	}
	return nil
}

// number is an element on its way to the host.
type number struct {
	gpu   *GPU
	dtype kernels.DType

	mutex   sync.Mutex
	staging *staging // nil when value and err are there
	unread  runtime.Cleanup
	value   float64
	err     error
}

// Read asks for the element of a tensor that has one.
func (g *GPU) Read(t kernels.Tensor) (kernels.Number, error) {
	if err := g.unrecordable("Read"); err != nil {
		return nil, err
	}
	switch {
	case !t.IsSet():
		return nil, fmt.Errorf("%s: read: t is missing", g.Name())
	case t.Elements() != 1:
		return nil, fmt.Errorf("%s: read: t has shape %v, it needs one element", g.Name(), t.Shape)
	case t.Owner == nil:
		return nil, fmt.Errorf("%s: read: t is not in the memory of a device", g.Name())
	}
	s, err := g.takeStaging(t.DType.Size())
	if err != nil {
		return nil, err
	}
	err = g.check("cuMemcpyDtoHAsync", C.copyStaged(rawContext(g.context), C.CUdeviceptr(Read(t)), s.at, C.size_t(t.DType.Size()), 0, rawStream(g.stream), s.done))
	runtime.KeepAlive(t.Owner)
	if err != nil {
		g.stagings.use(s)
		return nil, err
	}
	n := &number{gpu: g, dtype: t.DType, staging: s}
	n.unread = runtime.AddCleanup(n, g.stagings.use, s)
	return n, nil
}

// Float64 waits for the number.
func (n *number) Float64() (float64, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if s := n.staging; s != nil {
		n.err = n.gpu.met(n.gpu.check("cuEventSynchronize", C.waitFor(rawContext(n.gpu.context), s.done)))
		n.value = kernels.HostElement(kernels.Contiguous(s.at, n.dtype), 0)
		n.staging = nil
		n.unread.Stop()
		n.gpu.stagings.use(s)
	}
	return n.value, n.err
}
