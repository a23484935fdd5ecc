//go:build gpu

package cuda

import (
	"math"
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
)

// AttentionForward computes O and, where out has room for it, the logsumexp, which is float32
// whatever q is.
func (d *Device) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	c, err := d.newAttention("attention forward", a, a.CheckForward(out))
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a)
	defer runtime.KeepAlive(out)
	defer c.release()
	if out.O.Elements() == 0 {
		return nil
	}
	if err := c.describe(); err != nil {
		return err
	}
	if c.args.longestQ == 0 {
		if err := c.spare(func(d *Device, a *kernels.Attention) error { return d.AttentionForward(a, out) }); err != nil {
			return err
		}
		return c.clearBehind(out)
	}
	if err := d.queue().Fork(); err != nil {
		return err
	}
	if err := c.convert(); err != nil {
		return err
	}
	o, err := c.output(out.O)
	if err != nil {
		return err
	}
	c.args.o, c.args.lse = rowsWritten(o), written(out.LSE)
	if v, ok := c.decoder(o); ok {
		err = c.decode(v, 0, c.early(o, out.LSE))
	} else {
		err = c.forward(o)
	}
	if err != nil {
		return err
	}
	c.ended = true
	if err := c.confineOutputs(); err != nil {
		return err
	}
	if err := c.deliver(); err != nil {
		return err
	}
	if err := c.clearBehind(out); err != nil {
		return err
	}
	return d.queue().Join()
}

// forward chooses a kernel for the problem and queues it.
func (c *attention) forward(o kernels.Tensor) error {
	c.ahead = true
	d := c.device
	v, err := c.chooseFor(forwardVariants(), c.q, c.k, c.v, o)
	if err != nil {
		return err
	}
	if err := c.findLists(v); err != nil {
		return err
	}
	if err := c.count(forwardCounters); err != nil {
		return err
	}
	if v.boxCols == 0 {
		return c.launch(v, forward80Grid(v, c.args, d.Multiprocessors))
	}
	if !c.user {
		v = forward90Longer(v, c.args, d.Multiprocessors)
	}
	return c.launch(v, forward90Grid(v, c.args, d.Multiprocessors), mappedTensor{c.q, v.boxQ}, mappedTensor{c.k, v.boxK}, mappedTensor{c.v, v.boxK})
}

// clearBehind writes what rows behind the last packed sequence have: O = 0 and LSE = −∞.
func (c *attention) clearBehind(out kernels.AttentionOutputs) error {
	if c.QLens == nil {
		return nil
	}
	if err := c.device.Fill(behind(out.O, c.QLens), 0); err != nil || !out.LSE.IsSet() {
		return err
	}
	return c.device.Fill(behind(out.LSE, c.QLens), math.Inf(-1))
}

// forwardCounters is the bytes of the tile scheduler's counters.
const forwardCounters = 2 * 4
