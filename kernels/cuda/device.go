//go:build gpu

package cuda

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"github.com/stheno-ml/stheno/kernels/cuda/ptx"
)

// Addresses in the device's memory: address is scratch memory or a device's own, readable is where
// a kernel reads a tensor, writable where it writes one.
type (
	address  = driver.Address
	readable = driver.Readable
	writable = driver.Writable
)

func read(t kernels.Tensor) readable    { return driver.Read(t) }
func written(t kernels.Tensor) writable { return driver.Written(t) }

// Occupies is how many bytes of the device a tensor of so many takes.
func (d *Device) Occupies(bytes int) int { return driver.Occupies(bytes) }

// Device is a GPU. Its methods may be called from any goroutine; their work runs in the order of
// the calls.
type Device struct {
	*hardware
	part driver.Queue // of a recording that the Device is asked for the work of, nil for none
}

// hardware is what all Devices of one GPU share.
type hardware struct {
	*driver.GPU
	withoutMaps bool // attention and products run on the kernels for any device since Ampere

	programs programs
	rounding rounding
}

var _ kernels.Backend = (*Device)(nil)

// Memory is what the allocator of a device holds.
type Memory = driver.Memory

// Unrecordable is the error of a call that cannot be part of a recording: one that waits for the
// device, or moves data between it and the host.
type Unrecordable = driver.Unrecordable

// ErrOutOfMemory is in the errors of calls for which the device has no memory.
var ErrOutOfMemory = driver.ErrOutOfMemory

// Count returns the number of GPUs, 0 where there is none or no driver that runs this package's
// kernels.
func Count() int {
	n, _ := driver.Count()
	return n
}

// anyDevice is the variable of the environment that, when it is set, makes devices use the kernels
// for any device since Ampere, also where faster ones would run: for comparing them.
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
	n, err := driver.Count()
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
	var gpu *driver.GPU
	image := func(module string) (string, error) { return imageOf(module, gpu.Properties) }
	gpu, err = driver.Open(index, driver.Kernels{Image: image, Fault: faultError, Chain: chain})
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", index, err)
	}
	d := &Device{hardware: &hardware{GPU: gpu, withoutMaps: os.Getenv(anyDevice) != ""}}
	devices.open[index] = d
	return d, nil
}

//go:embed ptx/*.zst ptx/*.index
var images embed.FS

// compiledKernels are those that the program was built with.
var compiledKernels = sync.OnceValues(func() (*ptx.Library, error) {
	files, err := fs.Sub(images, "ptx")
	if err != nil {
		return nil, err
	}
	return ptx.Open(files)
})

// imageOf is what a device is given of a module: its cubin where there is one and the driver reads
// it, else its PTX, which the driver compiles.
func imageOf(module string, p driver.Properties) (string, error) {
	library, err := compiledKernels()
	if err != nil {
		return "", fmt.Errorf("the compiled kernels: %w", err)
	}
	const leastDriver = 13000 // of the release that makes the cubins
	if p.Major == 9 && p.Minor == 0 && p.Driver >= leastDriver && library.HasCubin(module) {
		return library.Cubin(module)
	}
	return library.Text(module)
}

// queue is where the Device's work goes.
func (d *Device) queue() driver.Queue {
	if d.part != nil {
		return d.part
	}
	return d.Queue()
}

// launch queues a kernel that takes the maps and then the struct that arguments points to.
func (d *Device) launch(s driver.Launch, maps []driver.EncodedMap, arguments unsafe.Pointer) error {
	return d.queue().Launch(s, maps, arguments)
}

// shapeOf is how a kernel is started.
func shapeOf(module, entry string, grid [3]int, threads, sharedBytes int) driver.Launch {
	return driver.Launch{Kernel: driver.Kernel{Module: module, Entry: entry}, Grid: grid, Threads: threads, SharedBytes: sharedBytes}
}

// scratch finds memory for a call, which frees it when its work is queued.
func (d *Device) scratch(bytes int) (*driver.Block, error) { return d.queue().Scratch(bytes) }

// zero writes zeros into memory.
func (d *Device) zero(at address, bytes int) error { return d.queue().Clear(at, bytes) }

// constant gives a vector with the given contents. The caller keeps the owner alive until the work
// that reads it is queued.
func constant[T int32 | float32 | float64](d *Device, list []T) (*driver.Owner, error) {
	return d.queue().Vector(bytesOf(list))
}

// bytesOf copies the memory of a slice, whose elements hold no pointers that Go knows.
func bytesOf[T any](list []T) string {
	var element T
	return string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(element))))
}

// Vary does work that asks a device for kernels. While a recording is made it is a part of that,
// and asked for again before each launch: see [kernels.Recorder].
func (d *Device) Vary(work func(kernels.Backend) error) error {
	if d.part != nil {
		return work(d)
	}
	var of *Device // of the queue that the work is asked for with before each launch
	return d.GPU.Vary(d.partKernels(), func(q driver.Queue) error {
		if of == nil || of.part != q {
			of = &Device{d.hardware, q}
		}
		return work(of)
	})
}

// partKernels are what a part of a recording queues for itself.
func (d *Device) partKernels() driver.PartKernels {
	at := func(q driver.Queue) *Device { return &Device{d.hardware, q} }
	return driver.PartKernels{
		Empty: func(q driver.Queue) error {
			return at(q).launch(shapeOf("copy", "fill_2", [3]int{1, 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(&elementwise{}))
		},
		Clear: func(q driver.Queue, to address, bytes int) error {
			words := kernels.Contiguous(to.Pointer(), kernels.BF16, bytes/kernels.BF16.Size())
			kernel := driver.Kernel{Module: "copy", Entry: fillKernels[kernels.BF16.Size()]}
			return at(q).launchElementwise("zero", kernel, &elementwise{}, []output{{"t", words}})
		},
	}
}
