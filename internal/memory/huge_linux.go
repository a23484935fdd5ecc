package memory

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page, which is the same on most processors.
const hugePage = 2 << 20

func willFill(data []float32) {
	first := unsafe.Pointer(unsafe.SliceData(data))
	skipped := -uintptr(first) % hugePage
	if size := 4 * uintptr(len(data)); size >= skipped+hugePage {
		whole := (size - skipped) / hugePage * hugePage
		// It is advice: where it is not taken, pages are small. So there is nothing to do about an error.
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(first, skipped)), whole), unix.MADV_HUGEPAGE)
	}
}
