//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// AttentionBackward computes the gradients from the saved logsumexp and δ, which are float32 whatever q is.
func (d *Device) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	c, err := d.newAttention("attention backward", a, func(tensors *tensorChecks) { checkGradients(tensors, a, g) })
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a)
	defer runtime.KeepAlive(g)
	defer c.release()
	if err := c.describe(); err != nil {
		return err
	}
	if g.DSinks.IsSet() {
		if err := c.dSinks(g.LSE, g.Delta, g.DSinks); err != nil {
			return err
		}
	}
	if g.DQ.IsSet() || g.DBias.IsSet() {
		if err := c.backward(g); err != nil {
			return err
		}
	}
	return c.deliver()
}

// checkGradients checks what goes with a problem in the backward call.
func checkGradients(tensors *tensorChecks, a *kernels.Attention, g kernels.AttentionGradients) {
	dtype, perRow := a.Q.DType, a.Q.Shape[:3]
	tensors.check("dO", g.DO, outputShape(a), dtype, readRows)
	tensors.check("lse", g.LSE, perRow, kernels.F32, denseKind)
	tensors.check("delta", g.Delta, perRow, kernels.F32, denseKind)
	if g.DQ.IsSet() || g.DK.IsSet() || g.DV.IsSet() {
		tensors.check("dq", g.DQ, a.Q.Shape, dtype, writtenRows)
		tensors.check("dk", g.DK, a.K.Shape, dtype, writtenRows)
		tensors.check("dv", g.DV, a.V.Shape, dtype, writtenRows)
	}
	if g.DBias.IsSet() {
		tensors.check("dbias", g.DBias, a.Bias.Shape, dtype, denseKind)
	}
	if g.DSinks.IsSet() {
		tensors.check("dsinks", g.DSinks, a.Sinks.Shape, dtype, denseKind)
	}
}

// backward computes the gradients of q, k, v and the bias.
func (c *attention) backward(g kernels.AttentionGradients) error {
	dO, err := c.input(g.DO)
	if err != nil {
		return err
	}
	if err := c.convert(); err != nil {
		return err
	}
	gradients := []*kernels.Tensor{&g.DQ, &g.DK, &g.DV}
	for i, like := range []kernels.Tensor{c.q, c.k, c.v} {
		if !gradients[i].IsSet() { // nobody asked, but the kernel writes it
			*gradients[i], err = c.rowsLike(like)
		} else {
			*gradients[i], err = c.output(*gradients[i])
		}
		if err != nil {
			return err
		}
	}
	c.args.dO, c.args.dQ, c.args.dK, c.args.dV = rowsOf(dO), rowsOf(g.DQ), rowsOf(g.DK), rowsOf(g.DV)
	c.args.lse, c.args.delta = addressOf(g.LSE), addressOf(g.Delta)
	sharedBias, err := c.prepareDBias(g.DBias)
	if err != nil {
		return err
	}
	if c.args.sequences*c.args.heads*c.args.sq == 0 || c.args.sk == 0 {
		return c.zeroRows(g.DQ, g.DK, g.DV)
	}
	v, err := c.choose(backwardVariants(), c.q, c.k, c.v, dO, g.DQ, g.DK, g.DV)
	if err != nil {
		return err
	}
	scratch, borrowSums, dQ := backward80Scratch, c.borrowZeros, dQ80Launch
	if v.boxCols > 0 {
		v = backward90Shorter(v, c.args)
		scratch, borrowSums, dQ = backward90Scratch, c.borrowBytes, dQ90Launch // its first tiles write the sums
	}
	sums, counters := scratch(v, c.args)
	if c.args.dQSum, err = borrowSums(sums); err != nil {
		return err
	}
	if err := c.count(counters); err != nil {
		return err
	}
	if v.boxCols > 0 {
		err = c.launch(v, backward90Grid(v, c.args, c.device.multiprocessors),
			mappedTensor{c.q, v.boxQ}, mappedTensor{c.k, v.boxK}, mappedTensor{c.v, v.boxK}, mappedTensor{dO, v.boxQ})
	} else {
		err = c.launch(v, backward80Grid(v, c.args, c.device.multiprocessors))
	}
	if err != nil {
		return err
	}
	if err := c.device.launch(dQ(v, c.args), nil, unsafe.Pointer(c.args)); err != nil {
		return err
	}
	c.ended = true
	return c.dBias(sharedBias)
}

// prepareDBias says where the gradient of the bias goes: straight to its place where each score has an element of its
// own, otherwise into float32 sums. What a mask hides stays zero. Where the order of such sums must not change, the
// backward kernel leaves them to a kernel of their own, which is given their place.
func (c *attention) prepareDBias(dBias kernels.Tensor) (deterministic address, err error) {
	if !dBias.IsSet() {
		return 0, nil
	}
	g := c.args
	alone := (dBias.Shape[0] > 1 || g.sequences == 1) && (dBias.Shape[1] > 1 || g.heads == 1) && (dBias.Shape[2] > 1 || g.longestQ == 1)
	sums := dBias
	if !alone && dBias.DType != kernels.F32 {
		if sums, err = c.borrow(kernels.F32, dBias.Shape...); err != nil {
			return 0, err
		}
		c.results = append(c.results, pair{dBias, sums})
	}
	at := addressOf(sums)
	g.dBiasSequence, g.dBiasHead, g.dBiasRow = broadcastStrides(sums)
	if masked := c.Causal != 0 || c.Window != nil || c.QLens != nil; masked || !alone {
		if err := c.device.zero(at, sums.Elements()*sums.DType.Size()); err != nil {
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
func (c *attention) dBias(at address) error {
	if at == 0 {
		return nil
	}
	v, err := c.choose(dBiasVariants())
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
		zeros, err := c.borrow(t.DType, 1)
		if err != nil {
			return err
		}
		if err := c.device.zero(addressOf(zeros), t.DType.Size()); err != nil {
			return err
		}
		zeros.Shape, zeros.Strides = t.Shape, make([]int, len(t.Shape))
		if err := c.device.Copy(t, zeros); err != nil {
			return err
		}
	}
	return nil
}
