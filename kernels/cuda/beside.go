//go:build gpu

package cuda

// This file is when transfers over ranks that were asked for later run: beside kernels that leave room for them.
//
// NCCL's kernels take multiprocessors for themselves. Kernels whose blocks hold one each and have a fixed share of the work, as products
// do, would wait for the blocks that find none. Those of attention draw their tiles from a counter, so that blocks that come late find
// less to do. What is to run beside the backward pass begins before δ is computed, by many short blocks, so that it has its
// multiprocessors when the long ones come.

// transfers are those of a network that the device is to find a time for.
type transfers interface {
	fork() error // begins those that wait, beside what the device does from now on
	join() error // makes what the device does from now on come after them
	forget()     // drops them
}

// forkTransfers begins transfers that wait, before kernels that leave room for them.
func (d *Device) forkTransfers() error {
	if t := d.waiting.Load(); t != nil && !d.isVarying() {
		return (*t).fork()
	}
	return nil
}

// joinTransfers ends what forkTransfers began, before kernels that leave no room.
func (d *Device) joinTransfers() error {
	if t := d.waiting.Load(); t != nil && !d.isVarying() {
		return (*t).join()
	}
	return nil
}

// forgetTransfers drops transfers of a recording that has failed.
func (d *Device) forgetTransfers() {
	if t := d.waiting.Swap(nil); t != nil {
		(*t).forget()
	}
}
