//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// crossEntropyArguments is CrossEntropyArguments in src/crossentropy.cu.
type crossEntropyArguments struct {
	lines          lines
	targets        indexList
	fault          fault
	logits         readable
	dLogits        writable
	lse            writable // the gradient only reads it
	losses, scale  address
	loss           writable
	dLoss, weights readable
	ignored        int64
	ignores, mean  int32
	smoothing      float32
	perRow         int32
}

// crossEntropy is a call of one of the kernels.
type crossEntropy struct {
	device *Device
	dtype  kernels.DType // of the logits
	args   crossEntropyArguments
}

// newCrossEntropy tells kernels of the options and where the scratch of a call lies: three scales,
// then a loss a row.
func (d *Device) newCrossEntropy(which faultKernel, dtype kernels.DType, o *kernels.CrossEntropyOptions, scratch address) (*crossEntropy, error) {
	c := &crossEntropy{device: d, dtype: dtype}
	g := &c.args
	g.scale, g.losses, g.smoothing = scratch, scratch+scaleBytes, float32(o.LabelSmoothing)
	if o.IgnoreIndex != nil {
		g.ignores, g.ignored = 1, int64(*o.IgnoreIndex)
	}
	switch o.Reduction {
	case kernels.MeanReduction:
		g.mean = 1
	case kernels.NoReduction:
		g.perRow = 1
	}
	g.weights = read(o.Weights)
	var err error
	g.fault, err = d.fault(which)
	return c, err
}

const scaleBytes = 16

// rows tells kernels of rows of logits and their targets.
func (c *crossEntropy) rows(logits, dLogits, targets kernels.Tensor) error {
	l, err := linesOf(logits, dLogits, asRows(targets))
	c.args.lines, c.args.targets = l, indexListOf(targets)
	c.args.logits, c.args.dLogits = read(logits), written(dLogits)
	return err
}

// run gives each row a block. Two blocks of a multiprocessor hold long rows between their loss and
// their gradient, if they can, and go through many.
func (c *crossEntropy) run(entry string) error {
	l := &c.args.lines
	if l.count == 0 {
		return nil
	}
	threads := rowThreads(int(l.length), c.dtype)
	bytes, held := int(l.length)*c.dtype.Size(), c.device.SharedMemory/2-reservedShared
	if entry == "both" && c.args.weights == 0 && l.aligned != 0 && bytes >= held/4 && bytes <= min(held, heldPieces*accessBytes*threads) {
		blocks := int(min(l.count, int64(2*c.device.Multiprocessors)))
		return c.launch("both_held"+entrySuffixes[c.dtype], blocks, threads, held)
	}
	return c.launch(entry+entrySuffixes[c.dtype], int(l.count), threads, 0)
}

const (
	heldPieces     = 16      // the most of a row that a thread may have to be held in shared memory: heldPieces in src/crossentropy.cu
	reservedShared = 2 << 10 // bytes of a multiprocessor that a block needs besides its row, where two rows are held
)

// runSingle runs a kernel of one block over the targets or the losses of all rows.
func (c *crossEntropy) runSingle(entry string) error { return c.launch(entry, 1, 1024, 0) }

func (c *crossEntropy) launch(entry string, blocks, threads, sharedBytes int) error {
	s := shapeOf("crossentropy"+entrySuffixes[c.dtype], "cross_entropy_"+entry, [3]int{blocks, 1, 1}, threads, sharedBytes)
	args := c.args // apart from Go's pointers, which C may not see
	return c.device.launch(s, nil, unsafe.Pointer(&args))
}

// CrossEntropyForward computes the loss, and the logsumexp of each row if asked.
func (d *Device) CrossEntropyForward(c *kernels.CrossEntropy, out kernels.CrossEntropyOutputs) error {
	const kernel = "cross-entropy forward"
	if err := d.checked(kernel, c.CheckForward(out), c.Logits.DType); err != nil {
		return err
	}
	scratch, err := d.scratch(scaleBytes + 4*c.Targets.Elements())
	if err != nil {
		return d.failed(kernel, err)
	}
	defer scratch.Free()
	k, err := d.newCrossEntropy(faultCrossEntropy, c.Logits.DType, &c.CrossEntropyOptions, scratch.At)
	if err != nil {
		return d.failed(kernel, err)
	}
	if err := k.rows(c.Logits, c.Logits, c.Targets); err != nil {
		return d.failed(kernel, err)
	}
	k.args.lse, k.args.loss = written(out.LSE), written(out.Loss)
	if err := k.runSingle("scale"); err != nil {
		return err
	}
	if c.Reduction == kernels.NoReduction {
		k.args.losses = k.args.loss.Address()
	}
	err = k.run("forward")
	if err == nil && c.Reduction != kernels.NoReduction {
		err = k.runSingle("loss")
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(out)
	return err
}

// CrossEntropyBackward computes the gradient of the logits from the saved logsumexp.
func (d *Device) CrossEntropyBackward(c *kernels.CrossEntropy, g kernels.CrossEntropyGradients) error {
	const kernel = "cross-entropy backward"
	if err := d.checked(kernel, c.CheckBackward(g), c.Logits.DType); err != nil {
		return err
	}
	scratch, err := d.scratch(scaleBytes)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer scratch.Free()
	k, err := d.newCrossEntropy(faultCrossEntropyBackward, c.Logits.DType, &c.CrossEntropyOptions, scratch.At)
	if err != nil {
		return d.failed(kernel, err)
	}
	if err := k.rows(c.Logits, g.DLogits, c.Targets); err != nil {
		return d.failed(kernel, err)
	}
	k.args.lse, k.args.dLoss = writable(read(g.LSE)), read(g.DLoss)
	if err := k.runSingle("scale"); err != nil {
		return err
	}
	err = k.run("backward")
	runtime.KeepAlive(c)
	runtime.KeepAlive(g)
	return err
}
