package memory

import (
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page, which is the same on most processors.
const hugePage = 2 << 20

func populate(data []byte) {
	whole := hugePages(data)
	// It is advice: an older system, which does not take it, gives small pages, or each as it is
	// written. So there is nothing to do about an error.
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	per := (len(whole)/hugePage + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0) * hugePage
	var wait sync.WaitGroup
	for part := range slices.Chunk(whole, max(per, hugePage)) {
		wait.Go(func() { _ = unix.Madvise(part, unix.MADV_POPULATE_WRITE) })
	}
	wait.Wait()
}

// hugePages are those that lie in data as a whole.
func hugePages(data []byte) []byte {
	first := unsafe.Pointer(unsafe.SliceData(data))
	skipped := -uintptr(first) % hugePage
	size := uintptr(len(data))
	if size < skipped+hugePage {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(first, skipped)), (size-skipped)/hugePage*hugePage)
}
