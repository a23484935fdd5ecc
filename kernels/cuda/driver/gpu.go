//go:build gpu

package driver

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/cu"
)

// GPU is a device. Its methods may be called from any goroutine; their work runs in the order of
// the calls.
type GPU struct {
	Properties
	context cu.CUContext // the primary one, which other libraries of the process share
	stream  cu.Stream    // all work goes here

	memory    allocator
	stagings  stagings
	modules   modules
	maps      tensorMaps
	constants constants
	counters  Counters
	hostWords

	recorder recorders
	waiting  atomic.Pointer[Transfers] // that were asked for later, nil for none

	turn   turn
	last   atomic.Pointer[Launch] // the kernel queued last, for the messages of errors that come later
	traced atomic.Pointer[func(kernel string)]
}

// turn is the kernel that was queued last, nil for one that does not overlap others. What is queued
// besides kernels waits for all before it.
type turn struct {
	sync.Mutex
	before *Early
}

// Properties are what kernels are chosen by.
type Properties struct {
	Index           int
	Product         string
	Major, Minor    int // of the compute capability
	Multiprocessors int
	SharedMemory    int // bytes of a multiprocessor
	Driver          int // the version of CUDA that the driver is of: 13000 is 13.0
}

// Kernels is what a GPU runs.
type Kernels struct {
	// Image returns the PTX of a module, or its cubin.
	Image func(module string) (string, error)
	// Fault describes what a kernel noted: see GPU.Fault.
	Fault func(Note) error
	// Chain queues calls that a recording held back, in their order.
	Chain func([]Link) error
}

// leastDriver is the version of CUDA whose drivers, and newer ones, run PTX of the compiler that
// made the kernels.
const leastDriver = 12040

// Count returns the number of GPUs and, where that is 0, why.
func Count() (int, error) {
	if err := driverProblem(); err != nil {
		return 0, err
	}
	if v := cu.Version(); v < leastDriver {
		return 0, fmt.Errorf("the NVIDIA driver is one of CUDA %d.%d, it needs to be of %d.%d or newer",
			v/1000, v%1000/10, leastDriver/1000, leastDriver%1000/10)
	}
	n, err := cu.NumDevices()
	switch {
	case err != nil:
		return 0, fmt.Errorf("cuDeviceGetCount: %w", err)
	case n == 0:
		return 0, errors.New("the NVIDIA driver has no device")
	}
	return n, nil
}

// Open opens the GPU of an index from 0 to Count.
func Open(index int, k Kernels) (*GPU, error) {
	device, err := cu.GetDevice(index)
	if err != nil {
		return nil, fmt.Errorf("cuDeviceGet: %w", err)
	}
	g := &GPU{Properties: Properties{Index: index}}
	if err := g.ask(device); err != nil {
		return nil, err
	}
	if g.context, err = device.RetainPrimaryCtx(); err != nil {
		return nil, fmt.Errorf("cuDevicePrimaryCtxRetain: %w", err)
	}
	g.memory.gpu, g.modules.image, g.faults.describe, g.recorder.chain = g, k.Image, k.Fault, k.Chain
	for _, stream := range []*cu.Stream{&g.stream, &g.recorder.aside} {
		if err := g.Do("cuStreamCreate", func() error {
			*stream, err = cu.MakeStream(cu.NonBlocking)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return g, g.Do("cuEventCreate", func() error {
		g.recorder.before, err = cu.MakeEvent(cu.DisableTiming)
		return err
	})
}

// ask fills in the properties.
func (p *Properties) ask(device cu.Device) (err error) {
	if p.Product, err = device.Name(); err != nil {
		return fmt.Errorf("cuDeviceGetName: %w", err)
	}
	if p.Major, p.Minor, err = device.ComputeCapability(); err != nil {
		return fmt.Errorf("cuDeviceGetAttribute: %w", err)
	}
	if p.Major < 8 {
		return fmt.Errorf("the %s has compute capability %d.%d, it needs to be 8.0 or more", p.Product, p.Major, p.Minor)
	}
	if p.Multiprocessors, err = device.Attribute(cu.MultiprocessorCount); err != nil {
		return fmt.Errorf("cuDeviceGetAttribute: %w", err)
	}
	if p.SharedMemory, err = device.Attribute(cu.MaxSharedMemoryPerMultiprocessor); err != nil {
		return fmt.Errorf("cuDeviceGetAttribute: %w", err)
	}
	p.Driver = cu.Version()
	return nil
}

// Name is "cuda:" and the index.
func (p Properties) Name() string { return fmt.Sprintf("cuda:%d", p.Index) }

// Description is the name of the product and its compute capability.
func (p Properties) Description() string {
	return fmt.Sprintf("%s (compute capability %d.%d, %d multiprocessors)", p.Product, p.Major, p.Minor, p.Multiprocessors)
}

// Context is the device's, for other libraries of the process.
func (g *GPU) Context() cu.CUContext { return g.context }

// Stream is what all work is queued to.
func (g *GPU) Stream() cu.Stream { return g.stream }

// Do makes a call of the driver in the device's context.
func (g *GPU) Do(call string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cu.SetCurrentContext(g.context)
	if err == nil {
		err = f()
	}
	return g.explain(call, err)
}

// explain says where an error of the driver was met, and what may have caused it.
func (g *GPU) explain(call string, err error) error {
	if err == nil {
		return nil
	}
	if last := g.last.Load(); last != nil {
		return fmt.Errorf("%s: %s: %w (the last kernel queued was %v)", g.Name(), call, err, last)
	}
	return fmt.Errorf("%s: %s: %w", g.Name(), call, err)
}

// Synchronize waits until all work that was queued is done.
func (g *GPU) Synchronize() error {
	if err := g.unrecordable("Synchronize"); err != nil {
		return err
	}
	return g.met(g.Do("cuStreamSynchronize", g.stream.Synchronize))
}

// UploadBytes copies as many bytes as a row-major tensor of the device has from the host's memory
// into it. That memory is the caller's again when it returns; the device may still be at work.
func (g *GPU) UploadBytes(t kernels.Tensor, from unsafe.Pointer) error {
	defer runtime.KeepAlive(t.Owner)
	return g.uploadBytes(Written(t).Address(), from, t.Elements()*t.DType.Size())
}

// DownloadBytes copies a row-major tensor of the device to the host's memory, which must have room
// for it.
func (g *GPU) DownloadBytes(t kernels.Tensor, to unsafe.Pointer) error {
	bytes := t.Elements() * t.DType.Size()
	if bytes == 0 {
		return nil
	}
	if err := g.unrecordable("Copy to the host"); err != nil {
		return err
	}
	defer runtime.KeepAlive(t.Owner)
	return g.met(g.Do(fmt.Sprintf("cuMemcpyDtoHAsync(%d bytes)", bytes), func() error {
		if err := cu.MemcpyDtoHAsync(to, cu.DevicePtr(Read(t)), int64(bytes), g.stream); err != nil {
			return err
		}
		return g.stream.Synchronize()
	}))
}

// Trace calls a function after each kernel that is queued from now on, with its name: for
// timelines, with an event recorded in each call. A nil function ends it.
func (g *GPU) Trace(queued func(kernel string)) {
	if queued == nil {
		g.traced.Store(nil)
		return
	}
	g.traced.Store(&queued)
}
