//go:build gpu

package cuda

import (
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// bytesOfLogits is how much memory the logits of a chunk may take where the weight has a gradient,
// unless not even leastChunk rows fit. Tests take less.
var bytesOfLogits = 1 << 30

const leastChunk = 128

// rowsOfChunk cuts rows of logits into chunks of about one length and up to so many bytes, which
// begin at multiples of leastChunk.
func rowsOfChunk(rows, bytesOfRow, limit int) int {
	parts := func(n, of int) int { return (n + of - 1) / of }
	most := max(1, limit/max(1, bytesOfRow)/leastChunk) * leastChunk
	chunks := max(1, parts(rows, most))
	return min(rows, parts(parts(rows, chunks), leastChunk)*leastChunk)
}

// rowsOfLogits are the rows of a chunk.
func rowsOfLogits(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) int {
	limit := bytesOfLogits
	if !out.DWeight.IsSet() {
		limit /= 8 // no chunk reads and writes the gradient of the weight, so that many cost little
	}
	return rowsOfChunk(c.Hidden.Shape[0], c.Weight.Shape[0]*c.Hidden.DType.Size(), limit)
}

// LinearCrossEntropyBorrows is the memory of a chunk's logits, of a weight in another type, and of
// its gradient's sums.
func (d *Device) LinearCrossEntropyBorrows(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) int {
	rows, size := rowsOfLogits(c, out), c.Hidden.DType.Size()
	bytes := rows * c.Weight.Shape[0] * size
	if c.Weight.DType != c.Hidden.DType {
		bytes += c.Weight.Elements() * size
	}
	if w := out.DWeight; w.IsSet() && w.DType != kernels.F32 && rows < c.Hidden.Shape[0] {
		bytes += w.Elements() * kernels.F32.Size()
	}
	return bytes
}

// linearCrossEntropy is a call of LinearCrossEntropy and the memory that it borrows.
type linearCrossEntropy struct {
	*kernels.LinearCrossEntropy
	device  *Device
	out     kernels.LinearCrossEntropyOutputs
	loss    *crossEntropy
	weight  kernels.Tensor // of hidden's dtype
	logits  kernels.Tensor // of a chunk, with rows that start at multiples of 128 bytes
	dWeight kernels.Tensor // where the chunks' gradients add up
	scratch []*driver.Block
}

// LinearCrossEntropy computes the loss of logits = hidden·weightᵀ and the gradients of both
// factors, a chunk of rows at a time: their logits are computed, become their own gradient in
// place, and are multiplied into the gradients.
func (d *Device) LinearCrossEntropy(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) error {
	const kernel = "linear cross-entropy"
	if err := d.checked(kernel, c.Check(out), c.Hidden.DType); err != nil {
		return err
	}
	l := &linearCrossEntropy{LinearCrossEntropy: c, device: d, out: out}
	err := l.run()
	for _, b := range l.scratch {
		b.Free()
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(out)
	return d.failed(kernel, err)
}

// borrow gives a row-major tensor that is the device's again when the call ends.
func (l *linearCrossEntropy) borrow(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	b, err := l.device.scratch(t.Elements() * dtype.Size())
	if err != nil {
		return t, err
	}
	l.scratch = append(l.scratch, b)
	t.Data = b.At.Pointer()
	return t, nil
}

func (l *linearCrossEntropy) run() error {
	n, vocabulary, perChunk := l.Hidden.Shape[0], l.Weight.Shape[0], rowsOfLogits(l.LinearCrossEntropy, l.out)
	if err := l.prepare(n, perChunk, vocabulary); err != nil {
		return err
	}
	for first := 0; first < n; first += perChunk {
		if err := l.chunk(first, min(n, first+perChunk)); err != nil {
			return err
		}
	}
	return l.finish(n)
}

// prepare borrows what the chunks share, and finds how much a row's loss counts.
func (l *linearCrossEntropy) prepare(n, perChunk, vocabulary int) (err error) {
	d, dtype := l.device, l.Hidden.DType
	losses, err := l.borrow(kernels.F32, scaleBytes/4+n)
	if err != nil {
		return err
	}
	if l.loss, err = d.newCrossEntropy(faultLinearCrossEntropy, dtype, &l.CrossEntropyOptions, written(losses).Address()); err != nil {
		return err
	}
	l.loss.args.dLoss, l.loss.args.loss = read(l.DLoss), written(l.out.Loss)
	targets := asRows(l.Targets)
	if err := l.loss.rows(targets, targets, l.Targets); err != nil {
		return err
	}
	l.loss.args.lines.length = int32(vocabulary)
	if err := l.loss.runSingle("scale"); err != nil {
		return err
	}
	const lineBytes = 128
	perLine := lineBytes / dtype.Size()
	if l.logits, err = l.borrow(dtype, perChunk, (vocabulary+perLine-1)/perLine*perLine); err != nil {
		return err
	}
	l.logits = l.logits.Slice(1, 0, vocabulary)
	if l.weight, err = l.weightOf(dtype); err != nil {
		return err
	}
	if l.dWeight = l.out.DWeight; l.dWeight.IsSet() && l.dWeight.DType != kernels.F32 && perChunk < n {
		l.dWeight, err = l.borrow(kernels.F32, l.dWeight.Shape...)
	}
	return err
}

// weightOf is the weight in a dtype: itself, the copy that the device keeps, or one that is
// borrowed.
func (l *linearCrossEntropy) weightOf(dtype kernels.DType) (kernels.Tensor, error) {
	if l.Weight.DType == dtype {
		return l.Weight, nil
	}
	if kept, err := l.device.roundedMatrix(dtype, l.Weight); err != nil || kept.IsSet() {
		return kept, err
	}
	borrowed, err := l.borrow(dtype, l.Weight.Shape...)
	if err != nil {
		return borrowed, err
	}
	return borrowed, l.device.copies([]pair{{borrowed, l.Weight}})
}

// chunk goes through some rows.
func (l *linearCrossEntropy) chunk(first, last int) error {
	d, hidden := l.device, l.Hidden.Slice(0, first, last)
	logits := l.logits.Slice(0, 0, last-first)
	if err := d.MatMul(&kernels.MatMul{A: hidden, B: l.weight.Permute(1, 0), Precision: l.Precision}, kernels.MatMulOutputs{C: logits}); err != nil {
		return err
	}
	if err := l.loss.rows(logits, logits, l.Targets.Slice(0, first, last)); err != nil {
		return err
	}
	losses := l.loss.args.losses
	l.loss.args.losses += address(4 * first)
	entry := "both"
	if !l.out.DHidden.IsSet() && !l.dWeight.IsSet() {
		entry = "forward"
	}
	if err := l.loss.run(entry); err != nil {
		return err
	}
	l.loss.args.losses = losses
	if l.out.DHidden.IsSet() {
		if err := d.MatMul(&kernels.MatMul{A: logits, B: l.weight, Precision: l.Precision}, kernels.MatMulOutputs{C: l.out.DHidden.Slice(0, first, last)}); err != nil {
			return err
		}
	}
	if !l.dWeight.IsSet() {
		return nil
	}
	// dWeight (+)= dLogitsᵀ·hidden, as its transpose where dWeight's columns are what is contiguous
	m, c := &kernels.MatMul{A: logits.Permute(1, 0), B: hidden, Accumulate: first > 0, Precision: l.Precision}, l.dWeight
	if l.dWeight.IsTransposed() {
		m.A, m.B, c = hidden.Permute(1, 0), logits, l.dWeight.Permute(1, 0)
	}
	return d.MatMul(m, kernels.MatMulOutputs{C: c})
}

// finish adds up the losses, and rounds the gradient of the weight if its sums are wider.
func (l *linearCrossEntropy) finish(n int) error {
	if l.out.Loss.IsSet() {
		l.loss.args.lines.count = int64(n)
		if err := l.loss.runSingle("loss"); err != nil {
			return err
		}
	}
	switch {
	case !l.dWeight.IsSet():
		return nil
	case n == 0:
		return l.device.Fill(l.out.DWeight, 0)
	case read(l.dWeight) != read(l.out.DWeight):
		return l.device.copies([]pair{{l.out.DWeight, l.dWeight}})
	}
	return nil
}
