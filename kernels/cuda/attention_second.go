//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

var _ kernels.AttentionSecondKernels = (*Device)(nil)

// secondArguments is SecondArguments in src/attention_second.cu.
type secondArguments struct {
	a                                  arguments
	uq, uk, uv                         rows[readable]
	dDO                                rows[writable]
	dLSE                               readable
	dDLSE                              writable
	rows, sinkTerms                    address
	uBias, uSinks                      readable
	uBiasSequence, uBiasHead, uBiasRow int64
	uBiasColumn, zero                  int32
}

// secondSinks is SecondSinks in src/attention_second.cu.
type secondSinks struct {
	terms                      address
	dSinks                     writable
	batch, heads, length, zero int32
}

// AttentionSecond differentiates attention's gradients. The gradient of a bias whose elements
// several scores share is a sum in an order that changes from call to call.
func (d *Device) AttentionSecond(a *kernels.Attention, s kernels.AttentionSecond) error {
	c, err := d.newAttentionOf("second derivatives of attention", a, largestHead, a.CheckSecond(s))
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a)
	defer runtime.KeepAlive(s)
	defer c.release()
	switch {
	case writesScore(a):
		return kernels.Unsupported{Device: d.Name(), What: "second derivatives of attention with a score or a mask of its own"}
	case isPlaced(a):
		return kernels.Unsupported{Device: d.Name(), What: "second derivatives of attention of a part of a larger problem"}
	case a.Confine:
		return kernels.Unsupported{Device: d.Name(), What: "second derivatives of attention that confines what is not finite"}
	case a.Deterministic && s.DBias.IsSet():
		return kernels.Unsupported{Device: d.Name(), What: "second derivatives of attention by a bias in the deterministic mode"}
	}
	if err := c.describe(); err != nil {
		return err
	}
	g := &secondArguments{}
	if err := c.describeSecond(g, &s); err != nil {
		return err
	}
	gradients := kernels.AttentionGradients{DQ: s.DQ, DK: s.DK, DV: s.DV}
	shared, err := c.placeGradients(&gradients)
	if err != nil {
		return err
	}
	dDO, err := c.output(s.DDO)
	if err != nil {
		return err
	}
	if _, err := c.prepareDBias(s.DBias); err != nil {
		return err
	}
	c.args.dQ, c.args.dK, c.args.dV = rowsWritten(gradients.DQ), rowsWritten(gradients.DK), rowsWritten(gradients.DV)
	g.dDO = rowsWritten(dDO)
	if err := c.launchSecond(g, &s); err != nil {
		return err
	}
	for _, s := range shared {
		if err := c.addBatch(s.sum, *s.ofItems); err != nil {
			return err
		}
	}
	if err := c.deliver(); err != nil {
		return err
	}
	if a.QLens != nil {
		if err := d.Fill(behind(s.DDO, a.QLens), 0); err != nil {
			return err
		}
	}
	return c.clearUnused(kernels.AttentionGradients{DQ: s.DQ, DK: s.DK, DV: s.DV})
}

// describeSecond tells kernels of what they read beside the problem.
func (c *attention) describeSecond(g *secondArguments, s *kernels.AttentionSecond) error {
	dO, err := c.input(s.DO)
	if err != nil {
		return err
	}
	c.args.dO = rowsRead(dO)
	for _, in := range []struct {
		given kernels.Tensor
		rows  *rows[readable]
	}{{s.UQ, &g.uq}, {s.UK, &g.uk}, {s.UV, &g.uv}} {
		if !in.given.IsSet() {
			continue
		}
		seen, err := c.input(in.given)
		if err != nil {
			return err
		}
		*in.rows = rowsRead(seen)
	}
	if c.SharesKeys() {
		g.uk.batch, g.uv.batch = 0, 0
	}
	g.dLSE = read(s.DLSE)
	if s.UBias.IsSet() {
		g.uBias = read(s.UBias)
		g.uBiasSequence, g.uBiasHead, g.uBiasRow, g.uBiasColumn = broadcastStrides(s.UBias)
	}
	if u := s.USinks; u.IsSet() && u.Elements() > 0 {
		if u.DType != kernels.F32 || !u.IsRowMajor() {
			dense, err := c.borrow(kernels.F32, u.Shape...)
			if err == nil {
				err = c.device.copies([]pair{{dense, u}})
			}
			if err != nil {
				return err
			}
			u = dense
		}
		g.uSinks = read(u)
	}
	return c.convert()
}

// launchSecond queues the kernels.
func (c *attention) launchSecond(g *secondArguments, s *kernels.AttentionSecond) error {
	d, v, err := c.device, (*secondVariant)(nil), error(nil)
	if v, err = c.chooseSecond(s.DBias.IsSet() && c.args.dBiasColumn == 0); err != nil {
		return err
	}
	statistics := int(c.args.heads) * int(c.args.sq) * c.Q.Shape[0]
	if g.rows, err = c.borrowBytes(4 * statistics * kernels.F32.Size()); err != nil {
		return err
	}
	sinks := s.DSinks.IsSet() && s.DSinks.Elements() > 0
	if sinks {
		if g.sinkTerms, err = c.borrowZeros(statistics * kernels.F32.Size()); err != nil {
			return err
		}
	}
	if s.DDLSE.IsSet() {
		if g.dDLSE = written(s.DDLSE); c.QLens != nil { // rows that no sequence has
			if err := d.Fill(s.DDLSE, 0); err != nil {
				return err
			}
		}
	}
	g.a = *c.args
	launch := func(entry string, tiles, heads int32, keys bool) error {
		blocks := int64(tilesOf(tiles, v.rows())) * int64(heads) * int64(c.args.sequences)
		if blocks > math.MaxInt32 {
			return fmt.Errorf("%s: %s: %d blocks, a GPU takes up to %d", d.Name(), c.name, blocks, math.MaxInt32)
		}
		if blocks == 0 {
			return d.queue().Spare(1)
		}
		l := shapeOf(v.name, entry, [3]int{int(blocks), 1, 1}, v.threads(), v.sharedBytes(keys))
		if c.Dropout.P > 0 {
			l.Step = &driver.StepField{Offset: unsafe.Offsetof(g.a.dropStep), Bytes: unsafe.Sizeof(*g)}
		}
		return d.launch(l, nil, unsafe.Pointer(g))
	}
	if err := launch("second_queries", c.args.longestQ, c.args.heads, false); err != nil {
		return err
	}
	if err := launch("second_keys", c.args.longestK, c.args.keyHeads, true); err != nil {
		return err
	}
	if !sinks {
		return nil
	}
	sums := s.DSinks
	if sums.DType != kernels.F32 {
		if sums, err = c.borrow(kernels.F32, sums.Shape...); err != nil {
			return err
		}
		c.results = append(c.results, pair{s.DSinks, sums})
	}
	of := &secondSinks{terms: g.sinkTerms, dSinks: written(sums), batch: int32(c.Q.Shape[0]), heads: c.args.heads, length: c.args.sq}
	return d.launch(shapeOf(v.name, "second_sinks", [3]int{int(of.heads), 1, 1}, 1024, 0), nil, unsafe.Pointer(of))
}

// chooseSecond finds the variant for the smallest heads that knows what changes scores. Operands of
// TF32 are computed with as float32. Where the gradient of a bias is summed over keys, which nearly
// cancels, what rows need is not taken from rounded operands.
func (c *attention) chooseSecond(cancels bool) (*secondVariant, error) {
	const ofSystem = 1 << 10 // of the shared memory of each block
	e := c.element
	if e == elementTF32 {
		e = elementF32
	}
	list := secondVariants()
	for i := range list {
		v := &list[i]
		if v.element == e && (!cancels || v.sumsRows()) && (!v.groups || c.device.hasMaps()) && v.d >= int(max(c.args.d, c.args.dv)) && (v.mod || !c.modifies()) &&
			max(v.sharedBytes(false), v.sharedBytes(true))+ofSystem <= c.device.SharedMemory {
			return v, nil
		}
	}
	of := ""
	if cancels {
		of = ", by a bias that keys share"
	}
	return nil, kernels.Unsupported{Device: c.device.Name(), What: fmt.Sprintf("%s of %v with heads of %d and %d%s, in %d bytes of shared memory a block",
		c.name, c.dtype, c.args.d, c.args.dv, of, c.device.SharedMemory)}
}
