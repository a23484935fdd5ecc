//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// attention is one call of an attention kernel: the problem as kernels are told it, and what the
// call borrows. Tensors that are to be computed with in another type are converted on their way in
// and out.
type attention struct {
	*kernels.Attention
	device  *Device
	name    string         // of the call, for messages
	dtype   kernels.DType  // of the tensors that kernels see
	element element        // which kernels are chosen
	q, k, v kernels.Tensor // as kernels see them
	args    *arguments     // alone in its memory, so that C may be given it; describe makes them

	inputs  []pair // that wait to be converted into memory of another type
	results []pair // that wait in memory of another type

	selection
	compiled
	loans
}

// selection is what kernels are chosen by beside the problem.
type selection struct {
	ahead        bool           // it is a forward kernel that is chosen
	unpiped      bool           // kernels with tensor maps do not compute this call's scores
	biasGradient kernels.Tensor // that is asked for, if any
}

// compiled is what a call has beside args where kernels are compiled for its problem.
type compiled struct {
	user          bool      // they are: for its score or mask, or because it is placed
	placed        bool      // they know where its parts lie in a larger problem
	bands         bool      // they compute the mask's bands
	argumentBytes uintptr   // of args and what lies behind them, whether or not kernels are compiled
	tables, sums  []address // behind args: what a user's score and mask look up, and the sums of its gradients
	axes          []address // behind args: the sizes and strides of tables
	tail          *userTail // behind args: whether the order of these sums must not count; what the mask shows
	lists         string    // the module that finds what the mask shows
}

// loans are what a call borrows from the device.
type loans struct {
	scratch []*driver.Block
	counts  *driver.Block   // the counters, if they are the device's
	ended   bool            // the kernel that leaves the counters zero is queued
	pinned  []*driver.Owner // constants, alive until the work is queued
}

// largestHead is the largest head of kernels for listed keys and second derivatives.
const largestHead = 256

// spare makes room, where a recording is made of a call that has nothing to do, for the kernels of
// calls that have: those of one sequence that has all rows.
func (c *attention) spare(call func(d *Device, a *kernels.Attention) error) error {
	d := c.device
	if d.part == nil {
		return nil
	}
	full := *c.Attention
	if full.QLens != nil {
		full.QLens, full.KVLens = wholeLens(full.QLens, full.Q.Shape[2]), wholeLens(full.KVLens, full.K.Shape[2])
	}
	if full.KVLengths != nil {
		full.KVLengths = slices.Repeat([]int{full.K.Shape[2]}, len(full.KVLengths))
	}
	if isEmpty(&full) {
		return nil // whatever the lengths
	}
	n, err := d.CountKernels(func(q driver.Queue) error { return call(&Device{d.hardware, q}, &full) })
	if err != nil {
		return err
	}
	return d.queue().Spare(n)
}

// wholeLens are cumulative lengths of as many sequences, of which the first has all rows.
func wholeLens(like []int, rows int) []int {
	lens := slices.Repeat([]int{rows}, len(like))
	lens[0] = 0
	return lens
}

// isEmpty reports whether no query or no key is there.
func isEmpty(a *kernels.Attention) bool {
	return min(a.Q.Shape[0], a.Q.Shape[1], a.Q.Shape[2], a.K.Shape[2]) == 0 || len(a.QLens) == 1
}

// newAttention begins a call, of which the kernel's own check found err. The caller releases it.
func (d *Device) newAttention(name string, a *kernels.Attention, err error) (*attention, error) {
	return d.newAttentionOf(name, a, kernels.MaxHeadDim, err)
}

// newAttentionOf is newAttention where kernels take only smaller heads.
func (d *Device) newAttentionOf(name string, a *kernels.Attention, largest int, err error) (*attention, error) {
	if err != nil {
		return nil, d.callError(name, err)
	}
	c := &attention{Attention: a, device: d, name: name}
	return c, c.check(largest)
}

// describe fills in what all kernels are told.
func (c *attention) describe() (err error) {
	a := c.Attention
	c.args = c.newArguments()
	const usual = 8 // as many blocks as most calls borrow
	c.scratch = make([]*driver.Block, 0, usual)
	if c.dtype != a.Q.DType {
		c.inputs, c.results = make([]pair, 0, len(copyList{})), make([]pair, 0, len(copyList{}))
	}
	for _, in := range []struct {
		seen  *kernels.Tensor
		given kernels.Tensor
		rows  *rows[readable]
	}{{&c.q, a.Q, &c.args.q}, {&c.k, a.K, &c.args.k}, {&c.v, a.V, &c.args.v}} {
		if *in.seen, err = c.input(in.given); err != nil {
			return err
		}
		*in.rows = rowsRead(*in.seen)
	}
	g := c.args
	g.sequences, g.heads, g.keyHeads = int32(a.Q.Shape[0]), int32(a.Q.Shape[1]), int32(a.K.Shape[1])
	g.sq, g.sk, g.d, g.dv = int32(a.Q.Shape[2]), int32(a.K.Shape[2]), int32(a.Q.Shape[3]), int32(a.V.Shape[3])
	if err := c.describeLengths(); err != nil {
		return err
	}
	if a.SharesKeys() {
		g.k.batch, g.v.batch = 0, 0
	}
	return c.describeOptions()
}

// describeLengths tells kernels how long sequences are.
func (c *attention) describeLengths() (err error) {
	a, g := c.Attention, c.args
	g.longestQ, g.longestK = g.sq, g.sk
	if a.QLens != nil {
		g.sequences = int32(len(a.QLens) - 1)
		if g.qLens, g.longestQ, err = c.lengths(a.QLens); err != nil {
			return err
		}
		if g.kvLens, g.longestK, err = c.lengths(a.KVLens); err != nil {
			return err
		}
	}
	if a.KVLengths != nil {
		lengths := make([]int32, len(a.KVLengths))
		g.longestK = 0
		for b, n := range a.KVLengths {
			lengths[b] = int32(n)
			g.longestK = max(g.longestK, lengths[b])
		}
		g.keyLengths, err = pin(c, lengths)
	}
	return err
}

// describeOptions tells kernels of what changes scores and probabilities.
func (c *attention) describeOptions() (err error) {
	a, g := c.Attention, c.args
	g.scale, g.softCap = float32(a.EffectiveScale()), float32(a.SoftCap)
	if g.softCap > 0 {
		g.scaleInCap = g.scale / g.softCap
	}
	g.causal, g.left, g.right = int32(a.Causal), -1, -1
	if a.Window != nil {
		const farthest = 1 << 28 // than any sequence is long, and can be added to without overflow
		g.left, g.right = int32(min(a.Window.Left, math.MaxInt32)), int32(min(a.Window.Right, math.MaxInt32))
		g.shift = int32(max(-farthest, min(a.Window.Shift, farthest)))
	}
	c.foldBands()
	c.visitLastFirst()
	if p := a.Dropout.P; p > 0 {
		key := kernels.PhiloxKey(a.Dropout.Seed)
		g.dropThreshold, g.dropKey0, g.dropKey1, g.dropStep = a.Dropout.Threshold(), key[0], key[1], c.device.queue().Step(a.Dropout.Step)
		g.keepScale = float32(a.Dropout.Scale())
	} else {
		g.keepScale = 1
	}
	if a.Deterministic {
		g.deterministic = 1
	}
	if c.placed {
		if c.tail.places, err = c.places(); err != nil {
			return err
		}
	}
	if len(a.ALiBi) > 0 {
		slopes := make([]float32, len(a.ALiBi))
		for h, slope := range a.ALiBi {
			slopes[h] = float32(slope)
		}
		if g.slopes, err = pin(c, slopes); err != nil {
			return err
		}
	}
	if a.Bias.IsSet() {
		g.bias, g.biasElement = read(a.Bias), elementOf(a.Bias.DType)
		g.biasSequence, g.biasHead, g.biasRow, g.biasColumn = broadcastStrides(a.Bias)
	}
	g.sinks, err = c.sinks()
	return err
}

// modifies reports whether scores need more than a scale and a mask, which only some variants know.
func (c *attention) modifies() bool { return c.changes() || c.Dropout.P > 0 }

// changes reports whether something other than dropout does so. A negative scale does:
// the variants that do not know it look for the greatest score before they scale.
func (c *attention) changes() bool {
	return c.changesByUser() || c.EffectiveScale() < 0 || c.SoftCap > 0 || c.ALiBi != nil || c.Bias.IsSet()
}

// input is a tensor as kernels see it: itself, or memory into which convert copies it in the type
// that they compute in.
func (c *attention) input(t kernels.Tensor) (kernels.Tensor, error) {
	if t.DType == c.dtype {
		return t, nil
	}
	converted, err := c.rowsLike(t)
	if err != nil {
		return converted, err
	}
	c.inputs = append(c.inputs, pair{converted, t})
	return converted, nil
}

// output is where kernels write a result: the tensor itself, or memory from which deliver converts
// it.
func (c *attention) output(t kernels.Tensor) (kernels.Tensor, error) {
	if t.DType == c.dtype {
		return t, nil
	}
	memory, err := c.rowsLike(t)
	c.results = append(c.results, pair{t, memory})
	return memory, err
}

// convert copies the inputs that wait.
func (c *attention) convert() error { return c.device.copies(c.inputs) }

// deliver copies the results that wait.
func (c *attention) deliver() error { return c.device.copies(c.results) }

// rowsLike borrows a tensor of another's shape in the type that kernels see. Its rows begin at
// multiples of 16 bytes.
func (c *attention) rowsLike(t kernels.Tensor) (kernels.Tensor, error) {
	const multiple = 8 // of 16-bit elements
	lent, err := c.borrow(c.dtype, t.Shape[0], t.Shape[1], t.Shape[2], (t.Shape[3]+multiple-1)/multiple*multiple)
	lent.Shape[3] = t.Shape[3]
	return lent, err
}

// borrow gives a row-major tensor that lasts for the call.
func (c *attention) borrow(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	at, err := c.borrowBytes(t.Elements() * dtype.Size())
	t.Data = at.Pointer()
	return t, err
}

func (c *attention) borrowBytes(bytes int) (address, error) {
	b, err := c.device.scratch(bytes)
	if err != nil {
		return 0, c.device.callError(c.name, fmt.Errorf("scratch memory: %w", err))
	}
	c.scratch = append(c.scratch, b)
	return b.At, nil
}

// count gives the kernels their counters: zeros that last for the call.
func (c *attention) count(bytes int) (err error) {
	if bytes > driver.CounterBytes {
		c.args.counters, err = c.borrowZeros(bytes)
		return err
	}
	if c.counts, err = c.device.BorrowCounters(c.device.queue()); err != nil {
		return c.device.callError(c.name, fmt.Errorf("counters: %w", err))
	}
	c.args.counters = c.counts.At
	return nil
}

// release gives back what the call borrowed. Its work is queued by now, and what is queued later
// comes after it.
func (c *attention) release() {
	for _, b := range c.scratch {
		b.Free()
	}
	c.scratch = nil
	switch {
	case c.counts == nil:
	case c.ended:
		c.device.queue().Counters().Keep(c.counts)
	default:
		c.counts.Free()
	}
	c.counts = nil
	runtime.KeepAlive(c.pinned)
}

// lengths gives the cumulative lengths of packed sequences to the device.
func (c *attention) lengths(cumulative []int) (at readable, longest int32, err error) {
	list := make([]int32, len(cumulative))
	for n, end := range cumulative {
		list[n] = int32(end)
		if n > 0 {
			longest = max(longest, list[n]-list[n-1])
		}
	}
	at, err = pin(c, list)
	return at, longest, err
}

// pin gives a vector to the device and keeps it alive for the call.
func pin[T int32 | float32](c *attention, list []T) (readable, error) {
	o, err := constant(c.device, list)
	if err != nil {
		return 0, c.device.callError(c.name, err)
	}
	c.pinned = append(c.pinned, o)
	return o.At.Readable(), nil
}

// sinks gives the sinks as neighbouring float32 values.
func (c *attention) sinks() (readable, error) {
	s := c.Sinks
	if !s.IsSet() || s.Elements() == 0 {
		return 0, nil
	}
	if s.DType == kernels.F32 && s.IsRowMajor() {
		return read(s), nil
	}
	dense, err := c.borrow(kernels.F32, s.Shape...)
	if err != nil {
		return 0, err
	}
	return read(dense), c.device.copies([]pair{{dense, s}})
}

// choose finds the variant for the problem: of those made for this device, and whose blocks its
// shared memory holds, the one for the smallest heads, and without tensor maps where those cannot
// describe the tensors.
func (c *attention) choose(lists [][]variant, tensors ...kernels.Tensor) (variant, error) {
	maps := c.device.Major == 9 && c.device.Minor == 0 && !c.device.withoutMaps && !c.unpiped && describable(tensors)
	d, dv := int(c.args.d), int(c.args.dv)
	for _, list := range lists {
		var best *variant
		for i := range list {
			v := &list[i]
			fits := v.element == c.element && v.d >= d && v.dv >= dv && v.sharedBytes+ofDriver <= c.device.SharedMemory && c.suits(v)
			if !fits || v.boxCols > 0 && !maps {
				continue
			}
			if best == nil || v.d+v.dv < best.d+best.dv || v.d+v.dv == best.d+best.dv && v.options.count() < best.options.count() {
				best = v
			}
		}
		if best != nil {
			return *best, nil
		}
	}
	return variant{}, fmt.Errorf("%s: %s: there is no kernel for %v with heads of %d and %d", c.device.Name(), c.name, c.dtype, c.args.d, c.args.dv)
}

// suits reports whether a variant knows what changes the problem's scores, or has the tiles for a
// user's.
func (c *attention) suits(v *variant) bool {
	switch {
	case v.mod:
		return true
	case v.drops:
		return !c.changes() && !c.user && c.Dropout.P > 0
	case v.unbiased:
		return !c.user && !c.Bias.IsSet() && c.Dropout.P == 0 && c.changes()
	case v.bias:
		return !c.user && c.addsBiasAlone()
	case v.slopes:
		return !c.user && !c.Bias.IsSet() && c.Dropout.P == 0 && c.SoftCap == 0 && c.ALiBi != nil
	case c.user:
		return c.fitsPlain(v)
	}
	return !c.modifies()
}

// describable reports whether tensor maps can describe the tensors: none is empty, and rows begin
// at multiples of 16 bytes.
func describable(tensors []kernels.Tensor) bool {
	for _, t := range tensors {
		if t.Elements() == 0 || read(t)%16 != 0 {
			return false
		}
		for axis, stride := range t.Strides[:3] {
			if bytes := stride * t.DType.Size(); t.Shape[axis] > 1 && (bytes%16 != 0 || bytes == 0 || bytes >= 1<<40) {
				return false
			}
		}
	}
	return true
}

// launch queues the variant with maps of the given tensors, each with the rows of its boxes, and of
// the bias if it takes one.
func (c *attention) launch(v variant, grid [3]int, maps ...mappedTensor) error {
	if v.boxBias > 0 {
		maps = append(maps, c.biasMap(v))
	}
	if v.bias && !c.ahead {
		maps = append(maps, c.dBiasMap(v))
	}
	list := make([]driver.EncodedMap, len(maps))
	for i, m := range maps {
		shape := [4]int(m.tensor.Shape)
		r := rowsRead(m.tensor)
		for axis, stride := range []*int64{&r.batch, &r.head, &r.row} {
			if shape[axis] == 1 {
				*stride = 8 // a step that nobody takes must be a multiple of 16 bytes all the same
			}
		}
		var err error
		if list[i], err = c.device.Encode(newTensorMap(r, shape, 2*v.boxCols, m.boxRows, elementOf(m.tensor.DType))); err != nil {
			return c.device.callError(v.name, err)
		}
	}
	shared := v.sharedBytes
	if v.keeps {
		shared = max(shared, c.device.SharedMemory-ofDriver)
	}
	s := shapeOf(v.name, v.name, grid, v.threads, shared)
	if c.Dropout.P > 0 {
		s.Step = &driver.StepField{Offset: unsafe.Offsetof(c.args.dropStep), Bytes: c.argumentBytes}
	}
	return c.device.launch(s, list, unsafe.Pointer(c.args))
}

type mappedTensor struct {
	tensor  kernels.Tensor
	boxRows int
}

// biasMap is what the map of the bias describes: the bias, or q where no map can describe it. A map
// cannot repeat a row: where all queries have one, it is all of a box.
func (c *attention) biasMap(v variant) mappedTensor {
	switch {
	case !c.mapsBias():
		return mappedTensor{c.q, v.boxQ}
	case c.Bias.Shape[2] == 1:
		c.args.biasMapped = 1
		return mappedTensor{c.Bias, 1}
	}
	c.args.biasMapped = 1
	return mappedTensor{c.Bias, v.boxBias}
}

// mapsBias reports whether a map can describe the bias.
func (c *attention) mapsBias() bool {
	return c.Bias.IsSet() && (c.Bias.Shape[3] > 1 || c.args.sk == 1) && describable([]kernels.Tensor{c.Bias})
}

// dBiasMap is what the map of the bias's gradient describes, or q where nobody asked for it.
func (c *attention) dBiasMap(v variant) mappedTensor {
	if c.args.dBias == 0 {
		return mappedTensor{c.q, v.boxQ}
	}
	return mappedTensor{c.biasGradient, v.boxBias}
}

// addsBiasAlone reports whether maps can describe a bias, which is all that changes scores, and its
// gradient. The backward kernel takes both in the type that it computes in, and the gradient where
// each score has an element of its own.
func (c *attention) addsBiasAlone() bool {
	if !c.mapsBias() || c.SoftCap > 0 || c.ALiBi != nil || c.Dropout.P > 0 {
		return false
	}
	gradient := c.args.dBias == 0 || c.args.dBiasSums == 0 && describable([]kernels.Tensor{c.biasGradient})
	return c.ahead || c.Bias.DType == c.dtype && gradient
}

// rowsRead is a tensor of (batch, heads, length, size) as kernels are told it that read it, and
// rowsWritten as those are that write it.
func rowsRead(t kernels.Tensor) rows[readable]    { return rowsAt(t, read(t)) }
func rowsWritten(t kernels.Tensor) rows[writable] { return rowsAt(t, written(t)) }

func rowsAt[A readable | writable](t kernels.Tensor, at A) rows[A] {
	return rows[A]{at, int64(t.Strides[0]), int64(t.Strides[1]), int64(t.Strides[2])}
}

// newTensorMap describes a tensor of (batch, heads, length, size) in boxes of so many rows of
// rowBytes.
func newTensorMap(t rows[readable], shape [4]int, rowBytes, boxRows int, e element) driver.TensorMap {
	kind := mapTypes[e]
	return driver.TensorMap{
		Data: address(t.data), Type: kind.MapType, Rows: boxRows, Columns: rowBytes / kind.bytes, Swizzle: rowBytes,
		Dims:    [4]int{shape[3], shape[2], shape[1], shape[0]},
		Strides: [3]int{int(t.row) * kind.bytes, int(t.head) * kind.bytes, int(t.batch) * kind.bytes},
	}
}

// mapTypes are the types of elements as tensor maps know them, and their bytes.
var mapTypes = [...]struct {
	driver.MapType
	bytes int
}{
	elementF32: {driver.MapFloat32, 4}, elementBF16: {driver.MapBFloat16, 2}, elementF16: {driver.MapFloat16, 2},
	elementFloat8: {driver.MapBytes, 1},
}

// broadcastStrides returns a bias's strides, 0 along the axes that it broadcasts.
func broadcastStrides(t kernels.Tensor) (sequence, head, row int64, column int32) {
	var strides [3]int64
	for axis := range strides {
		if t.Shape[axis] > 1 {
			strides[axis] = int64(t.Strides[axis])
		}
	}
	return strides[0], strides[1], strides[2], int32(max(0, min(1, t.Shape[3]-1)))
}

func elementOf(d kernels.DType) element {
	switch d {
	case kernels.BF16:
		return elementBF16
	case kernels.F16:
		return elementF16
	}
	return elementF32
}
