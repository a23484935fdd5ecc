//go:build gpu

package driver

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Queue takes work: the package's comment says which there are.
type Queue interface {
	// Launch queues a kernel that takes the maps and then the struct that arguments points to, by
	// value.
	Launch(l Launch, maps []EncodedMap, arguments unsafe.Pointer) error
	// Clear writes zeros.
	Clear(at Address, bytes int) error
	// Link queues a call that may become a part of one kernel with those before and behind it.
	Link(l Link) error

	// Scratch finds a block of at least so many bytes, which the caller frees when the work that
	// uses it is queued.
	Scratch(bytes int) (*Block, error)
	// Vector finds or makes memory with the given contents. The caller keeps the owner alive until
	// the work that reads it is queued.
	Vector(contents string) (*Owner, error)
	// Table is Vector for contents that are known by a key.
	Table(key string, contents func() []byte) (*Owner, error)
	// Counters is the list from which calls borrow zeros.
	Counters() *Counters

	// Keep keeps memory for as long as the work that is queued. It reports false where work may not
	// rely on memory that is filled once.
	Keep(o *Owner) bool
	// Makes reports whether what is made now is there for other work too.
	Makes() bool
	// Step is the step of dropout to launch with, in place of the given one.
	Step(step uint32) uint32
	// Spare makes room for kernels that there may be when work is asked for again.
	Spare(kernels int) error

	// Fork begins transfers that wait, before kernels that leave room for them, and Join ends what
	// Fork began, before kernels that leave none.
	Fork() error
	Join() error

	// waits returns the error of a call that waits for the device, where there is one.
	waits(call string) error
	// lasting makes a call of the driver for memory that this work and other work share.
	lasting(call string, f func(cu.Stream) error) error
	// upload fills such memory.
	upload(to Address, contents []byte) error
}

// Launch is how a kernel is started.
type Launch struct {
	Kernel      Kernel
	Grid        [3]int
	Threads     int
	SharedBytes int // dynamic
	// Early is of a kernel that overlaps those before and behind it, nil for others.
	Early *Early
	// Together is set for a kernel whose blocks wait for each other: all run at once.
	Together bool
	// Cluster is how many blocks have a cluster, 0 for as many as the kernel was compiled for.
	Cluster int

	// Step says where a kernel's struct has the step of dropout, nil if it has none.
	Step *StepField
}

// Early is what a kernel touches that lets the kernel behind it begin before it has ended
// (griddepcontrol.launch_dependents), and waits itself for those before it (griddepcontrol.wait).
// Behind its wait all that earlier kernels wrote is there.
type Early struct {
	Reads  []Span // before it waits
	Writes []Span // all that it writes
}

// mayBegin reports whether a kernel may begin while the one before it runs: they overlap, and the
// one before writes nothing that this one reads before it waits. Those before that have ended: the
// one before has waited for them before it let others begin.
func (e *Early) mayBegin(before *Early) bool {
	if e == nil || before == nil {
		return false
	}
	for _, read := range e.Reads {
		for _, write := range before.Writes {
			if read.From < write.To && write.From < read.To {
				return false
			}
		}
	}
	return true
}

// Kernel is an entry point and the module that has it.
type Kernel struct{ Module, Entry string }

// StepField is the place of the step of dropout in a struct of arguments, and the struct's size.
type StepField struct{ Offset, Bytes uintptr }

func (l *Launch) String() string {
	return fmt.Sprintf("%s with %d×%d×%d blocks of %d threads and %d bytes of dynamic shared memory",
		l.Kernel.Entry, l.Grid[0], l.Grid[1], l.Grid[2], l.Threads, l.SharedBytes)
}

// Queue is where work goes that is not a part of what varies: to the device, or into the recording
// that is being made.
func (g *GPU) Queue() Queue {
	if r := g.recorder.current.Load(); r != nil {
		return r
	}
	return direct{g}
}

// direct gives work to the device at once.
type direct struct{ gpu *GPU }

func (q direct) Launch(l Launch, maps []EncodedMap, arguments unsafe.Pointer) error {
	g := q.gpu
	if err := g.SettleLinks(); err != nil {
		return err
	}
	f, err := g.function(l)
	if err != nil {
		return err
	}
	g.last.Store(&l)
	if err := g.launchInTurn(f, &l, maps, arguments); err != nil {
		return fmt.Errorf("%s: %w", g.Name(), err)
	}
	if queued := g.traced.Load(); queued != nil {
		(*queued)(l.Kernel.Entry)
	}
	return nil
}

// launchInTurn queues a kernel, and remembers it for the next one.
func (g *GPU) launchInTurn(f cu.Function, l *Launch, maps []EncodedMap, arguments unsafe.Pointer) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	err := launchKernel(g.context, f, g.stream, l, l.Early.mayBegin(g.turn.before), maps, arguments)
	g.turn.before = l.Early
	return err
}

func (q direct) Clear(at Address, bytes int) error {
	if bytes == 0 {
		return nil
	}
	if err := q.gpu.SettleLinks(); err != nil {
		return err
	}
	if err := q.gpu.Do("cuMemsetD8Async", func() error {
		return cu.MemsetD8Async(cu.DevicePtr(at), 0, int64(bytes), q.gpu.stream)
	}); err != nil {
		return fmt.Errorf("%w, writing zeros into %d bytes", err, bytes)
	}
	return nil
}

func (q direct) Scratch(bytes int) (*Block, error) { return q.gpu.memory.get(bytes, nil) }

func (q direct) Vector(contents string) (*Owner, error) { return vectorOf(q, q.gpu, contents) }

func (q direct) Table(key string, contents func() []byte) (*Owner, error) {
	return q.gpu.constants.find(q, q.gpu, key, contents)
}

func (q direct) Counters() *Counters { return &q.gpu.counters }

func (direct) Keep(*Owner) bool        { return true }
func (direct) Makes() bool             { return true }
func (direct) Step(step uint32) uint32 { return step }
func (direct) Spare(int) error         { return nil }
func (direct) waits(string) error      { return nil }

func (q direct) Fork() error {
	if err := q.gpu.SettleLinks(); err != nil {
		return err
	}
	if t := q.gpu.waiting.Load(); t != nil {
		return (*t).Fork()
	}
	return nil
}

func (q direct) Join() error {
	if err := q.gpu.SettleLinks(); err != nil {
		return err
	}
	if t := q.gpu.waiting.Load(); t != nil {
		return (*t).Join()
	}
	return nil
}

func (q direct) lasting(call string, f func(cu.Stream) error) error {
	return q.gpu.Do(call, func() error { return f(q.gpu.stream) })
}

func (q direct) upload(to Address, contents []byte) error {
	return q.gpu.uploadBytes(to, unsafe.Pointer(unsafe.SliceData(contents)), len(contents))
}

// unrecordable returns the error of a call while a recording is made, and nil otherwise.
func (g *GPU) unrecordable(call string) error { return g.Queue().waits(call) }
