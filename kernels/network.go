package kernels

import "context"

// Networked is a device whose tensors travel to the devices of other processes without the host's
// help.
type Networked interface {
	// NetworkKey returns the key of a new network, which the member that made it hands to all
	// others.
	NetworkKey() ([]byte, error)
	// JoinNetwork returns the network of a key once all of its members have come; this one is
	// member rank of size. When the context ends before, so does the wait.
	JoinNetwork(ctx context.Context, key []byte, rank, size int) (Network, error)
}

// Network is what the devices of several processes do together. Its operations are collective:
// every member calls the same ones in the same order, with tensors of the same shapes and types.
// They are queued in the order of the device's work, and can be recorded as kernels can. Tensors
// are row-major, in the device's memory, and of floats; Broadcast takes any type.
type Network interface {
	// Sum adds up the tensors of all members, and leaves the sums in the tensors of each, the same
	// bits everywhere.
	Sum(tensors []Tensor) error
	// SumParts adds up like Sum, and leaves in each member's tensors its own part of the sums, that
	// of [Part]. What the other parts hold is undefined.
	SumParts(tensors []Tensor) error
	// SumLater is Sum at a time of the network's choosing, Join's at the latest: beside work of the
	// device that leaves room for it, where there is such. Until Join the device's own work leaves
	// the tensors alone.
	SumLater(tensors []Tensor) error
	// SumPartsLater is SumParts at such a time.
	SumPartsLater(tensors []Tensor) error
	// Begin begins the sums that were asked for later, beside the device's further work, and
	// returns of how many tensors they are.
	Begin() (tensors int, err error)
	// Join has what comes later done before the device's further work.
	Join() error
	// CollectParts gives each member the others' parts of the tensors.
	CollectParts(tensors []Tensor) error
	// CollectPartsLater is CollectParts at such a time as SumLater is, at the latest when the
	// transfer is joined.
	CollectPartsLater(tensors []Tensor) (Transfer, error)
	// Broadcast copies the tensors of one member to all others.
	Broadcast(from int, tensors []Tensor) error
	// Exchange sends tensors of any type to one member, and receives others from one. Every member
	// calls it, and what one sends is what the other receives; either list may be empty. It begins
	// when the work is done that was queued before, and goes on beside what is queued after it,
	// which must leave the tensors alone until [Transfer.Join].
	Exchange(to int, send []Tensor, from int, receive []Tensor) (Transfer, error)
	// Err returns what went wrong with work that was queued, as far as it is known, without
	// waiting.
	Err() error
	// Abort ends the work that is queued, also what waits for members that are gone, and makes all
	// that follows fail. It may be called from any goroutine, and does not wait.
	Abort()
	// Close leaves the network, after the last operation. What it holds is freed when the
	// recordings are gone that use it.
	Close()
}

// Transfer is tensors that travel beside a device's work.
type Transfer interface {
	// Join lets work that is queued from now on wait for the tensors. It is called once.
	Join() error
}

// Ranks are processes that share a problem, one of which this is. A nil Ranks is a process alone.
type Ranks interface {
	// Rank is this process's number, from 0 on, of Size.
	Rank() int
	Size() int
	// Exchange is that of [Network], also of tensors of the host.
	Exchange(to int, send []Tensor, from int, receive []Tensor) (Transfer, error)
}

// Holders are processes each of which holds its [Part] of some tensors, one of which this is.
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

// Part is where the part of member rank of size begins and ends in a tensor of n elements: parts
// follow each other, and the first ones are an element longer where the members do not divide n.
func Part(rank, size, n int) (at, end int) {
	return n/size*rank + min(rank, n%size), n/size*(rank+1) + min(rank+1, n%size)
}
