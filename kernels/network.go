package kernels

import "context"

// Networked is a device that sends tensors to the devices of other processes by itself, without the
// host's help.
type Networked interface {
	// NetworkKey returns the key of a new network, which the member that made it hands to all
	// others.
	NetworkKey() ([]byte, error)
	// JoinNetwork waits until all members of a key's network have come, and returns the network.
	// This process is member rank of size. The wait ends with the context.
	JoinNetwork(ctx context.Context, key []byte, rank, size int) (Network, error)
	// Rejoin makes steps count again that come after an aborted network, see [StepAbandoned].
	// Joining another network does so too.
	Rejoin() error
}

// Network is collective operations of the devices of several processes. Every member calls the same
// operations in the same order, with tensors of the same shapes and types. Operations are queued
// in the order of the device's work, and can be recorded as kernels can. Tensors are row-major, in
// the device's memory, and of floats; Broadcast takes any type.
type Network interface {
	// Sum is an all-reduce: each member's tensors receive the sums over all members, the same bits
	// everywhere.
	Sum(tensors []Tensor) error
	// SumParts is a reduce-scatter: each member's tensors receive its own part of the sums, the one
	// that [Part] gives. What the other parts hold is undefined.
	SumParts(tensors []Tensor) error
	// SumLater is Sum at a time that the network chooses, at the latest at Join: beside other work
	// of the device where that leaves room. The device's own work must leave the tensors alone
	// until Join.
	SumLater(tensors []Tensor) error
	// SumPartsLater is SumParts at such a time.
	SumPartsLater(tensors []Tensor) error
	// Begin starts the sums that were asked for later, beside the device's further work. It returns
	// how many tensors they sum.
	Begin() (tensors int, err error)
	// Join makes the device's further work wait for the sums that were asked for later.
	Join() error
	// CollectParts is an all-gather: each member receives the others' parts of the tensors.
	CollectParts(tensors []Tensor) error
	// CollectPartsLater is CollectParts at a time that the network chooses, at the latest when the
	// transfer is joined.
	CollectPartsLater(tensors []Tensor) (Transfer, error)
	// Broadcast copies the tensors of one member to all others.
	Broadcast(from int, tensors []Tensor) error
	// Exchange sends tensors of any type to one member and receives tensors from another. Every
	// member calls it. What one sends has the shapes and types of what the other receives; either
	// list may be empty. It starts after the work that was queued before it, and runs beside the
	// work that is queued after it. That work must leave the tensors alone until [Transfer.Join].
	Exchange(to int, send []Tensor, from int, receive []Tensor) (Transfer, error)
	// Err returns the error of queued work, as far as it is known. It does not wait.
	Err() error
	// Abort ends the queued work, even work that waits for members that are gone. All further
	// operations fail. It may be called from any goroutine, and does not wait.
	Abort()
	// Close leaves the network, after the last operation. Its memory is freed when no recording
	// uses it any more.
	Close()
}

// Transfer is tensors on their way, beside a device's work.
type Transfer interface {
	// Join makes work that is queued from now on wait for the tensors. It is called once.
	Join() error
}

// Ranks are processes that share a problem. This process is one of them. A nil Ranks is a process
// alone.
type Ranks interface {
	// Rank is this process's number, from 0 on, of Size.
	Rank() int
	Size() int
	// Exchange is that of [Network], also of tensors of the host.
	Exchange(to int, send []Tensor, from int, receive []Tensor) (Transfer, error)
}

// Holders are processes that each hold one shard, the [Part], of some tensors. This process is one
// of them.
type Holders interface {
	// Rank is this process's number, from 0 on, of Size.
	Rank() int
	Size() int
	// CollectParts, CollectPartsLater, SumParts and SumPartsLater are those of [Network], also of
	// tensors of the host.
	CollectParts(tensors ...Tensor) error
	CollectPartsLater(tensors ...Tensor) (Transfer, error)
	SumParts(tensors ...Tensor) error
	SumPartsLater(tensors ...Tensor) error
}

// Part is where the part of member rank of size begins and ends in a tensor of n elements. Parts
// follow each other. Where size does not divide n, the first ones are an element longer.
func Part(rank, size, n int) (at, end int) {
	return n/size*rank + min(rank, n%size), n/size*(rank+1) + min(rank+1, n%size)
}
