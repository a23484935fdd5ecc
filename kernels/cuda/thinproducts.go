//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// thinArguments is ThinArguments in src/thinproducts.cu.
type thinArguments struct {
	right                  readable
	rightColumn, rightRank int64
	across, down           address
	rows, columns, ranks   int32
	zero                   int32
}

// thinPart is ThinPart there.
type thinPart struct {
	data                         writable
	rankStep, columnStep         int64
	rank, ranks, column, columns int32
	element                      element
	zero                         int32
}

// thinSums is ThinSums there.
type thinSums struct {
	across, down                 address
	to                           writable
	toRow                        int64
	parts                        [mostThinParts]thinPart
	scale                        float32
	rows, columns, ranks, padded int32
	strip, blocks, count         int32
	element                      element
	zero                         int32
}

const (
	mostThinParts = 4
	mostThinRanks = 64
)

// thin is a call of the kernel: how it is compiled and shared out.
type thin struct {
	eighths, tiles int // of the ranks, and times that a strip has 128 columns
	strips, blocks int
	gated          bool // it reads Up beside X
}

// Sizes of src/thinproducts.cu.
const (
	thinSide       = 128 // rows of a unit, and columns that come at a time
	thinStages     = 4
	gatedStages    = 6
	threadsOfThin  = 288
	threadsOfSums  = 256
	thinTileBytes  = 2 * thinSide * thinSide
	thinLeftStages = 2
)

func (v thin) strip() int  { return v.tiles * thinSide }
func (v thin) padded() int { return 8 * v.eighths }

// slots is how many strips' sums of Down blocks leave at most.
func (v thin) slots() int { return v.blocks + v.strips }

// sums are the bytes of the sums that strips leave of Across, and blocks of Down.
func (v thin) sums(p *kernels.ThinProducts) (across, down int) {
	if p.Right.IsSet() {
		across = 4 * v.strips * p.X.Shape[0] * v.padded()
	}
	if p.Left.IsSet() {
		down = 4 * v.slots() * v.strip() * v.padded()
	}
	return across, down
}

// sharedBytes is Layout::bytes in the source.
func (v thin) sharedBytes() int {
	if v.gated {
		return (gatedStages+thinLeftStages/2)*thinTileBytes + 2*8*(gatedStages+thinLeftStages)
	}
	byColumns := (v.eighths + 1) / 2 * 16 * (v.strip()*2 + 16)
	byRanks := v.strip()*(v.eighths+(v.eighths+1)%2)*16 + 16
	return (thinStages+thinLeftStages/2)*thinTileBytes + max(byColumns, byRanks) + 2*8*(thinStages+thinLeftStages)
}

// thinOf chooses the strips of X for a problem: those by which the blocks end together and leave
// the fewest sums.
func (d *Device) thinOf(p *kernels.ThinProducts) (best thin) {
	rows, columns, ranks := p.X.Shape[0], p.X.Shape[1], p.Ranks()
	eighths := (ranks + 7) / 8
	eighths += eighths % 2 * (eighths / 4) // there are 1, 2, 3, 4, 6 and 8
	least := 0
	for _, tiles := range []int{4, 2} {
		v := thin{eighths: eighths, tiles: tiles, strips: tilesOf(int32(columns), tiles*thinSide), gated: p.Up.IsSet()}
		if tiles == 4 && eighths > 3 {
			continue // there are no registers for the sums
		}
		units := v.strips * tilesOf(int32(rows), thinSide)
		v.blocks = min(units, d.Multiprocessors)
		across, down := v.sums(p)
		reads := tilesOf(int32(units), v.blocks) * tiles * thinTileBytes * v.blocks
		if v.gated {
			reads *= 2
		}
		takes := reads + 2*(across+down)
		if best.blocks == 0 || takes < least {
			best, least = v, takes
		}
	}
	return best
}

// TakesThinProducts reports whether the problem is one of 16 bits and of up to 64 ranks, a multiple
// of 8, whose matrices can be moved 16 bytes at a time, and large enough. Sums of many ranks alone
// take longer to pass than a product that needs none.
func (d *Device) TakesThinProducts(p *kernels.ThinProducts, parts int) bool {
	const (
		least      = 1 << 14 // elements
		mostAcross = 32      // ranks without Left
	)
	if !d.hasMaps() || p.Validate() != nil || p.X.DType != kernels.BF16 && p.X.DType != kernels.F16 || parts > mostThinParts {
		return false
	}
	rows, columns, ranks := p.X.Shape[0], p.X.Shape[1], p.Ranks()
	ok := rows*columns >= least && ranks > 0 && ranks <= mostThinRanks && ranks%8 == 0 && movable(p.X, 1, 0)
	if p.Up.IsSet() {
		ok = ok && movable(p.Up, 1, 0) && !p.Right.IsSet()
	}
	if p.Right.IsSet() {
		ok = ok && (movable(p.Right, 1, 0) || movable(p.Right, 0, 1))
	}
	if p.Left.IsSet() {
		return ok && movable(p.Left, 1, 0)
	}
	return ok && ranks <= mostAcross
}

// ThinProductsBorrow is the memory of sums.
func (d *Device) ThinProductsBorrow(p *kernels.ThinProducts) int {
	across, down := d.thinOf(p).sums(p)
	return d.partialBytes(across + down)
}

// ThinProducts queues a kernel that reads X, and one that adds up its sums.
func (d *Device) ThinProducts(p *kernels.ThinProducts, out kernels.ThinOutputs) error {
	const name = "thin products"
	defer runtime.KeepAlive(p)
	defer runtime.KeepAlive(out)
	if err := p.Check(out); err != nil {
		return d.callError(name, err)
	}
	if !d.TakesThinProducts(p, len(out.Down)) {
		return kernels.Unsupported{Device: d.Name(), What: "these " + name}
	}
	v := d.thinOf(p)
	across, down := v.sums(p)
	sums, err := d.scratch(d.partialBytes(across + down))
	if err != nil {
		return fmt.Errorf("%s: %s: scratch memory: %w", d.Name(), name, err)
	}
	defer sums.Free()
	c := &thinCall{thin: v, device: d, ThinProducts: p, out: out, sums: driver.Span{From: sums.At, To: sums.At + address(across+down)}}
	if p.Right.IsSet() {
		c.across = sums.At
	}
	if p.Left.IsSet() {
		c.down = sums.At + address(across)
	}
	if err := c.multiply(); err != nil {
		return fmt.Errorf("%s: %s: %w", d.Name(), name, err)
	}
	return c.add()
}

// thinCall is a call, and where its sums lie in scratch memory: none of Across without Right, and
// none of Down without Left.
type thinCall struct {
	thin
	*kernels.ThinProducts
	device       *Device
	out          kernels.ThinOutputs
	sums         driver.Span
	across, down address
}

func (c *thinCall) module() string { return "thinproducts" + entrySuffixes[c.X.DType] }

// multiply queues the kernel that reads X.
func (c *thinCall) multiply() error {
	operands, entry := []view{matrix(c.X)}, c.module()
	x := operands[0]
	g := &thinArguments{across: c.across, down: c.down, rows: x.firsts, columns: x.seconds, ranks: int32(c.Ranks())}
	if c.Right.IsSet() {
		g.right, g.rightColumn, g.rightRank = read(c.Right), int64(c.Right.Strides[0]), int64(c.Right.Strides[1])
	}
	if c.gated {
		operands, entry = append(operands, matrix(c.Up)), entry+"_gated"
	}
	if c.Left.IsSet() {
		operands = append(operands, matrix(c.Left))
	} else {
		operands = append(operands, x) // which is not looked at
	}
	maps := make([]driver.EncodedMap, len(operands))
	for i, operand := range operands {
		var err error
		if maps[i], err = c.device.Encode(boxesOf(operand, true, thinSide)); err != nil {
			return err
		}
	}
	entry = fmt.Sprintf("%s_%d_%d", entry, c.eighths, c.tiles)
	s := shapeOf(c.module(), entry, [3]int{c.blocks, 1, 1}, threadsOfThin, c.sharedBytes())
	s.Early = &driver.Early{Writes: []driver.Span{c.sums}}
	return c.device.launch(s, maps, unsafe.Pointer(g))
}

// add queues the kernel that adds up what strips and blocks left.
func (c *thinCall) add() error {
	g := &thinSums{
		across: c.across, down: c.down, scale: float32(c.Scale),
		rows: int32(c.X.Shape[0]), columns: int32(c.X.Shape[1]), ranks: int32(c.Ranks()), padded: int32(c.padded()),
		strip: int32(c.strip()), blocks: int32(c.blocks), count: int32(len(c.out.Down)),
	}
	sides := 0 // of X, for each of which there is a sum of each rank
	writes := spansOf(c.out.Across)
	if c.Right.IsSet() {
		g.to, g.toRow, g.element = written(c.out.Across), int64(c.out.Across.Strides[0]), elementOf(c.out.Across.DType)
		sides += c.X.Shape[0]
	}
	if c.Left.IsSet() {
		sides += c.X.Shape[1]
	}
	for i, part := range c.out.Down {
		t := part.Out
		g.parts[i] = thinPart{
			data: written(t), rankStep: int64(t.Strides[0]), columnStep: int64(t.Strides[1]), element: elementOf(t.DType),
			rank: int32(part.Rank), ranks: int32(t.Shape[0]), column: int32(part.Column), columns: int32(t.Shape[1]),
		}
		writes = append(writes, spansOf(t)...)
	}
	const together = 4 // ranks of a thread
	blocks := min((sides*c.Ranks()/together+threadsOfSums-1)/threadsOfSums, 16*c.device.Multiprocessors)
	s := shapeOf(c.module(), c.module()+"_sums", [3]int{blocks, 1, 1}, threadsOfSums, 0)
	s.Early = &driver.Early{Writes: writes}
	return c.device.launch(s, nil, unsafe.Pointer(g))
}
