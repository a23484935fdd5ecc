//go:build gpu

package nccl

/*
#include <stdlib.h>
#include "nccl_linux.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
	"gorgonia.org/cu"
)

// variable is the variable of the environment that names the library, where it is in none of the
// usual places.
const variable = "STHENO_NCCL"

// leastVersion is the oldest version that serves, in NCCL's own numbers: what is recorded in CUDA
// graphs and torn down early works from there on.
const leastVersion = 21800

// open is load once.
var open = sync.OnceValue(load)

// load finds the library and returns why there is none that serves.
func load() error {
	var tried []string
	for _, path := range paths() {
		name := C.CString(path)
		problem := C.networkOpen(name)
		C.free(unsafe.Pointer(name))
		if problem != nil {
			tried = append(tried, fmt.Sprintf("%s: %s", path, C.GoString(problem)))
			continue
		}
		if v := int(C.networkVersion()); v < leastVersion || v/10000 != leastVersion/10000 {
			return fmt.Errorf("%s is NCCL %s, it needs to be %s or a newer 2", path, versionText(v), versionText(leastVersion))
		}
		return nil
	}
	return fmt.Errorf("there is no NCCL, which joins GPUs of several processes: install the system's package libnccl2 or Python's nvidia-nccl-cu12, "+
		"or name a libnccl.so.2 in %s (%s)", variable, strings.Join(tried, "; "))
}

func versionText(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// paths are the names under which the library is looked for: that which the loader finds, as of a
// system's package or in LD_LIBRARY_PATH, and then Python's wheels, of the python3 in PATH first.
func paths() []string {
	if path := os.Getenv(variable); path != "" {
		return []string{path}
	}
	const library = "libnccl.so.2"
	list := []string{library}
	roots := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	if python, err := exec.LookPath("python3"); err == nil {
		roots = append(roots, filepath.Dir(filepath.Dir(python)))
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	for _, root := range append(roots, "/usr/local", "/usr") {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			found, err := filepath.Glob(filepath.Join(root, "lib", "python3*", packages, "nvidia", "nccl", "lib", library))
			if err == nil && root != "" {
				list = append(list, found...)
			}
		}
	}
	return slices.Compact(list)
}

// Key returns the key of a new network: NCCL's unique id.
func Key(g *driver.GPU) ([]byte, error) {
	if err := open(); err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name(), err)
	}
	key := make([]byte, keyBytes)
	if result := C.networkKey((*C.char)(unsafe.Pointer(&key[0]))); result != 0 {
		return nil, errorOf(g, "ncclGetUniqueId", result, nil)
	}
	return key, nil
}

const keyBytes = 128

// Join returns the network of a key once all of its members have come. NCCL waits for them without
// end: where the context ends before, a thread of the process is left behind in that wait.
func Join(ctx context.Context, g *driver.GPU, key []byte, rank, size int) (kernels.Network, error) {
	if err := open(); err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name(), err)
	}
	if len(key) != keyBytes {
		return nil, fmt.Errorf("%s: the key of a network has %d bytes, it needs to have %d", g.Name(), len(key), keyBytes)
	}
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("%s: rank is %d, it needs to be from 0 to %d", g.Name(), rank, size-1)
	}
	if err := g.Rejoin(); err != nil {
		return nil, err
	}
	n := &network{gpu: g, rank: rank, size: size}
	n.asTransfers = transfers{n}
	joined := make(chan error, 1)
	go func() {
		joined <- errorOf(g, "ncclCommInitRank",
			C.networkJoin(rawContext(g), &n.communicator, C.int(size), (*C.char)(unsafe.Pointer(&key[0])), C.int(rank)), nil)
	}()
	select {
	case err := <-joined:
		if err != nil {
			return nil, err
		}
		return n, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: ncclCommInitRank: %w", g.Name(), context.Cause(ctx))
	}
}

func errorOf(g *driver.GPU, call string, result C.NcclResult, communicator unsafe.Pointer) error {
	if result == 0 {
		return nil
	}
	err := fmt.Errorf("%s: %s: %s", g.Name(), call, C.GoString(C.networkText(result)))
	if details := strings.TrimSpace(C.GoString(C.networkDetails(communicator))); details != "" {
		err = fmt.Errorf("%w (%s)", err, details)
	}
	return err
}

// network is a communicator of NCCL's, whose work goes to the device's stream.
type network struct {
	gpu        *driver.GPU
	rank, size int

	left         atomic.Bool
	calls        sync.Mutex // held while NCCL is called
	communicator unsafe.Pointer

	beside *cu.Stream // of exchanges, nil before the first
	events []cu.Event // that no exchange has

	// Sums that were asked for later, the tensors that they are of, and the sums that run beside
	// the device's work.
	later   []C.Transfer
	tensors []kernels.Tensor
	forked  *exchange

	asTransfers driver.Transfers
}

// ErrLeft is in the errors of calls of a network that was left or aborted.
var ErrLeft = errors.New("the network was left or aborted")

// The names of operations in errors.
const (
	sumName      = "sum over ranks"
	sumPartsName = "sum of parts"
	collectName  = "collection of parts"
)

// Sum is NCCL's all-reduce.
func (n *network) Sum(tensors []kernels.Tensor) error { return n.transfer(sumName, tensors, n.sum) }

// SumLater is Sum beside the next kernels that leave room for it, see driver.Queue.
func (n *network) SumLater(tensors []kernels.Tensor) error {
	return n.transferLater(sumName, tensors, n.sum)
}

func (n *network) sum(t kernels.Tensor, list []C.Transfer) []C.Transfer {
	return append(list, n.of(t, C.AllReduce, 0, t.Elements()))
}

// SumParts is NCCL's reduce-scatter, and where the parts are not equal a reduction for each.
func (n *network) SumParts(tensors []kernels.Tensor) error {
	return n.transfer(sumPartsName, tensors, n.sumParts)
}

// SumPartsLater is SumParts as SumLater is Sum.
func (n *network) SumPartsLater(tensors []kernels.Tensor) error {
	return n.transferLater(sumPartsName, tensors, n.sumParts)
}

func (n *network) sumParts(t kernels.Tensor, list []C.Transfer) []C.Transfer {
	count := t.Elements()
	if count%n.size == 0 {
		at, end := kernels.Part(n.rank, n.size, count)
		whole := n.of(t, C.ReduceScatter, 0, end-at)
		whole.to = n.of(t, C.ReduceScatter, at, end).to
		return append(list, whole)
	}
	return n.each(t, C.Reduce, list)
}

// CollectParts is NCCL's all-gather, and where the parts are not equal a broadcast of each.
func (n *network) CollectParts(tensors []kernels.Tensor) error {
	return n.transfer(collectName, tensors, n.collectParts)
}

// CollectPartsLater is CollectParts as SumLater is Sum.
func (n *network) CollectPartsLater(tensors []kernels.Tensor) (kernels.Transfer, error) {
	c := &collection{network: n, tensors: tensors}
	return c, n.transferLater(collectName, tensors, n.collectParts)
}

func (n *network) collectParts(t kernels.Tensor, list []C.Transfer) []C.Transfer {
	count := t.Elements()
	if count%n.size == 0 {
		at, end := kernels.Part(n.rank, n.size, count)
		own := n.of(t, C.AllGather, at, end)
		own.to = n.of(t, C.AllGather, 0, count).to
		return append(list, own)
	}
	return n.each(t, C.Broadcast, list)
}

// collection is tensors that are collected later.
type collection struct {
	network *network
	tensors []kernels.Tensor
}

// Join begins the collection at the latest now, and makes the device's stream wait for it.
func (c *collection) Join() error {
	n := c.network
	n.calls.Lock()
	defer n.calls.Unlock()
	for _, t := range c.tensors {
		at := driver.Address(driver.Read(t))
		end := at + driver.Address(t.Elements()*t.DType.Size())
		if slices.ContainsFunc(n.later, func(x C.Transfer) bool { to := driver.Address(uintptr(x.to)); return at <= to && to < end }) {
			return n.flush()
		}
	}
	return n.joinForked()
}

// Broadcast copies the tensors of one member to all others.
func (n *network) Broadcast(from int, tensors []kernels.Tensor) error {
	if from < 0 || from >= n.size {
		return callError(n.gpu, "broadcast", fmt.Errorf("from is rank %d, the network has %d", from, n.size))
	}
	return n.transfer("broadcast", tensors, func(t kernels.Tensor, list []C.Transfer) []C.Transfer {
		b := n.of(t, C.Broadcast, 0, t.Elements())
		b.rank = C.int(from)
		return append(list, b)
	})
}

// Exchange is NCCL's send and receive on a stream of their own.
func (n *network) Exchange(to int, send []kernels.Tensor, from int, receive []kernels.Tensor) (kernels.Transfer, error) {
	const name = "exchange"
	var list []C.Transfer
	for _, side := range []struct {
		name      string
		rank      int
		tensors   []kernels.Tensor
		operation C.int
	}{{"to", to, send, C.Send}, {"from", from, receive, C.Receive}} {
		if len(side.tensors) > 0 && (side.rank < 0 || side.rank >= n.size || side.rank == n.rank) {
			return nil, callError(n.gpu, name, fmt.Errorf("%s is rank %d, it needs to be another one of the network's %d", side.name, side.rank, n.size))
		}
		described, err := n.describe(name, side.tensors, func(t kernels.Tensor, list []C.Transfer) []C.Transfer {
			one := n.of(t, side.operation, 0, t.Elements())
			one.rank = C.int(side.rank)
			return append(list, one)
		})
		if err != nil {
			return nil, err
		}
		list = append(list, described...)
	}
	if len(list) == 0 {
		return nothingSent{}, nil
	}
	n.calls.Lock()
	defer n.calls.Unlock()
	return n.queueBeside(name, list, send, receive)
}

// queueBeside queues operations beside what the device does from now on. The caller holds calls.
func (n *network) queueBeside(name string, list []C.Transfer, tensors ...[]kernels.Tensor) (*exchange, error) {
	if n.left.Load() {
		return nil, callError(n.gpu, name, ErrLeft)
	}
	g, x := n.gpu, &exchange{network: n, tensors: tensors}
	if err := g.SettleLinks(); err != nil {
		return nil, err
	}
	for _, e := range []*cu.Event{&x.begin, &x.end} {
		if err := n.event(e); err != nil {
			return nil, err
		}
	}
	return x, errorOf(g, name, C.networkBeside(rawContext(g), n.communicator, rawStream(g.Stream()), rawStream(*n.beside),
		rawEvent(x.begin), rawEvent(x.end), &list[0], C.int(len(list))), n.communicator)
}

// event gives an exchange an event, and the first one the stream. What comes first in the order of
// work is to begin first, although it has to wait for an event: hence the stream's priority.
func (n *network) event(e *cu.Event) error {
	if n.beside == nil {
		if err := n.gpu.Do("cuStreamCreateWithPriority", func() error {
			_, greatest, err := cu.StreamPriorityRange()
			if err != nil {
				return err
			}
			stream, err := cu.MakeStreamWithPriority(greatest, cu.NonBlocking)
			n.beside = &stream
			return err
		}); err != nil {
			return err
		}
	}
	if last := len(n.events) - 1; last >= 0 {
		*e, n.events = n.events[last], n.events[:last]
		return nil
	}
	return n.gpu.Do("cuEventCreate", func() (err error) {
		*e, err = cu.MakeEvent(cu.DisableTiming)
		return err
	})
}

// exchange is one that was queued.
type exchange struct {
	network    *network
	tensors    [][]kernels.Tensor // alive until it is joined
	begin, end cu.Event
}

// Join makes the device's stream wait for the exchange.
func (x *exchange) Join() error {
	x.network.calls.Lock()
	defer x.network.calls.Unlock()
	return x.join()
}

// join is Join where the caller holds calls.
func (x *exchange) join() error {
	n := x.network
	defer runtime.KeepAlive(x)
	if err := n.gpu.SettleLinks(); err != nil {
		return err
	}
	err := n.gpu.Do("cuStreamWaitEvent", func() error { return n.gpu.Stream().Wait(x.end, 0) })
	n.events = append(n.events, x.begin, x.end)
	return err
}

// nothingSent is an exchange of nothing.
type nothingSent struct{}

func (nothingSent) Join() error { return nil }

// transferLater notes operations for later.
func (n *network) transferLater(name string, tensors []kernels.Tensor, describe func(kernels.Tensor, []C.Transfer) []C.Transfer) error {
	list, err := n.describe(name, tensors, describe)
	if err != nil {
		return err
	}
	n.calls.Lock()
	defer n.calls.Unlock()
	if n.left.Load() {
		return callError(n.gpu, name, ErrLeft)
	}
	n.later, n.tensors = append(n.later, list...), append(n.tensors, tensors...)
	n.gpu.Later(&n.asTransfers)
	return nil
}

// transfers are what was asked for later, as the device knows it.
type transfers struct{ network *network }

// Fork begins what was noted for later, if nothing runs beside the device's work yet.
func (t transfers) Fork() error {
	n := t.network
	n.calls.Lock()
	defer n.calls.Unlock()
	if n.forked != nil {
		return nil
	}
	_, err := n.begin()
	return err
}

// begin begins what was noted for later, and returns of how many tensors that is. The caller holds
// calls.
func (n *network) begin() (count int, err error) {
	list, tensors := n.later, n.tensors
	if len(list) == 0 {
		return 0, nil
	}
	n.later, n.tensors = nil, nil
	n.forked, err = n.queueBeside("transfers beside other work", list, tensors)
	return len(tensors), err
}

// Begin begins what is still noted for later.
func (n *network) Begin() (int, error) {
	n.calls.Lock()
	defer n.calls.Unlock()
	if err := n.joinForked(); err != nil {
		return 0, err
	}
	return n.begin()
}

// Join makes the device's work come after what Fork began.
func (t transfers) Join() error {
	n := t.network
	n.calls.Lock()
	defer n.calls.Unlock()
	return n.joinForked()
}

func (n *network) joinForked() error {
	x := n.forked
	if n.forked = nil; x == nil {
		return nil
	}
	return x.join()
}

// Join queues what is still noted for later.
func (n *network) Join() error {
	n.calls.Lock()
	defer n.calls.Unlock()
	n.gpu.NotLater(&n.asTransfers)
	return n.flush()
}

// flush queues what is still noted for later behind what runs beside. The caller holds calls.
func (n *network) flush() error {
	if err := n.joinForked(); err != nil {
		return err
	}
	list, tensors := n.later, n.tensors
	n.later, n.tensors = nil, nil
	defer runtime.KeepAlive(tensors)
	return n.queue("transfers that were put off", list)
}

func (t transfers) Forget() {
	n := t.network
	n.calls.Lock()
	defer n.calls.Unlock()
	n.later, n.tensors, n.forked = nil, nil, nil
}

// each is an operation on each part of a tensor, whose root is the part's rank.
func (n *network) each(t kernels.Tensor, operation C.int, list []C.Transfer) []C.Transfer {
	for rank := range n.size {
		if at, end := kernels.Part(rank, n.size, t.Elements()); at < end {
			part := n.of(t, operation, at, end)
			part.rank = C.int(rank)
			list = append(list, part)
		}
	}
	return list
}

// of is an operation in place on the elements at to end.
func (n *network) of(t kernels.Tensor, operation C.int, at, end int) C.Transfer {
	var data driver.Address
	if operation == C.Send {
		data = driver.Address(driver.Read(t))
	} else {
		data = driver.Written(t).Address()
	}
	begin := unsafe.Add(data.Pointer(), at*t.DType.Size())
	return C.Transfer{from: begin, to: begin, count: C.size_t(end - at), _type: types[t.DType], operation: operation}
}

// types are the types of elements as NCCL numbers them.
var types = map[kernels.DType]C.int{
	kernels.Bool: 1, kernels.I32: 2, kernels.I64: 4, kernels.F16: 6, kernels.F32: 7, kernels.F64: 8, kernels.BF16: 9,
}

// describe lists operations on tensors.
func (n *network) describe(name string, tensors []kernels.Tensor, describe func(kernels.Tensor, []C.Transfer) []C.Transfer) (list []C.Transfer, err error) {
	for i, t := range tensors {
		argument := fmt.Sprintf("tensor %d", i)
		if err := checkHere(n.gpu, name, argument, t); err != nil {
			return nil, err
		}
		switch {
		case !t.IsRowMajor():
			return nil, callError(n.gpu, name, fmt.Errorf("%s has shape %v and strides %v, it needs to be row-major", argument, t.Shape, t.Strides))
		case !t.DType.IsFloat() && name != "broadcast" && name != "exchange":
			return nil, callError(n.gpu, name, fmt.Errorf("%s is %v, it needs to be of floats", argument, t.DType))
		case t.Elements() > 0:
			list = describe(t, list)
		}
	}
	return list, nil
}

// transfer queues operations on tensors, all in one group.
func (n *network) transfer(name string, tensors []kernels.Tensor, describe func(kernels.Tensor, []C.Transfer) []C.Transfer) error {
	list, err := n.describe(name, tensors, describe)
	if err != nil || len(list) == 0 {
		return err
	}
	n.calls.Lock()
	defer n.calls.Unlock()
	defer runtime.KeepAlive(tensors)
	return n.queue(name, list)
}

// queue queues operations in the order of the device's work. The caller holds calls.
func (n *network) queue(name string, list []C.Transfer) error {
	if n.left.Load() {
		return callError(n.gpu, name, ErrLeft)
	}
	if len(list) == 0 {
		return nil
	}
	g := n.gpu
	if err := g.SettleLinks(); err != nil {
		return err
	}
	return errorOf(g, name, C.networkTransfer(rawContext(g), n.communicator, rawStream(g.Stream()), &list[0], C.int(len(list))), n.communicator)
}

// Err asks NCCL what has gone wrong. While another call is under way it does not wait for that, and
// knows of nothing.
func (n *network) Err() error {
	if !n.calls.TryLock() {
		return nil
	}
	defer n.calls.Unlock()
	if n.left.Load() {
		return nil
	}
	return errorOf(n.gpu, "ncclCommGetAsyncError", C.networkState(n.communicator), n.communicator)
}

// Abort makes NCCL's kernels end, once the device knows that what they leave means nothing.
func (n *network) Abort() {
	n.gpu.Abandon()
	n.leave(true)
}

// Close destroys the communicator.
func (n *network) Close() { n.leave(false) }

// leave ends the communicator, in the background, since NCCL waits there for recordings that use
// it.
func (n *network) leave(abort bool) {
	if !n.left.CompareAndSwap(false, true) {
		return
	}
	n.gpu.NotLater(&n.asTransfers)
	go func() {
		// A call that waits for a member that is gone returns only when the communicator is aborted
		// beneath it.
		for patience := time.Now().Add(time.Second); !n.calls.TryLock(); time.Sleep(time.Millisecond) {
			if abort && time.Now().After(patience) {
				C.networkLeave(rawContext(n.gpu), n.communicator, 1)
				return
			}
		}
		defer n.calls.Unlock()
		aborts := C.int(0)
		if abort {
			aborts = 1
		}
		C.networkLeave(rawContext(n.gpu), n.communicator, aborts)
		n.free()
	}()
}

// free destroys what exchanges used. What cannot be destroyed is lost, and nobody is there to be
// told.
func (n *network) free() {
	_ = n.gpu.Do("cuEventDestroy", func() error {
		for _, e := range n.events {
			_ = cu.DestroyEvent(&e)
		}
		n.events = nil
		if n.beside == nil {
			return nil
		}
		return n.beside.Destroy()
	})
}

func callError(g *driver.GPU, kernel string, err error) error {
	return &kernels.CallError{Device: g.Name(), Kernel: kernel, Err: err}
}

// checkHere makes sure that a tensor with elements is in the memory of a device.
func checkHere(g *driver.GPU, call, name string, t kernels.Tensor) error {
	if t.Owner == nil && t.Elements() > 0 {
		return fmt.Errorf("%s: %s: %s is on the host, it needs to be on the device", g.Name(), call, name)
	}
	return nil
}

// cu keeps its handles to itself. Each of these types is a struct of one handle.
func rawContext(g *driver.GPU) C.CUcontext {
	c := g.Context()
	return *(*C.CUcontext)(unsafe.Pointer(&c))
}

func rawStream(s cu.Stream) C.CUstream { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func rawEvent(e cu.Event) C.CUevent    { return *(*C.CUevent)(unsafe.Pointer(&e)) }
