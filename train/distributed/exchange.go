package distributed

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// This file has the operations on tensors. Those of a device are the network's that the group is
// connected to (see Connect). Of the host's, each is cut into one part a rank. A sum sends every
// part to its rank, which adds up the parts of all in the order of the ranks, and then every rank
// its part to all others: all get the same bits, whatever the timing, and they are those of a loop
// over the ranks.

// Sum adds up the tensors of all ranks, element by element, and leaves the sums in the tensors of
// each, the same bits in all. On the host the order is that of the ranks, and sums of 16-bit floats
// are made in float32.
func (g *Group) Sum(tensors ...kernels.Tensor) error {
	return g.each("Sum", tensors, kernels.Network.Sum, g.sum)
}

// SumParts adds up like Sum, but leaves in each rank's tensors only its own part of the sums, that
// of Part. What the other parts hold afterwards is undefined.
func (g *Group) SumParts(tensors ...kernels.Tensor) error {
	return g.each("SumParts", tensors, kernels.Network.SumParts, g.sumParts)
}

// SumLater is Sum at any time until Join, up to which the tensors must be left alone: on devices
// where it disturbs their other work least, and on the host at once.
func (g *Group) SumLater(tensors ...kernels.Tensor) error {
	return g.each("SumLater", tensors, kernels.Network.SumLater, g.sum)
}

// SumPartsLater is SumParts at any time until Join.
func (g *Group) SumPartsLater(tensors ...kernels.Tensor) error {
	return g.each("SumPartsLater", tensors, kernels.Network.SumPartsLater, g.sumParts)
}

// Begin begins the sums that were asked for later, beside what a device does from now on, and
// returns how many of the tensors still travel: those asked for last. The others have arrived.
func (g *Group) Begin() (travelling int, err error) {
	if err := g.Err(); err != nil || g == nil || g.network == nil {
		return 0, err
	}
	if travelling, err = g.network.Begin(); err != nil {
		return 0, g.failLate(fmt.Errorf("rank %d: %w", g.self(), err))
	}
	return travelling, nil
}

// Join makes what a device does from now on come after the sums that were asked for later.
func (g *Group) Join() error {
	if err := g.Err(); err != nil || g == nil || g.network == nil {
		return err
	}
	if err := g.network.Join(); err != nil {
		return g.failLate(fmt.Errorf("rank %d: %w", g.self(), err))
	}
	return nil
}

// CollectParts gives each rank the others' parts of the tensors: what SumParts left out.
func (g *Group) CollectParts(tensors ...kernels.Tensor) error {
	return g.each("CollectParts", tensors, kernels.Network.CollectParts, g.collectParts)
}

// CollectPartsLater is CollectParts at any time until the transfer is joined, up to which the
// tensors must be left alone: on devices where it disturbs their other work least, and on the host
// at once.
func (g *Group) CollectPartsLater(tensors ...kernels.Tensor) (kernels.Transfer, error) {
	var transfer kernels.Transfer = arrived{}
	err := g.each("CollectPartsLater", tensors, func(n kernels.Network, tensors []kernels.Tensor) (err error) {
		transfer, err = n.CollectPartsLater(tensors)
		return err
	}, g.collectParts)
	return transfer, err
}

// Broadcast copies the tensors of one rank, of any type, to all others.
func (g *Group) Broadcast(from int, tensors ...kernels.Tensor) error {
	if from < 0 || from >= g.Size() {
		return fmt.Errorf("distributed: Broadcast: from is rank %d, the group has %d", from, g.Size())
	}
	onDevice := func(n kernels.Network, tensors []kernels.Tensor) error { return n.Broadcast(from, tensors) }
	return g.each("Broadcast", tensors, onDevice, func(operation uint64, t kernels.Tensor) error {
		if g.Rank() != from {
			return g.receive(g.peers[from], operation, bytesOf(t, 0, t.Elements()))
		}
		return g.sendAll(operation, func(int) []byte { return bytesOf(t, 0, t.Elements()) }, nil)
	})
}

// Barrier waits until every rank has come to it.
func (g *Group) Barrier() error {
	var nothing [1]float32
	return g.each("Barrier", []kernels.Tensor{kernels.Of(nothing[:], 1)}, nil, g.sumParts)
}

// Part returns the elements of a tensor of n that are a rank's: from at, up to end.
func (g *Group) Part(rank, n int) (at, end int) { return kernels.Part(rank, g.Size(), n) }

// each runs an operation over tensors, after a check that all ranks mean the same.
func (g *Group) each(name string, tensors []kernels.Tensor, onDevice func(kernels.Network, []kernels.Tensor) error,
	onHost func(operation uint64, t kernels.Tensor) error) error {
	if err := g.Err(); err != nil || g.Size() == 1 {
		return err
	}
	host, device := make([]kernels.Tensor, 0, len(tensors)), make([]kernels.Tensor, 0, len(tensors))
	for i, t := range tensors {
		if err := g.checkTensor(name, i, t, name == "Broadcast"); err != nil {
			return err
		}
		if t.Owner == nil {
			host = append(host, t)
		} else {
			device = append(device, t)
		}
	}
	operation, err := g.begin(name)
	if err != nil {
		return err
	}
	if err := g.agree(operation, name, tensors); err != nil {
		return err
	}
	if len(device) > 0 {
		if err := onDevice(g.network, device); err != nil {
			return g.failLate(fmt.Errorf("rank %d: %w", g.self(), err))
		}
	}
	for _, t := range host {
		if operation, err = g.begin(name); err != nil {
			return err
		}
		if err := onHost(operation, t); err != nil {
			g.fail(err)
			return g.Err()
		}
	}
	return nil
}

func (g *Group) checkTensor(name string, i int, t kernels.Tensor, anyType bool) error {
	switch {
	case !t.DType.IsFloat() && !anyType:
		return fmt.Errorf("distributed: %s: tensor %d is of %v, it needs to be of floats", name, i, t.DType)
	case t.Owner != nil && g.network == nil:
		return kernels.Unsupported{Device: "a group that is not connected", What: fmt.Sprintf("%s of tensor %d, which lies on a device,", name, i)}
	case !t.IsRowMajor():
		return fmt.Errorf("distributed: %s: tensor %d has shape %v and strides %v, it needs to be contiguous", name, i, t.Shape, t.Strides)
	}
	return nil
}

// agree compares what the ranks are about to do, so that a mistake in a program is an error and not
// a sum of unlike things.
func (g *Group) agree(operation uint64, name string, tensors []kernels.Tensor) error {
	same := func(int) []byte { return described(name, tensors) }
	return g.compare(operation, name, len(tensors), same, same)
}

// described is a digest of an operation.
func described(name string, tensors []kernels.Tensor) []byte {
	hash := fnv.New64a()
	fmt.Fprint(hash, name, len(tensors))
	for _, t := range tensors {
		fmt.Fprint(hash, t.DType, t.Shape, t.Owner != nil)
	}
	return hash.Sum(nil)
}

// compare tells each rank what it is to expect, and compares what it is told with what it expects
// itself.
func (g *Group) compare(operation uint64, name string, count int, mine, expected func(rank int) []byte) error {
	return g.sendAll(operation, mine, func(l *peer) error {
		want := expected(l.rank)
		theirs := make([]byte, len(want))
		if err := g.receive(l, operation, theirs); err != nil {
			return err
		}
		if !bytes.Equal(theirs, want) {
			err := fmt.Errorf("in operation %d rank %d calls %s with %d tensors, and %s another operation or other shapes or types: all need to be the same",
				operation, g.self(), name, count, l.name)
			g.fail(err)
			return g.Err()
		}
		return nil
	})
}

func (g *Group) sum(operation uint64, t kernels.Tensor) error {
	if err := g.sumParts(operation, t); err != nil {
		return err
	}
	return g.collectParts(operation, t)
}

func (g *Group) sumParts(operation uint64, t kernels.Tensor) error {
	n := t.Elements()
	at, end := g.Part(g.Rank(), n)
	parts := make([][]byte, g.Size())
	parts[g.Rank()] = bytesOf(t, at, end)
	err := g.sendAll(operation, func(rank int) []byte {
		at, end := g.Part(rank, n)
		return bytesOf(t, at, end)
	}, func(l *peer) error {
		parts[l.rank] = make([]byte, (end-at)*t.DType.Size())
		return g.receive(l, operation, parts[l.rank])
	})
	if err != nil || at == end {
		return err
	}
	switch t.DType {
	case kernels.F64:
		addUp[float64](parts, parts[g.Rank()])
	case kernels.F32:
		addUp[float32](parts, parts[g.Rank()])
	default:
		g.addUpHalves(t.DType, parts)
	}
	return nil
}

// addUp writes the sum of the parts, in their order, to to, which may be one of them.
func addUp[T kernels.Float](parts [][]byte, to []byte) {
	sums := numbers[T](to)
	for i := range sums {
		sum := numbers[T](parts[0])[i]
		for _, part := range parts[1:] {
			sum += numbers[T](part)[i]
		}
		sums[i] = sum
	}
}

// addUpHalves sums 16-bit floats in float32.
func (g *Group) addUpHalves(dtype kernels.DType, parts [][]byte) {
	wide := make([][]byte, len(parts))
	n := len(parts[0]) / dtype.Size()
	view := func(data []byte, dtype kernels.DType) kernels.Tensor {
		return kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(data)), dtype, n)
	}
	for i, part := range parts {
		wide[i] = make([]byte, n*kernels.F32.Size())
		kernels.CopyHost(view(wide[i], kernels.F32), view(part, dtype))
	}
	addUp[float32](wide, wide[0])
	kernels.CopyHost(view(parts[g.Rank()], dtype), view(wide[0], kernels.F32))
}

func (g *Group) collectParts(operation uint64, t kernels.Tensor) error {
	n := t.Elements()
	at, end := g.Part(g.Rank(), n)
	return g.sendAll(operation, func(int) []byte { return bytesOf(t, at, end) }, func(l *peer) error {
		at, end := g.Part(l.rank, n)
		return g.receive(l, operation, bytesOf(t, at, end))
	})
}

// sendAll sends every other rank its bytes, and receives from every other rank beside it.
func (g *Group) sendAll(operation uint64, data func(rank int) []byte, receive func(l *peer) error) error {
	var tasks sync.WaitGroup
	others := g.others()
	errs := make([]error, 2*len(others))
	for i, l := range others {
		tasks.Go(func() {
			errs[i] = g.guarded(func() error { return g.send(l, operation, data(l.rank)) })
		})
		if receive != nil {
			tasks.Go(func() { errs[len(others)+i] = g.guarded(func() error { return receive(l) }) })
		}
	}
	tasks.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) send(l *peer, operation uint64, bytes []byte) error {
	for {
		n := min(len(bytes), maxFrame)
		if err := l.send(frame{kind: dataFrame, group: g.number, operation: operation, body: bytes[:n]}, g.config.timeout()); err != nil {
			return g.failLate(l.lost("%s: %w", l.name, err))
		}
		if bytes = bytes[n:]; len(bytes) == 0 {
			return nil
		}
	}
}

func (g *Group) receive(l *peer, operation uint64, to []byte) error {
	for {
		body, err := g.wait(l, operation)
		if err != nil {
			return err
		}
		if len(body) > len(to) || len(body) < min(len(to), maxFrame) {
			g.fail(fmt.Errorf("%s sent %d bytes in operation %d, %d are expected", l.name, len(body), operation, len(to)))
			return g.Err()
		}
		copy(to, body)
		if to = to[len(body):]; len(to) == 0 {
			return nil
		}
	}
}

// bytesOf is the memory of elements at to end of a contiguous tensor.
func bytesOf(t kernels.Tensor, at, end int) []byte {
	if at == end {
		return nil
	}
	size := t.DType.Size()
	return unsafe.Slice((*byte)(unsafe.Add(t.Data, at*size)), (end-at)*size)
}

// numbers is the same memory as numbers, to whose size it is aligned.
func numbers[T kernels.Float](bytes []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/int(unsafe.Sizeof(zero)))
}
