//go:build gpu

package cuda

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// AttentionBackward computes the gradients from the saved logsumexp and δ, which are float32
// whatever q is.
func (d *Device) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	c, err := d.newAttention("attention backward", a, a.CheckBackward(g))
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a)
	defer runtime.KeepAlive(g)
	defer c.release()
	if err := c.describe(); err != nil {
		return err
	}
	if err := d.queue().Fork(); err != nil {
		return err
	}
	if g.DSinks.IsSet() && g.DSinks.Elements() > 0 {
		if err := c.dSinks(g.LSE, g.Delta, g.DSinks); err != nil {
			return err
		}
	}
	if g.DQ.IsSet() || g.DBias.IsSet() || slices.ContainsFunc(g.DTables, kernels.Tensor.IsSet) {
		if err := c.backward(g); err != nil {
			return err
		}
	}
	if err := c.deliver(); err != nil {
		return err
	}
	if err := c.clearUnused(g); err != nil {
		return err
	}
	return d.queue().Join()
}

// clearUnused writes zeros where no sequence has its gradients: behind the last packed one, and
// behind a batch item's keys. Keys that are shared have been summed, zeros included.
func (c *attention) clearUnused(g kernels.AttentionGradients) error {
	a, fill := c.Attention, c.device.Fill
	if !g.DQ.IsSet() {
		return nil
	}
	if a.QLens != nil {
		for _, t := range []kernels.Tensor{behind(g.DQ, a.QLens), behind(g.DK, a.KVLens), behind(g.DV, a.KVLens)} {
			if err := fill(t, 0); err != nil {
				return err
			}
		}
	}
	if a.SharesKeys() {
		return nil
	}
	for b, n := range a.KVLengths {
		for _, t := range []kernels.Tensor{g.DK, g.DV} {
			if err := fill(t.Slice(0, b, b+1).Slice(2, n, t.Shape[2]), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// behind returns the rows of a packed tensor that no sequence has.
func behind(t kernels.Tensor, lens []int) kernels.Tensor {
	return t.Slice(2, lens[len(lens)-1], t.Shape[2])
}

// backward computes the gradients of q, k, v and the bias.
func (c *attention) backward(g kernels.AttentionGradients) error {
	asked := g
	dO, err := c.input(g.DO)
	if err != nil {
		return err
	}
	if err := c.convert(); err != nil {
		return err
	}
	shared, err := c.placeGradients(&g)
	if err != nil {
		return err
	}
	c.args.dO, c.args.dQ, c.args.dK, c.args.dV = rowsRead(dO), rowsWritten(g.DQ), rowsWritten(g.DK), rowsWritten(g.DV)
	c.args.lse, c.args.delta = writable(read(g.LSE)), read(g.Delta)
	sharedBias, err := c.prepareDBias(g.DBias)
	if err != nil {
		return err
	}
	exact, err := c.prepareTables(g.DTables)
	if err != nil {
		return err
	}
	if min(c.args.sequences, c.args.heads, c.args.longestQ, c.args.longestK) == 0 {
		for _, s := range shared {
			*s.ofItems = s.sum
		}
		if err := c.spare(func(d *Device, a *kernels.Attention) error { return d.AttentionBackward(a, asked) }); err != nil {
			return err
		}
		for _, e := range exact {
			if err := c.device.zero(e.to.Address(), int(e.count)*kernels.F32.Size()); err != nil {
				return err
			}
		}
		return c.zeroRows(g.DQ, g.DK, g.DV)
	}
	v, err := c.launchBackward(dO, g)
	if err != nil {
		return err
	}
	if err := c.confineGradients(v); err != nil {
		return err
	}
	if err := c.roundTables(v, exact); err != nil {
		return err
	}
	for _, s := range shared {
		if err := c.addBatch(s.sum, *s.ofItems); err != nil {
			return err
		}
	}
	return c.dBias(sharedBias)
}

// sharedGradient is the gradient of keys or values that batch items share: the sum of those of each
// item.
type sharedGradient struct {
	ofItems *kernels.Tensor
	sum     kernels.Tensor
}

// placeGradients replaces the gradients of q, k and v by where kernels write them.
func (c *attention) placeGradients(g *kernels.AttentionGradients) (shared []sharedGradient, err error) {
	gradients := []*kernels.Tensor{&g.DQ, &g.DK, &g.DV}
	for i, like := range []kernels.Tensor{c.q, c.k, c.v} {
		asked := gradients[i].IsSet()
		if asked {
			*gradients[i], err = c.output(*gradients[i])
		}
		if err == nil && i > 0 && c.SharesKeys() {
			sum := *gradients[i]
			*gradients[i], err = c.rowsOfBatch(like)
			if asked {
				shared = append(shared, sharedGradient{gradients[i], sum})
			}
		} else if err == nil && !asked { // nobody asked, but the kernel writes it
			*gradients[i], err = c.rowsLike(like)
		}
		if err != nil {
			return nil, err
		}
	}
	return shared, nil
}

// launchBackward queues the kernel for the gradients of q, k and v, and the one that finishes dQ.
func (c *attention) launchBackward(dO kernels.Tensor, g kernels.AttentionGradients) (v variant, err error) {
	c.unpiped = c.user && !c.gainsFit()
	v, err = c.chooseFor(backwardVariants(), c.q, c.k, c.v, dO, g.DQ, g.DK, g.DV)
	if err != nil {
		return v, err
	}
	if err := c.findLists(v); err != nil {
		return v, err
	}
	scratch, borrowSums, dQ := backward80Scratch, c.borrowZeros, dQ80Launch
	if v.boxCols > 0 {
		if !c.user {
			v = backward90Shorter(v, c.args)
		}
		scratch, dQ = backward90Scratch, dQ90Launch
		if c.tail == nil || c.tail.lists == 0 {
			borrowSums = c.borrowBytes // its first tiles write the sums
		}
	}
	sums, counters := scratch(v, c.args)
	if c.args.dQSum, err = borrowSums(sums); err != nil {
		return v, err
	}
	if err := c.count(counters); err != nil {
		return v, err
	}
	if err := c.device.queue().Spare(1); err != nil { // another variant's counters may need to be written
		return v, err
	}
	if v.boxCols > 0 {
		err = c.launch(v, backward90Grid(v, c.args, c.device.Multiprocessors),
			mappedTensor{c.q, v.boxQ}, mappedTensor{c.k, v.boxK}, mappedTensor{c.v, v.boxK}, mappedTensor{dO, v.boxQ})
	} else {
		err = c.launch(v, backward80Grid(v, c.args, c.device.Multiprocessors))
	}
	if err != nil {
		return v, err
	}
	if err := c.device.launch(dQ(v, c.args), nil, unsafe.Pointer(c.args)); err != nil {
		return v, err
	}
	c.ended = true
	return v, nil
}

// rowsOfBatch borrows a tensor with the gradients of each batch item for keys that they share.
// Those that an item does not have are zero.
func (c *attention) rowsOfBatch(keys kernels.Tensor) (kernels.Tensor, error) {
	keys.Shape = slices.Clone(keys.Shape)
	keys.Shape[0] = c.Q.Shape[0]
	t, err := c.rowsLike(keys)
	if err == nil && c.KVLengths != nil {
		err = c.device.zero(written(t).Address(), t.Shape[0]*t.Strides[0]*t.DType.Size())
	}
	return t, err
}

// prepareDBias says where the gradient of the bias goes: straight to its place where each score has
// an element of its own, otherwise into float32 sums. What a mask hides stays zero. Where the order
// of such sums must not change, the backward kernel leaves them to a kernel of their own, which is
// given their place.
func (c *attention) prepareDBias(dBias kernels.Tensor) (deterministic writable, err error) {
	if !dBias.IsSet() {
		return 0, nil
	}
	c.biasGradient = dBias
	g := c.args
	alone := (dBias.Shape[0] > 1 || g.sequences == 1) && (dBias.Shape[1] > 1 || g.heads == 1) &&
		(dBias.Shape[2] > 1 || g.longestQ == 1) && (dBias.Shape[3] > 1 || g.longestK == 1)
	sums := dBias
	if !alone && dBias.DType != kernels.F32 {
		if sums, err = c.borrow(kernels.F32, dBias.Shape...); err != nil {
			return 0, err
		}
		c.results = append(c.results, pair{dBias, sums})
	}
	at := written(sums)
	g.dBiasSequence, g.dBiasHead, g.dBiasRow, g.dBiasColumn = broadcastStrides(sums)
	masked := c.Causal != 0 || c.Window != nil || c.Mask != nil || c.QLens != nil || c.KVLengths != nil || min(g.longestQ, g.longestK) == 0
	if masked || !alone {
		if err := c.device.zero(at.Address(), sums.Elements()*sums.DType.Size()); err != nil {
			return 0, err
		}
	}
	if !alone {
		g.dBiasSums = 1
		if c.Deterministic {
			return at, nil
		}
	}
	g.dBias = at
	return 0, nil
}

// dBias computes the sums of a shared bias's gradient in one order, if their place is given.
func (c *attention) dBias(at writable) error {
	if at == 0 {
		return nil
	}
	v, err := c.chooseFor(dBiasVariants())
	if err != nil {
		return err
	}
	c.args.dBias = at
	return c.launch(v, dBias80Grid(v, c.args))
}

// borrowZeros gives zeros that last for the call.
func (c *attention) borrowZeros(bytes int) (address, error) {
	if bytes == 0 {
		return 0, nil
	}
	at, err := c.borrowBytes(bytes)
	if err != nil {
		return 0, err
	}
	return at, c.device.zero(at, bytes)
}

// zeroRows writes zeros into tensors whose rows may lie apart.
func (c *attention) zeroRows(tensors ...kernels.Tensor) error {
	for _, t := range tensors {
		if t.Elements() == 0 {
			continue
		}
		kernel := driver.Kernel{Module: "copy", Entry: fillKernels[t.DType.Size()]}
		if err := c.device.launchElementwise(c.name, kernel, &elementwise{}, []output{{"gradient", t}}); err != nil {
			return err
		}
	}
	return nil
}

// dQ90Launch is the kernel that turns the sums that v left into dQ. It is in v's module.
func dQ90Launch(v variant, a *arguments) driver.Launch {
	return driver.Launch{
		Kernel:  driver.Kernel{Module: v.name, Entry: "attention_dq"},
		Grid:    [3]int{tilesOf(a.longestQ, v.tileQ) * int(a.sequences), int(a.heads), 1},
		Threads: 256,
	}
}

// dQ80Launch is the kernel that turns the sums that v left into dQ. It is in v's module. Elements
// of 16 bits pass through shared memory.
func dQ80Launch(v variant, a *arguments) driver.Launch {
	s := driver.Launch{
		Kernel:  driver.Kernel{Module: v.name, Entry: "attention_dq"},
		Grid:    [3]int{tilesOf(a.longestQ, v.tileQ) * v.partsOf(max(a.d, a.dv)) * int(a.heads) * int(a.sequences), 1, 1},
		Threads: v.threads,
	}
	if v.element == elementBF16 || v.element == elementF16 {
		s.SharedBytes = v.tileQ * rowBytes80(v.columns(), 2)
	}
	return s
}
