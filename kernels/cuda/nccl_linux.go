//go:build gpu

package cuda

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
	"gorgonia.org/cu"
)

var _ kernels.Networked = (*Device)(nil)

// ncclVariable is the variable of the environment that names the library, where it is in none of the usual places.
const ncclVariable = "STHENO_NCCL"

// leastNCCL is the oldest version that serves, in NCCL's own numbers: what is recorded in CUDA graphs and torn down early works
// from there on.
const leastNCCL = 21800

// openNCCL is loadNCCL once.
var openNCCL = sync.OnceValue(loadNCCL)

// loadNCCL finds the library and returns why there is none that serves.
func loadNCCL() error {
	var tried []string
	for _, path := range ncclPaths() {
		name := C.CString(path)
		problem := C.networkOpen(name)
		C.free(unsafe.Pointer(name))
		if problem != nil {
			tried = append(tried, fmt.Sprintf("%s: %s", path, C.GoString(problem)))
			continue
		}
		if v := int(C.networkVersion()); v < leastNCCL || v/10000 != leastNCCL/10000 {
			return fmt.Errorf("%s is NCCL %s, it needs to be %s or a newer 2", path, ncclVersion(v), ncclVersion(leastNCCL))
		}
		return nil
	}
	return fmt.Errorf("there is no NCCL, which joins GPUs of several processes: install the system's package libnccl2 or Python's nvidia-nccl-cu12, "+
		"or name a libnccl.so.2 in %s (%s)", ncclVariable, strings.Join(tried, "; "))
}

func ncclVersion(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// ncclPaths are the names under which the library is looked for: that which the loader finds, as of a system's package or in
// LD_LIBRARY_PATH, and then Python's wheels, of the python3 in PATH first.
func ncclPaths() []string {
	if path := os.Getenv(ncclVariable); path != "" {
		return []string{path}
	}
	const library = "libnccl.so.2"
	paths := []string{library}
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
				paths = append(paths, found...)
			}
		}
	}
	return slices.Compact(paths)
}

// NetworkKey returns the key of a new network: NCCL's unique id.
func (d *Device) NetworkKey() ([]byte, error) {
	if err := openNCCL(); err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", d.index, err)
	}
	key := make([]byte, keyBytes)
	if result := C.networkKey((*C.char)(unsafe.Pointer(&key[0]))); result != 0 {
		return nil, d.ncclError("ncclGetUniqueId", result, nil)
	}
	return key, nil
}

const keyBytes = 128

// JoinNetwork returns the network of a key once all of its members have come. NCCL waits for them without end: where the context
// ends before, a thread of the process is left behind in that wait.
func (d *Device) JoinNetwork(ctx context.Context, key []byte, rank, size int) (kernels.Network, error) {
	if err := openNCCL(); err != nil {
		return nil, fmt.Errorf("cuda:%d: %w", d.index, err)
	}
	if len(key) != keyBytes {
		return nil, fmt.Errorf("cuda:%d: the key of a network has %d bytes, it needs to have %d", d.index, len(key), keyBytes)
	}
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("cuda:%d: rank is %d, it needs to be from 0 to %d", d.index, rank, size-1)
	}
	n := &network{device: d, rank: rank, size: size}
	n.asTransfers = n
	joined := make(chan error, 1)
	go func() {
		joined <- d.ncclError("ncclCommInitRank",
			C.networkJoin(rawContext(d.context), &n.communicator, C.int(size), (*C.char)(unsafe.Pointer(&key[0])), C.int(rank)), nil)
	}()
	select {
	case err := <-joined:
		if err != nil {
			return nil, err
		}
		return n, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cuda:%d: ncclCommInitRank: %w", d.index, context.Cause(ctx))
	}
}

func (d *Device) ncclError(call string, result C.NcclResult, communicator unsafe.Pointer) error {
	if result == 0 {
		return nil
	}
	err := fmt.Errorf("cuda:%d: %s: %s", d.index, call, C.GoString(C.networkText(result)))
	if details := strings.TrimSpace(C.GoString(C.networkDetails(communicator))); details != "" {
		err = fmt.Errorf("%w (%s)", err, details)
	}
	return err
}

// network is a communicator of NCCL's, whose work goes to the device's stream.
type network struct {
	device     *Device
	rank, size int

	left         atomic.Bool
	calls        sync.Mutex // held while NCCL is called
	communicator unsafe.Pointer

	beside *cu.Stream // of exchanges, nil before the first
	events []cu.Event // that no exchange has

	// Sums that were asked for later, the tensors that they are of, and the sums that run beside the device's work.
	later   []C.Transfer
	tensors []kernels.Tensor
	forked  *exchange

	asTransfers transfers // this network, as the device knows it
}

var errLeft = errors.New("the network was left or aborted")

// The names of operations in errors.
const (
	sumName      = "sum over ranks"
	sumPartsName = "sum of parts"
	collectName  = "collection of parts"
)

// Sum is NCCL's all-reduce.
func (n *network) Sum(tensors []kernels.Tensor) error { return n.transfer(sumName, tensors, n.sum) }

// SumLater is Sum beside the next kernels that leave room for it, see Device.forkTransfers.
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
		at := addressOf(t)
		end := at + address(t.Elements()*t.DType.Size())
		if slices.ContainsFunc(n.later, func(x C.Transfer) bool { to := address(uintptr(x.to)); return at <= to && to < end }) {
			return n.flush()
		}
	}
	return n.joinForked()
}

// Broadcast copies the tensors of one member to all others.
func (n *network) Broadcast(from int, tensors []kernels.Tensor) error {
	if from < 0 || from >= n.size {
		return n.device.callError("broadcast", fmt.Errorf("from is rank %d, the network has %d", from, n.size))
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
			return nil, n.device.callError(name, fmt.Errorf("%s is rank %d, it needs to be another one of the network's %d", side.name, side.rank, n.size))
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
		return nil, n.device.callError(name, errLeft)
	}
	d, x := n.device, &exchange{network: n, tensors: tensors}
	for _, e := range []*cu.Event{&x.begin, &x.end} {
		if err := n.event(e); err != nil {
			return nil, err
		}
	}
	return x, d.ncclError(name, C.networkBeside(rawContext(d.context), n.communicator, rawStream(d.stream), rawStream(*n.beside),
		rawEvent(x.begin), rawEvent(x.end), &list[0], C.int(len(list))), n.communicator)
}

// event gives an exchange an event, and the first one the stream. What comes first in the order of work is to begin first, although it
// has to wait for an event: hence the stream's priority.
func (n *network) event(e *cu.Event) error {
	if n.beside == nil {
		if err := n.device.do("cuStreamCreateWithPriority", func() error {
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
	return n.device.do("cuEventCreate", func() (err error) {
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
	err := n.device.do("cuStreamWaitEvent", func() error { return n.device.stream.Wait(x.end, 0) })
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
		return n.device.callError(name, errLeft)
	}
	n.later, n.tensors = append(n.later, list...), append(n.tensors, tensors...)
	n.device.waiting.Store(&n.asTransfers)
	return nil
}

// fork begins what was noted for later, if nothing runs beside the device's work yet.
func (n *network) fork() error {
	n.calls.Lock()
	defer n.calls.Unlock()
	if n.forked != nil {
		return nil
	}
	_, err := n.begin()
	return err
}

// begin begins what was noted for later, and returns of how many tensors that is. The caller holds calls.
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

func (n *network) join() error {
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
	n.device.waiting.CompareAndSwap(&n.asTransfers, nil)
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

func (n *network) forget() {
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
	begin := unsafe.Add(pointer(addressOf(t)), at*t.DType.Size())
	return C.Transfer{from: begin, to: begin, count: C.size_t(end - at), _type: ncclTypes[t.DType], operation: operation}
}

// ncclTypes are the types of elements as NCCL numbers them.
var ncclTypes = map[kernels.DType]C.int{
	kernels.Bool: 1, kernels.I32: 2, kernels.I64: 4, kernels.F16: 6, kernels.F32: 7, kernels.F64: 8, kernels.BF16: 9,
}

// describe lists operations on tensors.
func (n *network) describe(name string, tensors []kernels.Tensor, describe func(kernels.Tensor, []C.Transfer) []C.Transfer) (list []C.Transfer, err error) {
	for i, t := range tensors {
		argument := fmt.Sprintf("tensor %d", i)
		if err := n.device.checkHere(name, argument, t); err != nil {
			return nil, err
		}
		switch {
		case !t.IsRowMajor():
			return nil, n.device.callError(name, fmt.Errorf("%s has shape %v and strides %v, it needs to be row-major", argument, t.Shape, t.Strides))
		case !t.DType.IsFloat() && name != "broadcast" && name != "exchange":
			return nil, n.device.callError(name, fmt.Errorf("%s is %v, it needs to be of floats", argument, t.DType))
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
		return n.device.callError(name, errLeft)
	}
	if len(list) == 0 {
		return nil
	}
	d := n.device
	return d.ncclError(name, C.networkTransfer(rawContext(d.context), n.communicator, rawStream(d.stream), &list[0], C.int(len(list))), n.communicator)
}

// Err asks NCCL what has gone wrong. While another call is under way it does not wait for that, and knows of nothing.
func (n *network) Err() error {
	if !n.calls.TryLock() {
		return nil
	}
	defer n.calls.Unlock()
	if n.left.Load() {
		return nil
	}
	return n.device.ncclError("ncclCommGetAsyncError", C.networkState(n.communicator), n.communicator)
}

// Abort makes NCCL's kernels end.
func (n *network) Abort() { n.leave(true) }

// Close destroys the communicator.
func (n *network) Close() { n.leave(false) }

// leave ends the communicator, in the background, since NCCL waits there for recordings that use it.
func (n *network) leave(abort bool) {
	if !n.left.CompareAndSwap(false, true) {
		return
	}
	n.device.waiting.CompareAndSwap(&n.asTransfers, nil)
	go func() {
		// A call that waits for a member that is gone returns only when the communicator is aborted beneath it.
		for patience := time.Now().Add(time.Second); !n.calls.TryLock(); time.Sleep(time.Millisecond) {
			if abort && time.Now().After(patience) {
				C.networkLeave(rawContext(n.device.context), n.communicator, 1)
				return
			}
		}
		defer n.calls.Unlock()
		C.networkLeave(rawContext(n.device.context), n.communicator, C.int(flag(abort)))
		n.free()
	}()
}

// free destroys what exchanges used. What cannot be destroyed is lost, and nobody is there to be told.
func (n *network) free() {
	_ = n.device.do("cuEventDestroy", func() error {
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
