//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

var _ kernels.ListedKernels = (*Device)(nil)

// listedArguments is ListedArguments in src/listedkeys.cuh.
type listedArguments struct {
	q, k, v                      rows[readable]
	o                            rows[writable] // backward only reads it
	dQ                           rows[writable]
	lse                          writable // backward only reads it
	delta                        readable
	sums, bounds                 address
	lists                        indexList
	fault                        fault
	listBatch, listHead, listRow int64
	batch, heads, keyHeads       int32
	queries, keys, n             int32
	d, dv                        int32
	keyBatches                   int32
	scale                        float32
	needed                       address
	blocks, zero                 int32
}

// listedSums is ListedSums in src/listedkeys_backward.cu.
type listedSums struct {
	dK, dV                rows[writable]
	sums, bounds          address
	count, rows           int64
	keyHeads, keys, d, dv int32
	scale                 float32
	zero                  int32
	needed                address
}

// listedClear is ListedClear in src/listedkeys_backward.cu.
type listedClear struct {
	to     address
	count  int64
	needed address
}

// listedBounds is ListedBounds in src/listedkeys_backward.cu.
type listedBounds struct {
	q, v, dO                           rows[readable]
	delta                              readable
	bounds                             address
	batch, heads, keyBatches, keyHeads int32
	queries, keys, d, dv               int32
	needed                             address
}

// ListedForward computes O and, where out has room for it, the logsumexp. An index that is no row
// of K is taken for no key and reported by the next call that waits for the device.
func (d *Device) ListedForward(a *kernels.ListedAttention, out kernels.AttentionOutputs) error {
	const kernel = "listed attention forward"
	defer runtime.KeepAlive(a)
	defer runtime.KeepAlive(out)
	g, err := d.describeListed(kernel, faultListedForward, a, a.CheckForward(out))
	if err != nil {
		return err
	}
	v, err := d.chooseListed(kernel, listedForwardVariants(), g, a.Q.DType, false)
	if err != nil {
		return err
	}
	if g.blocks = int32(v.grid(g)); g.blocks == 0 {
		return d.queue().Spare(1)
	}
	cost := &forwardCost
	ofRows, hasRows := d.listedRowsVariant(a, out.O)
	if hasRows {
		cost = &rowsCost
	}
	dense, err := d.densely(a, g, cost, a.Q, a.K, a.V)
	if err != nil {
		return d.failed(kernel, err)
	}
	if hasRows && dense == nil {
		return d.failed(kernel, d.forwardOfRows(ofRows, a, g, out))
	}
	if dense != nil {
		defer dense.memory.Free()
		if err := dense.forward(out); err != nil {
			return err
		}
		g.needed = dense.gather
	}
	g.o, g.lse = rowsWritten(out.O), written(out.LSE)
	return d.launch(shapeOf(v.module, "listed_forward", d.listedGrid(g, int(g.blocks)), v.threads(), v.sharedBytes(false)), nil, unsafe.Pointer(g))
}

// ListedBackward computes the gradients of q, k and v. Those of k and v are sums of float32 in an
// order that changes from call to call. If the problem is deterministic, they are sums of integers.
func (d *Device) ListedBackward(a *kernels.ListedAttention, gradients kernels.AttentionGradients) error {
	const kernel = "listed attention backward"
	defer runtime.KeepAlive(a)
	defer runtime.KeepAlive(gradients)
	g, err := d.describeListed(kernel, faultListedBackward, a, a.CheckBackward(gradients))
	if err != nil {
		return err
	}
	v, err := d.chooseListed(kernel, listedBackwardVariants(d.hasMaps()), g, a.Q.DType, true)
	if err != nil {
		return err
	}
	dense, err := d.densely(a, g, &backwardCost, a.Q, a.K, a.V, gradients.DO, gradients.Delta)
	if err != nil {
		return d.failed(kernel, err)
	}
	if dense != nil {
		defer dense.memory.Free()
		if err := dense.backward(gradients); err != nil {
			return err
		}
		g.needed = dense.gather
	}
	return d.gatherBackward(kernel, v, g, a.Deterministic, gradients)
}

// gatherBackward computes the gradients by gathering keys.
func (d *Device) gatherBackward(kernel string, v *listedVariant, g *listedArguments, deterministic bool, gradients kernels.AttentionGradients) error {
	g.o, g.dQ = rowsWritten(gradients.DO), rowsWritten(gradients.DQ)
	g.lse, g.delta = written(gradients.LSE), read(gradients.Delta)
	s := &listedSums{
		dK: rowsWritten(gradients.DK), dV: rowsWritten(gradients.DV), keyHeads: g.keyHeads, keys: g.keys, d: g.d, dv: g.dv, scale: g.scale,
		count:  int64(g.keyBatches) * int64(g.keyHeads) * int64(g.keys) * int64(2*v.d),
		rows:   int64(g.batch) * int64(g.heads/max(1, g.keyHeads)) * int64(g.queries),
		needed: g.needed,
	}
	const bounds, boundBytes, threads = 4, 16, 256
	sums := int(s.count) * kernels.F32.Size()
	if deterministic {
		sums *= 2 // of 64 bits
	}
	memory, err := d.scratch(boundBytes + sums)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer memory.Free()
	if g.needed == 0 {
		err = d.zero(memory.At, boundBytes+sums)
	} else {
		clear := &listedClear{to: memory.At, count: int64(boundBytes+sums) / 16, needed: g.needed}
		err = d.launch(shapeOf(v.module, "listed_clear", d.listedGrid(g, sums/16/threads+1), threads, 0), nil, unsafe.Pointer(clear))
	}
	if err != nil {
		return d.failed(kernel, err)
	}
	s.sums = memory.At + boundBytes
	g.sums = s.sums
	if deterministic {
		g.bounds, s.bounds = memory.At, memory.At
		b := &listedBounds{
			q: g.q, v: g.v, dO: rowsRead(gradients.DO), delta: g.delta, bounds: g.bounds, batch: g.batch, heads: g.heads,
			keyBatches: g.keyBatches, keyHeads: g.keyHeads, queries: g.queries, keys: g.keys, d: g.d, dv: g.dv, needed: g.needed,
		}
		if err := d.launch(shapeOf(v.module, "listed_bounds", [3]int{2 * d.Multiprocessors, bounds, 1}, threads, 0), nil, unsafe.Pointer(b)); err != nil {
			return err
		}
	}
	if g.blocks = int32(v.grid(g)); g.blocks > 0 {
		if err := d.launch(shapeOf(v.module, "listed_backward", d.listedGrid(g, int(g.blocks)), v.threads(), v.sharedBytes(true)), nil, unsafe.Pointer(g)); err != nil {
			return err
		}
	}
	if s.count == 0 {
		return nil
	}
	const each = 4
	blocks := (s.count/each + threads - 1) / threads
	return d.launch(shapeOf(v.module, "listed_gradients", d.listedGrid(g, int(blocks)), threads, 0), nil, unsafe.Pointer(s))
}

// listedGrid is a launch of so many blocks, or of fewer if there may be nothing to do.
func (d *Device) listedGrid(g *listedArguments, blocks int) [3]int {
	const ofMultiprocessor = 8
	if g.needed != 0 {
		blocks = min(blocks, ofMultiprocessor*d.Multiprocessors)
	}
	return [3]int{blocks, 1, 1}
}

// describeListed tells kernels of a problem, of which the kernel's own check found err.
func (d *Device) describeListed(kernel string, of faultKernel, a *kernels.ListedAttention, err error) (*listedArguments, error) {
	if err != nil {
		return nil, d.callError(kernel, err)
	}
	if what := unserved(a.Plain(), largestHead); what != "" {
		return nil, kernels.Unsupported{Device: d.Name(), What: "listed keys: " + what}
	}
	q, k, l := a.Q.Shape, a.K.Shape, a.Lists
	n := l.Shape[3]
	if n > math.MaxInt32-1<<10 {
		return nil, fmt.Errorf("%s: %s: lists have %d keys, a GPU takes up to %d", d.Name(), kernel, n, math.MaxInt32-1<<10)
	}
	g := &listedArguments{
		q: rowsRead(a.Q), k: rowsRead(a.K), v: rowsRead(a.V), lists: indexListOf(l),
		batch: int32(q[0]), heads: int32(q[1]), keyHeads: int32(k[1]), queries: int32(q[2]), keys: int32(k[2]), n: int32(n),
		d: int32(q[3]), dv: int32(a.V.Shape[3]), keyBatches: int32(k[0]), scale: float32(a.Plain().EffectiveScale()),
	}
	if k[0] == 1 {
		g.k.batch, g.v.batch = 0, 0
	}
	for axis, stride := range []*int64{&g.listBatch, &g.listHead, &g.listRow} {
		if l.Shape[axis] > 1 {
			*stride = int64(l.Strides[axis])
		}
	}
	if g.fault, err = d.fault(of); err != nil {
		return nil, d.failed(kernel, err)
	}
	return g, nil
}

// chooseListed finds the variant for the smallest heads, of those the one whose block has a group's
// heads, or as many as the device has room for.
func (d *Device) chooseListed(kernel string, list []listedVariant, g *listedArguments, dtype kernels.DType, backward bool) (*listedVariant, error) {
	const ofSystem = 1 << 10 // of the shared memory of each block
	var best *listedVariant
	group := int(g.heads) / max(1, int(g.keyHeads))
	for i := range list {
		v := &list[i]
		switch {
		case v.element != elementOf(dtype) || v.d < int(max(g.d, g.dv)) || v.sharedBytes(backward)+ofSystem > d.SharedMemory:
		case best == nil, v.d == best.d && best.rows() < group:
			best = v
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s: %s: there is no kernel for %v with heads of %d and %d", d.Name(), kernel, dtype, g.d, g.dv)
	}
	if blocks := 2 * int64(g.batch) * int64(g.heads) * int64(g.queries); blocks > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %s: %d rows of queries, a GPU takes up to %d", d.Name(), kernel, blocks/2, math.MaxInt32/2)
	}
	return best, nil
}

// grid is how many blocks there are.
func (v *listedVariant) grid(g *listedArguments) int {
	if g.keyHeads == 0 {
		return 0
	}
	return v.columnBlocks() * tilesOf(g.heads/g.keyHeads, v.rows()) * int(g.batch) * int(g.keyHeads) * int(g.queries)
}
