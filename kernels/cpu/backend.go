package cpu

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Backend computes on the host. It may be used from several goroutines at once.
type Backend struct {
	// Threads is the number of goroutines that share a kernel's work; 0 means GOMAXPROCS. Results do not depend on it.
	Threads int
}

var _ kernels.Backend = (*Backend)(nil)

// New gives a backend that uses all of GOMAXPROCS.
func New() *Backend { return &Backend{} }

// Name is "cpu".
func (b *Backend) Name() string { return "cpu" }

// Alloc gives a row-major tensor in Go's memory, aligned to a cache line.
func (b *Backend) Alloc(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	if dtype.Size() == 0 {
		return kernels.Tensor{}, fmt.Errorf("cpu: cannot allocate a tensor of %v", dtype)
	}
	elements := 1
	for _, d := range shape {
		if d < 0 {
			return kernels.Tensor{}, fmt.Errorf("cpu: cannot allocate a tensor of shape %v", shape)
		}
		elements *= d
	}
	memory := alignedBytes(elements * dtype.Size())
	return kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(memory)), dtype, shape...), nil
}

func (b *Backend) threads() int {
	if b.Threads > 0 {
		return b.Threads
	}
	return runtime.GOMAXPROCS(0)
}
