package cpu

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// cacheLine is the alignment of every buffer, in bytes: a vector never straddles two lines.
const cacheLine = 64

// workspace is scratch memory that outlives a call, so that a training loop allocates once. It
// hands out buffers until it is released; their contents are undefined.
type workspace struct {
	memory []byte
	used   int
}

// workspaces are kept apart by size, to within a factor of two: a call's large buffers are not
// given away as a worker's small ones.
var workspaces [bits.UintSize + 1]sync.Pool

// newWorkspace returns a workspace that can hand out buffers of the given number of bytes in all.
func newWorkspace(bytes int) *workspace {
	w, _ := workspaces[bits.Len(uint(bytes))].Get().(*workspace)
	if w == nil || len(w.memory) < bytes {
		w = &workspace{memory: alignedBytes(bytes)}
	}
	w.used = 0
	return w
}

func (w *workspace) release() { workspaces[bits.Len(uint(len(w.memory)))].Put(w) }

// take hands out the next n elements.
func take[T kernels.Element](w *workspace, n int) []T {
	bytes := bytesFor[T](n)
	if n == 0 {
		return nil
	}
	start := &w.memory[w.used : w.used+bytes][0]
	w.used += bytes
	return unsafe.Slice((*T)(unsafe.Pointer(start)), n)
}

// bytesFor is what a buffer of n elements takes of a workspace.
func bytesFor[T kernels.Element](n int) int {
	return roundUp(n*int(unsafe.Sizeof(T(0))), cacheLine)
}

func alignedBytes(n int) []byte {
	if n == 0 {
		return nil
	}
	memory := make([]byte, n+cacheLine)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % cacheLine)
	return memory[skip : skip+n : skip+n]
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

func ceilDiv(n, by int) int { return (n + by - 1) / by }

// offset is the address n elements behind at, which must lie in the same buffer.
func offset[T kernels.Float](at *T, n int) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(at), n*int(unsafe.Sizeof(*at))))
}

// sliceOf is the n elements from at on.
func sliceOf[T kernels.Float](at *T, n int) []T { return unsafe.Slice(at, n) }
