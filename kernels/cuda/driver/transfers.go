//go:build gpu

package driver

// This file is when transfers over ranks that were asked for later run: beside kernels that leave
// room for them.
//
// NCCL's kernels take multiprocessors for themselves. Kernels whose blocks hold one each and have a
// fixed share of the work, as products do, would wait for the blocks that find none. Those of
// attention draw their tiles from a counter, so that blocks that come late find less to do. What is
// to run beside the backward pass begins before δ is computed, by many short blocks, so that it has
// its multiprocessors when the long ones come.

// Transfers are those of a network that the device is to find a time for.
type Transfers interface {
	Fork() error // begins those that wait, beside what the device does from now on
	Join() error // makes what the device does from now on come after them
	Forget()     // drops them
}

// Later has a device find a time for transfers.
func (g *GPU) Later(t *Transfers) { g.waiting.Store(t) }

// NotLater ends that, if the transfers are still those that wait.
func (g *GPU) NotLater(t *Transfers) { g.waiting.CompareAndSwap(t, nil) }

// forgetTransfers drops transfers of a recording that has failed.
func (g *GPU) forgetTransfers() {
	if t := g.waiting.Swap(nil); t != nil {
		(*t).Forget()
	}
}
