package cpu

import (
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
)

// Backend computes on the host. It may be used from several goroutines at once.
type Backend struct {
	// Threads is the number of goroutines that share a kernel's work; 0 means GOMAXPROCS. Results
	// do not depend on it.
	Threads int
}

var _ kernels.Backend = (*Backend)(nil)

// New returns a backend that uses all of GOMAXPROCS.
func New() *Backend { return &Backend{} }

func (b *Backend) threads() int {
	if b.Threads > 0 {
		return b.Threads
	}
	return runtime.GOMAXPROCS(0)
}
