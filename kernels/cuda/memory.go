//go:build gpu

package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/cu"
)

// Memory is what the allocator of a device holds.
type Memory struct {
	Live, Cached int // bytes in use, and bytes that were freed and wait to be used again
	Recorded     int // bytes that were freed and wait for a recording, which uses them when it is launched
	Peak         int // the most bytes that were ever in use at once
	Allocations  int // calls of the driver for memory, so far
}

// ErrOutOfMemory is in the errors of calls for which the device has no memory.
var ErrOutOfMemory = errors.New("out of memory")

// Alloc gives a row-major tensor in the device's memory. Its contents are undefined.
func (d *Device) Alloc(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	for _, n := range shape {
		if n < 0 {
			return kernels.Tensor{}, fmt.Errorf("cuda:%d: cannot allocate a tensor of shape %v", d.index, shape)
		}
	}
	if dtype.Size() == 0 {
		return kernels.Tensor{}, fmt.Errorf("cuda:%d: cannot allocate a tensor of %v", d.index, dtype)
	}
	b, err := d.memory.get(t.Elements() * dtype.Size())
	if err != nil {
		return kernels.Tensor{}, fmt.Errorf("cuda:%d: a %v tensor of shape %v: %w", d.index, dtype, shape, err)
	}
	t.Data, t.Owner = pointer(b.at), b.owned()
	return t, nil
}

// Owner finds what keeps the memory at a tensor's address alive, for a value that lost its Tensor.Owner: nil if the
// address is not in the memory of a tensor of this device that is alive.
func (d *Device) Owner(t kernels.Tensor) any {
	if o := d.memory.ownerAt(addressOf(t)); o != nil {
		return o
	}
	return nil
}

// Memory tells what the allocator holds.
func (d *Device) Memory() Memory {
	d.memory.Lock()
	defer d.memory.Unlock()
	return d.memory.stats
}

// Trim gives the memory that waits to be used again back to the driver, small pieces excepted.
func (d *Device) Trim() error {
	d.memory.Lock()
	defer d.memory.Unlock()
	return d.memory.trim()
}

// allocator hands out the device's memory and keeps what comes back, by size. Since all work runs in one order, a block
// may be given out again while the work that last used it is still queued.
type allocator struct {
	sync.Mutex
	device *Device
	stats  Memory
	cached map[int][]*block                // by size
	owners map[address]weak.Pointer[owner] // of tensors that are alive, by where they start
	starts []address                       // the keys of owners in their order
	next   int                             // live bytes from which on dead tensors are looked for before the driver is asked

	recording atomic.Pointer[recordedMemory] // that is being made
}

// block is a piece of the device's memory.
type block struct {
	allocator *allocator
	at        address
	bytes     int
	piece     bool            // of a slab
	recording *recordedMemory // that uses it when it is launched
	lent      *lentBlock      // what it is lent of, nil for memory of its own
}

// Blocks of up to largestPiece bytes are cut from slabs, which are never given back: a graph makes many of them, for its
// scalars, and each from the driver would take megabytes and microseconds.
const (
	slabBytes    = 1 << 20
	largestPiece = 32 << 10
)

// owner is what the tensors in a block share: the block is freed when the owner is garbage.
type owner struct {
	*block
	rounded   []*roundedWeights // copies of weights that lie there
	isRounded atomic.Bool       // there are any
}

// String keeps a tensor's memory out of messages that print the tensor.
func (o *owner) String() string {
	return fmt.Sprintf("%d bytes of cuda:%d", o.bytes, o.allocator.device.index)
}

// owned makes Go's collector the one who frees the block.
func (b *block) owned() *owner {
	o := &owner{block: b}
	a := b.allocator
	a.Lock()
	if a.owners == nil {
		a.owners = map[address]weak.Pointer[owner]{}
	}
	a.owners[b.at] = weak.Make(o)
	at, _ := slices.BinarySearch(a.starts, b.at)
	a.starts = slices.Insert(a.starts, at, b.at)
	a.Unlock()
	runtime.AddCleanup(o, (*block).disown, b)
	return o
}

// disown frees a block whose owner is garbage.
func (b *block) disown() {
	a := b.allocator
	a.Lock()
	delete(a.owners, b.at)
	at, _ := slices.BinarySearch(a.starts, b.at)
	a.starts = slices.Delete(a.starts, at, at+1)
	a.Unlock()
	b.free()
}

// ownerAt finds the owner of the block around an address.
func (a *allocator) ownerAt(at address) *owner {
	a.Lock()
	defer a.Unlock()
	next, isStart := slices.BinarySearch(a.starts, at)
	if isStart {
		return a.owners[at].Value()
	}
	if next == 0 {
		return nil
	}
	// A view that begins inside.
	if o := a.owners[a.starts[next-1]].Value(); o != nil && at < o.at+address(o.bytes) {
		return o
	}
	return nil
}

// sizeClass rounds a size up, to at most an eighth more, so that sizes that differ little share blocks.
func sizeClass(bytes int) int {
	const smallest = 512
	if bytes <= smallest {
		return smallest
	}
	step := max(smallest, 1<<(bits.Len(uint(bytes-1))-4))
	return (bytes + step - 1) / step * step
}

// get finds a block of at least so many bytes, which is the recording's if one is being made. The caller frees it, or makes it
// owned.
func (a *allocator) get(bytes int) (*block, error) {
	return a.find(sizeClass(bytes), a.recording.Load())
}

// getLasting finds a block whose contents recorded work finds as they are left now.
func (a *allocator) getLasting(bytes int) (*block, error) { return a.find(sizeClass(bytes), nil) }

func (a *allocator) find(size int, r *recordedMemory) (*block, error) {
	a.Lock()
	defer a.Unlock()
	b := a.take(size, r)
	if b == nil && a.stats.Live > a.next+64<<20 {
		a.collect()
		a.next = 2 * a.stats.Live
		b = a.take(size, r)
	}
	if b == nil {
		var err error
		if b, err = a.newBlock(size); err != nil {
			return nil, err
		}
	}
	b.recording = r
	a.stats.Live += size
	a.stats.Peak = max(a.stats.Peak, a.stats.Live)
	return b, nil
}

// newBlock makes a block of memory from the driver.
func (a *allocator) newBlock(size int) (*block, error) {
	if size > largestPiece {
		at, err := a.fromDriver(size)
		return &block{allocator: a, at: at, bytes: size}, err
	}
	slab, err := a.fromDriver(slabBytes)
	if err != nil {
		return nil, err
	}
	for at := slab + address(size); at+address(size) <= slab+slabBytes; at += address(size) {
		a.keep(&block{allocator: a, at: at, bytes: size, piece: true})
	}
	return &block{allocator: a, at: slab, bytes: size, piece: true}, nil
}

// keep puts a block among those that wait to be used again.
func (a *allocator) keep(b *block) {
	if a.cached == nil {
		a.cached = map[int][]*block{}
	}
	b.recording = nil
	a.cached[b.bytes] = append(a.cached[b.bytes], b)
	a.stats.Cached += b.bytes
}

// take finds a block among those that came back, the recording's first.
func (a *allocator) take(size int, r *recordedMemory) *block {
	if r != nil {
		if b := takeLast(r.waiting, size); b != nil {
			a.stats.Recorded -= size
			return b
		}
	}
	b := takeLast(a.cached, size)
	if b != nil {
		a.stats.Cached -= size
	}
	return b
}

func takeLast(lists map[int][]*block, size int) *block {
	list := lists[size]
	if len(list) == 0 {
		return nil
	}
	b := list[len(list)-1]
	list[len(list)-1] = nil
	lists[size] = list[:len(list)-1]
	return b
}

// free takes a block back. Work that uses it must be queued already.
func (b *block) free() {
	if b.lent != nil {
		b.lent.inUse = false
		return
	}
	a := b.allocator
	a.Lock()
	defer a.Unlock()
	a.stats.Live -= b.bytes
	if r := b.recording; r != nil && !r.over {
		if r.waiting == nil {
			r.waiting = map[int][]*block{}
		}
		r.waiting[b.bytes] = append(r.waiting[b.bytes], b)
		a.stats.Recorded += b.bytes
		return
	}
	a.keep(b)
}

// release lets others have what a recording kept.
func (a *allocator) release(r *recordedMemory) {
	a.Lock()
	defer a.Unlock()
	r.over = true
	for size, list := range r.waiting {
		for _, b := range list {
			a.keep(b)
		}
		a.stats.Recorded -= size * len(list)
	}
	r.waiting = nil
}

// fromDriver asks the driver for memory: again after giving it back what waits here, and again after Go's collector has
// found tensors that died.
func (a *allocator) fromDriver(bytes int) (address, error) {
	for try := 0; ; try++ {
		var at cu.DevicePtr
		err := a.device.do(fmt.Sprintf("cuMemAlloc(%d bytes)", bytes), func() (err error) {
			at, err = cu.MemAlloc(int64(bytes))
			return err
		})
		switch {
		case err == nil:
			a.stats.Allocations++
			return address(at), nil
		case !errors.Is(err, cu.OutOfMemory):
			return 0, err
		case try == 1:
			a.collect()
		case try == 2:
			return 0, a.outOfMemory(bytes)
		}
		if err := a.trim(); err != nil {
			return 0, err
		}
	}
}

func (a *allocator) outOfMemory(bytes int) error {
	var free, total int64
	if err := a.device.do("cuMemGetInfo", func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	}); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d bytes are asked for, %d of the device's %d are free, this program's tensors use %d and its recordings another %d",
		ErrOutOfMemory, bytes, free, total, a.stats.Live, a.stats.Recorded)
}

// collect lets Go's collector find tensors that died. A Gorgonia value is found in one round and the block that it kept
// alive in the next; cleanups run a moment after each.
func (a *allocator) collect() {
	a.Unlock()
	defer a.Lock()
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

// collectDead frees the tensors that died.
func (a *allocator) collectDead() {
	a.Lock()
	defer a.Unlock()
	a.collect()
}

// trim gives cached blocks back to the driver, which waits for work that uses them.
func (a *allocator) trim() error {
	for size, list := range a.cached {
		for len(list) > 0 && !list[0].piece {
			b := list[len(list)-1]
			if err := a.device.do("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(b.at)) }); err != nil {
				return err
			}
			list = list[:len(list)-1]
			a.cached[size] = list
			a.stats.Cached -= size
		}
	}
	return nil
}
