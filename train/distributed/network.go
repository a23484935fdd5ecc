package distributed

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Connect joins a device of this rank to those of all others, so that operations take its tensors
// too. Every rank calls it, with a device of its own. A [github.com/stheno-ml/stheno/train.Loop]
// does it by itself. On NVIDIA's GPUs the network is NCCL's, whose library is looked for then. An
// operation on tensors of a device is queued there like a kernel, and is done when the work that
// comes before it is; it can be recorded.
func (g *Group) Connect(d kernels.Device) error {
	if err := g.Err(); err != nil || g.Size() == 1 && !g.Renewed() || g.network != nil {
		return err
	}
	if g.Size() == 1 { // the others are lost, and their network is aborted
		if networked, ok := d.(kernels.Networked); ok {
			return networked.Rejoin()
		}
		return nil
	}
	network, err := g.connect(d)
	if err != nil {
		if g.Err() == nil {
			g.Abort(err)
		}
		return g.Err()
	}
	g.lock.Lock()
	g.network = network
	g.lock.Unlock()
	if err := g.Err(); err != nil { // the group's end has not seen the network
		g.disconnect()
		return err
	}
	return nil
}

func (g *Group) connect(d kernels.Device) (kernels.Network, error) {
	networked, ok := d.(kernels.Networked)
	if !ok {
		return nil, kernels.Unsupported{Device: d.Name(), What: "a network of devices"}
	}
	key, err := networked.NetworkKey() // on every rank, so that one that has no library says so before the others wait for it
	if err != nil {
		return nil, err
	}
	if err := g.Broadcast(0, kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(key)), kernels.Bool, len(key))); err != nil {
		return nil, err
	}
	if err := g.Barrier(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), g.config.timeout(), errLate)
	defer cancel()
	done := g.done
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	network, err := networked.JoinNetwork(ctx, key, g.Rank(), g.Size())
	if err != nil {
		return nil, g.failLate(fmt.Errorf("rank %d: %w", g.self(), err))
	}
	return network, nil
}

// networkErr asks the network what has gone wrong.
func (g *Group) networkErr() error {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.network == nil {
		return nil
	}
	return g.network.Err()
}

// disconnect leaves the network at the group's end: for whatever other reason than Close, the work
// that waits for other ranks is ended too.
func (g *Group) disconnect() {
	g.lock.Lock()
	defer g.lock.Unlock()
	switch {
	case g.network == nil:
	case g.cause == errClosed:
		g.network.Close()
	default:
		g.network.Abort()
	}
}
