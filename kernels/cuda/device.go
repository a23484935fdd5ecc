//go:build gpu

package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/cu"
)

// Device is a GPU. Its methods may be called from any goroutine; their work runs in the order of the calls.
type Device struct {
	*hardware
	varied *varied // the part of a recording that the Device is asked for the work of, nil for none
}

// hardware is what all Devices of one GPU share.
type hardware struct {
	index           int
	description     string
	major, minor    int // of the compute capability
	multiprocessors int
	sharedMemory    int  // bytes of a multiprocessor
	withoutMaps     bool // attention runs on the kernels for any device since Ampere

	context   cu.CUContext // the primary one, which other libraries of the process share
	stream    cu.Stream    // all work goes here
	memory    allocator
	modules   modules
	programs  programs
	compiling sync.Mutex // held while a kernel is compiled
	maps      tensorMaps
	constants constants
	counters  counters
	faults    faults
	rounding  sync.Mutex // guards what is known of weights' copies in 16 bits
	stagings  stagings
	last      atomic.Pointer[launchShape] // the kernel queued last, for the messages of errors that come later
	traced    atomic.Pointer[func(kernel string)]

	waiting atomic.Pointer[transfers] // that were asked for later, nil for none

	// While a recording is made, what must not be a part of it runs here, after the work before the recording.
	aside           cu.Stream
	beforeRecording cu.Event
}

var _ kernels.Backend = (*Device)(nil)

// Count returns the number of GPUs, 0 where there is none or no driver that runs this package's kernels.
func Count() int {
	n, _ := count()
	return n
}

// leastDriver is the version of CUDA whose drivers, and newer ones, run PTX of the compiler that made the kernels.
const leastDriver = 12040

// count returns the number of GPUs and, where that is 0, why.
func count() (int, error) {
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

// anyDevice is the variable of the environment that, when it is set, makes devices use the kernels for any device since
// Ampere, also where faster ones would run: for comparing them.
const anyDevice = "STHENO_CUDA_SM80"

// devices are the devices that were opened. They stay open: the values of a program refer to them.
var devices = struct {
	sync.Mutex
	open map[int]*Device
}{open: map[int]*Device{}}

// Default is the first device.
func Default() (*Device, error) { return Open(0) }

// Open gives the device of an index, the same one in each call.
func Open(index int) (*Device, error) {
	n, err := count()
	if err != nil {
		return nil, fmt.Errorf("cuda: there is no device %d: %w", index, err)
	}
	if index < 0 || index >= n {
		return nil, fmt.Errorf("cuda: there is no device %d, this machine has %d", index, n)
	}
	devices.Lock()
	defer devices.Unlock()
	if d := devices.open[index]; d != nil {
		return d, nil
	}
	d := &Device{hardware: &hardware{index: index, withoutMaps: os.Getenv(anyDevice) != ""}}
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	devices.open[index] = d
	return d, nil
}

func (d *Device) open() error {
	device, err := cu.GetDevice(d.index)
	if err != nil {
		return fmt.Errorf("cuDeviceGet: %w", err)
	}
	if d.description, err = device.Name(); err != nil {
		return fmt.Errorf("cuDeviceGetName: %w", err)
	}
	if d.major, d.minor, err = device.ComputeCapability(); err != nil {
		return fmt.Errorf("cuDeviceGetAttribute: %w", err)
	}
	if d.major < 8 {
		return fmt.Errorf("the %s has compute capability %d.%d, it needs to be 8.0 or more", d.description, d.major, d.minor)
	}
	if d.multiprocessors, err = device.Attribute(cu.MultiprocessorCount); err != nil {
		return fmt.Errorf("cuDeviceGetAttribute: %w", err)
	}
	if d.sharedMemory, err = device.Attribute(cu.MaxSharedMemoryPerMultiprocessor); err != nil {
		return fmt.Errorf("cuDeviceGetAttribute: %w", err)
	}
	if d.context, err = device.RetainPrimaryCtx(); err != nil {
		return fmt.Errorf("cuDevicePrimaryCtxRetain: %w", err)
	}
	d.memory.device = d
	for _, stream := range []*cu.Stream{&d.stream, &d.aside} {
		if err := d.do("cuStreamCreate", func() error {
			*stream, err = cu.MakeStream(cu.NonBlocking)
			return err
		}); err != nil {
			return err
		}
	}
	return d.do("cuEventCreate", func() error {
		d.beforeRecording, err = cu.MakeEvent(cu.DisableTiming)
		return err
	})
}

// Name is "cuda:" and the index.
func (d *Device) Name() string { return fmt.Sprintf("cuda:%d", d.index) }

// Description is the name of the product and its compute capability.
func (d *Device) Description() string {
	return fmt.Sprintf("%s (compute capability %d.%d, %d multiprocessors)", d.description, d.major, d.minor, d.multiprocessors)
}

// do makes a call of the driver in the device's context.
func (d *Device) do(call string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cu.SetCurrentContext(d.context)
	if err == nil {
		err = f()
	}
	return d.explain(call, err)
}

// explain says where an error of the driver was met, and what may have caused it.
func (d *Device) explain(call string, err error) error {
	if err == nil {
		return nil
	}
	if last := d.last.Load(); last != nil {
		return fmt.Errorf("cuda:%d: %s: %w (the last kernel queued was %v)", d.index, call, err, last)
	}
	return fmt.Errorf("cuda:%d: %s: %w", d.index, call, err)
}

// Synchronize waits until all work that was queued is done.
func (d *Device) Synchronize() error {
	if err := d.unrecordable("Synchronize"); err != nil {
		return err
	}
	return d.met(d.do("cuStreamSynchronize", d.stream.Synchronize))
}

// Upload gives a copy of a tensor on the host, row-major in the device's memory.
func (d *Device) Upload(host kernels.Tensor) (kernels.Tensor, error) {
	t, err := d.Alloc(host.DType, host.Shape...)
	if err != nil {
		return t, err
	}
	if !host.IsRowMajor() {
		return t, fmt.Errorf("cuda:%d: upload: the tensor has strides %v for shape %v, it needs to be row-major", d.index, host.Strides, host.Shape)
	}
	return t, d.UploadBytes(t, host.Data)
}

// UploadBytes copies as many bytes as a row-major tensor of the device has from the host's memory into it. That memory is
// the caller's again when it returns; the device may still be at work.
func (d *Device) UploadBytes(t kernels.Tensor, from unsafe.Pointer) error {
	defer runtime.KeepAlive(t.Owner)
	return d.uploadBytes(addressOf(t), from, t.Elements()*t.DType.Size())
}

// DownloadBytes copies a row-major tensor of the device to the host's memory, which must have room for it.
func (d *Device) DownloadBytes(t kernels.Tensor, to unsafe.Pointer) error {
	bytes := t.Elements() * t.DType.Size()
	if bytes == 0 {
		return nil
	}
	if err := d.unrecordable("Copy to the host"); err != nil {
		return err
	}
	defer runtime.KeepAlive(t.Owner)
	return d.met(d.do(fmt.Sprintf("cuMemcpyDtoHAsync(%d bytes)", bytes), func() error {
		if err := cu.MemcpyDtoHAsync(to, cu.DevicePtr(addressToRead(t)), int64(bytes), d.stream); err != nil {
			return err
		}
		return d.stream.Synchronize()
	}))
}

// Download gives the elements of a tensor of the device, in row-major order, in host's memory, which must be a row-major
// tensor of its shape and dtype.
func (d *Device) Download(host, t kernels.Tensor) error {
	if host.DType != t.DType || host.Elements() != t.Elements() || !host.IsRowMajor() {
		return fmt.Errorf("cuda:%d: download: the tensor on the host is %v of shape %v and strides %v, it needs to be row-major %v of shape %v",
			d.index, host.DType, host.Shape, host.Strides, t.DType, t.Shape)
	}
	if !t.IsRowMajor() {
		dense, err := d.Alloc(t.DType, t.Shape...)
		if err != nil {
			return err
		}
		if err := d.Copy(dense, t); err != nil {
			return err
		}
		t = dense
	}
	return d.DownloadBytes(t, host.Data)
}

// zero writes zeros into memory.
func (d *Device) zero(at address, bytes int) error {
	if bytes == 0 {
		return nil
	}
	if d.varied != nil {
		return d.zeroByKernel(at, bytes)
	}
	if err := d.do("cuMemsetD8Async", func() error {
		return cu.MemsetD8Async(cu.DevicePtr(at), 0, int64(bytes), d.stream)
	}); err != nil {
		return fmt.Errorf("%w, writing zeros into %d bytes", err, bytes)
	}
	return nil
}

// Trace calls a function after each kernel that is queued from now on, with its name: for timelines, with an event recorded in each
// call. A nil function ends it.
func (d *Device) Trace(queued func(kernel string)) {
	if queued == nil {
		d.traced.Store(nil)
		return
	}
	d.traced.Store(&queued)
}

// Event is a point in the order of a device's work, for measuring time.
type Event struct {
	device *Device
	event  cu.Event
}

// Record marks the point after all work that was queued so far.
func (d *Device) Record() (kernels.Event, error) {
	if err := d.unrecordable("Record"); err != nil {
		return nil, err
	}
	e := &Event{device: d}
	if err := d.do("cuEventCreate", func() (err error) {
		e.event, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	}); err != nil {
		return nil, err
	}
	runtime.AddCleanup(e, func(event cu.Event) {
		// An event that cannot be destroyed is lost, and nobody is there to be told.
		_ = d.do("cuEventDestroy", func() error { return cu.DestroyEvent(&event) })
	}, e.event)
	return e, d.do("cuEventRecord", func() error { return e.event.Record(d.stream) })
}

// Wait waits until the work before the event is done.
func (e *Event) Wait() error {
	defer runtime.KeepAlive(e)
	return e.device.met(e.device.do("cuEventSynchronize", e.event.Synchronize))
}

// Since waits for both points and returns the time between them.
func (e *Event) Since(earlier kernels.Event) (time.Duration, error) {
	from, ok := earlier.(*Event)
	if !ok || e.device != from.device {
		return 0, errors.New("cuda: the events are of two devices")
	}
	var milliseconds float64
	err := e.device.do("cuEventElapsedTime", func() (err error) {
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

// addressOf is where a tensor lies in the device's memory, for one who may write there.
func addressOf(t kernels.Tensor) address {
	if o, ok := t.Owner.(*owner); ok && o.isRounded.Load() {
		o.changed()
	}
	return addressToRead(t)
}

// addressToRead is where a tensor lies, for one who writes nothing there.
func addressToRead(t kernels.Tensor) address { return address(uintptr(t.Data)) }

// pointer is a place in the device's memory as kernels.Tensor has it: no pointer that Go could follow.
func pointer(a address) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
