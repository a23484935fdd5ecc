//go:build gpu

package driver

import (
	"sync/atomic"
	"unsafe"
)

// When a network is aborted, its operations on the device end with sums that mean nothing, and the
// kernels behind them run. A kernel that decides whether weights change looks at a word in memory
// of the host first, which is set before the network is aborted.

// Rejoin makes what networks of the device bring count again. It waits for the work before.
func (g *GPU) Rejoin() error {
	if err := g.Synchronize(); err != nil {
		return err
	}
	if g.abandoned.Load() == nil {
		word, err := g.hostMemory(unsafe.Sizeof(int32(0)))
		if err != nil {
			return err
		}
		g.abandoned.CompareAndSwap(nil, (*int32)(word))
	}
	atomic.StoreInt32(g.abandoned.Load(), 0)
	return nil
}

// Abandon is called before a network of the device is aborted.
func (g *GPU) Abandon() {
	if word := g.abandoned.Load(); word != nil {
		atomic.StoreInt32(word, 1)
	}
}

// Abandoned is where a kernel reads whether a network was aborted, and 0 if there was none yet.
func (g *GPU) Abandoned() Readable { return Readable(uintptr(unsafe.Pointer(g.abandoned.Load()))) }
