//go:build gpu

package driver

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
func (g *GPU) Alloc(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	for _, n := range shape {
		if n < 0 {
			return kernels.Tensor{}, fmt.Errorf("%s: cannot allocate a tensor of shape %v", g.Name(), shape)
		}
	}
	if dtype.Size() == 0 {
		return kernels.Tensor{}, fmt.Errorf("%s: cannot allocate a tensor of %v", g.Name(), dtype)
	}
	b, err := g.memory.getClass(tensorClass(t.Elements()*dtype.Size()), g.recorder.current.Load())
	if err != nil {
		return kernels.Tensor{}, fmt.Errorf("%s: a %v tensor of shape %v: %w", g.Name(), dtype, shape, err)
	}
	t.Data, t.Owner = b.At.Pointer(), b.Owned()
	return t, nil
}

// Owner finds what keeps the memory at a tensor's address alive, for a value that lost its
// Tensor.Owner: nil if the Address is not in the memory of a tensor of this device that is alive.
func (g *GPU) Owner(t kernels.Tensor) any {
	if o := g.memory.ownerAt(Address(Read(t))); o != nil {
		return o
	}
	return nil
}

// Memory tells what the allocator holds.
func (g *GPU) Memory() Memory {
	g.memory.Lock()
	defer g.memory.Unlock()
	return g.memory.stats
}

// Trim gives the memory that waits to be used again back to the driver, small pieces excepted.
func (g *GPU) Trim() error {
	g.memory.Lock()
	defer g.memory.Unlock()
	return g.memory.trim()
}

// allocator hands out the device's memory and keeps what comes back, by size. Since all work runs
// in one order, a block may be given out again while the work that last used it is still queued.
type allocator struct {
	sync.Mutex
	gpu    *GPU
	stats  Memory
	cached map[int][]*Block                // by size
	owners map[Address]weak.Pointer[Owner] // of tensors that are alive, by where they start
	starts []Address                       // the keys of owners in their order
	next   int                             // live bytes from which on dead tensors are looked for before the driver is asked
}

// Block is a piece of the device's memory.
type Block struct {
	At    Address
	Bytes int

	allocator *allocator
	piece     bool       // of a slab
	recorder  *recorder  // of the recording that uses it when it is launched
	lent      *lentBlock // what it is lent of, nil for memory of its own
}

// Blocks of up to largestPiece bytes are cut from slabs, which are never given back: a graph makes
// many of them, for its scalars, and each from the driver would take megabytes and microseconds.
const (
	slabBytes    = 1 << 20
	largestPiece = 32 << 10
)

// Owner is what the tensors in a block share: the block is freed when the owner is garbage.
type Owner struct {
	*Block
	watcher atomic.Pointer[Watcher]
}

// Watcher is told when what lies in memory may have changed: [Written].
type Watcher interface{ Changed() }

// GPU is the device whose memory it is.
func (o *Owner) GPU() *GPU { return o.allocator.gpu }

// Watcher returns what Watch was given, or nil.
func (o *Owner) Watcher() Watcher {
	if w := o.watcher.Load(); w != nil {
		return *w
	}
	return nil
}

// Watch has the watcher told of changes.
func (o *Owner) Watch(w Watcher) { o.watcher.Store(&w) }

// String keeps a tensor's memory out of messages that print the tensor.
func (o *Owner) String() string {
	return fmt.Sprintf("%d bytes of %s", o.Bytes, o.GPU().Name())
}

// Owned makes Go's collector the one who frees the block.
func (b *Block) Owned() *Owner {
	o := &Owner{Block: b}
	a := b.allocator
	a.Lock()
	if a.owners == nil {
		a.owners = map[Address]weak.Pointer[Owner]{}
	}
	a.owners[b.At] = weak.Make(o)
	at, _ := slices.BinarySearch(a.starts, b.At)
	a.starts = slices.Insert(a.starts, at, b.At)
	a.Unlock()
	runtime.AddCleanup(o, (*Block).disown, b)
	return o
}

// disown frees a block whose owner is garbage.
func (b *Block) disown() {
	a := b.allocator
	a.Lock()
	delete(a.owners, b.At)
	at, _ := slices.BinarySearch(a.starts, b.At)
	a.starts = slices.Delete(a.starts, at, at+1)
	a.Unlock()
	b.Free()
}

// ownerAt finds the owner of the block around an address.
func (a *allocator) ownerAt(at Address) *Owner {
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
	if o := a.owners[a.starts[next-1]].Value(); o != nil && at < o.At+Address(o.Bytes) {
		return o
	}
	return nil
}

// sizeClass rounds a size up, to at most an eighth more, so that sizes that differ little share
// blocks.
func sizeClass(bytes int) int { return roundUp(bytes, 8) }

// tensorClass is that of a tensor, which may be a weight and last: at most a 128th more if it is
// large.
func tensorClass(bytes int) int {
	if bytes <= slabBytes {
		return sizeClass(bytes)
	}
	return roundUp(bytes, 128)
}

// Occupies is how large the block of a tensor of so many bytes is.
func Occupies(bytes int) int { return tensorClass(bytes) }

// roundUp rounds a size up by at most a part of it, a power of two.
func roundUp(bytes, part int) int {
	const smallest = 512
	step := smallest
	if bytes > smallest {
		step = max(smallest, 1<<(bits.Len(uint(bytes-1))-1)/part)
	}
	return max(1, (bytes+step-1)/step) * step
}

// Lasting finds a block whose contents recorded work finds as they are left now.
func (g *GPU) Lasting(bytes int) (*Block, error) { return g.memory.get(bytes, nil) }

// get finds a block of at least so many bytes, for a recording unless that is nil. The caller frees
// it, or makes it owned.
func (a *allocator) get(bytes int, r *recorder) (*Block, error) {
	return a.getClass(sizeClass(bytes), r)
}

// getClass is get of a block's size.
func (a *allocator) getClass(size int, r *recorder) (*Block, error) {
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
	b.recorder = r
	a.stats.Live += size
	a.stats.Peak = max(a.stats.Peak, a.stats.Live)
	return b, nil
}

// newBlock makes a block of memory from the driver.
func (a *allocator) newBlock(size int) (*Block, error) {
	if size > largestPiece {
		at, err := a.fromDriver(size)
		return &Block{allocator: a, At: at, Bytes: size}, err
	}
	slab, err := a.fromDriver(slabBytes)
	if err != nil {
		return nil, err
	}
	for at := slab + Address(size); at+Address(size) <= slab+slabBytes; at += Address(size) {
		a.keep(&Block{allocator: a, At: at, Bytes: size, piece: true})
	}
	return &Block{allocator: a, At: slab, Bytes: size, piece: true}, nil
}

// keep puts a block among those that wait to be used again.
func (a *allocator) keep(b *Block) {
	if a.cached == nil {
		a.cached = map[int][]*Block{}
	}
	b.recorder = nil
	a.cached[b.Bytes] = append(a.cached[b.Bytes], b)
	a.stats.Cached += b.Bytes
}

// take finds a block among those that came back, the recording's first.
func (a *allocator) take(size int, r *recorder) *Block {
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

func takeLast(lists map[int][]*Block, size int) *Block {
	list := lists[size]
	if len(list) == 0 {
		return nil
	}
	b := list[len(list)-1]
	list[len(list)-1] = nil
	lists[size] = list[:len(list)-1]
	return b
}

// Free takes a block back. Work that uses it must be queued already.
func (b *Block) Free() {
	if b.lent != nil {
		b.lent.inUse = false
		return
	}
	a := b.allocator
	a.Lock()
	defer a.Unlock()
	a.stats.Live -= b.Bytes
	if r := b.recorder; r != nil && !r.over {
		if r.waiting == nil {
			r.waiting = map[int][]*Block{}
		}
		r.waiting[b.Bytes] = append(r.waiting[b.Bytes], b)
		a.stats.Recorded += b.Bytes
		return
	}
	a.keep(b)
}

// release lets others have what a recording kept.
func (a *allocator) release(r *recorder) {
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

// fromDriver asks the driver for memory: again after giving it back what waits here, and again
// after Go's collector has found tensors that died.
func (a *allocator) fromDriver(bytes int) (Address, error) {
	for try := 0; ; try++ {
		var at cu.DevicePtr
		err := a.gpu.Do(fmt.Sprintf("cuMemAlloc(%d bytes)", bytes), func() (err error) {
			at, err = cu.MemAlloc(int64(bytes))
			return err
		})
		switch {
		case err == nil:
			a.stats.Allocations++
			return Address(at), nil
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
	if err := a.gpu.Do("cuMemGetInfo", func() (err error) {
		free, total, err = cu.MemInfo()
		return err
	}); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d bytes are asked for, %d of the device's %d are free, this program's tensors use %d and its recordings another %d",
		ErrOutOfMemory, bytes, free, total, a.stats.Live, a.stats.Recorded)
}

// collect lets Go's collector find tensors that died. A Gorgonia value is found in one round and
// the block that it kept alive in the next; cleanups run a moment after each.
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
			if err := a.gpu.Do("cuMemFree", func() error { return cu.MemFree(cu.DevicePtr(b.At)) }); err != nil {
				return err
			}
			list = list[:len(list)-1]
			a.cached[size] = list
			a.stats.Cached -= size
		}
	}
	return nil
}
