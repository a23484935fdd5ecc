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

// MatMul computes a product and its epilogue. Products of 16-bit tensors are summed in float32.
func (d *Device) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if err := d.checkMatMul(m, out); err != nil {
		return err
	}
	if m.B.DType.IsPacked() {
		return d.matMulPacked(m, out)
	}
	queued, err := d.matMulWithEpilogue(m, out)
	if err == nil && !queued {
		err = d.matMulActivated(m, out)
	}
	runtime.KeepAlive(m)
	runtime.KeepAlive(out)
	return err
}

// matMulWithEpilogue queues a product whose epilogue is more than an activation, or that has sums
// beside C, if it is one: in one pass where there is a kernel for that, and otherwise one kernel
// after the other.
func (d *Device) matMulWithEpilogue(m *kernels.MatMul, out kernels.MatMulOutputs) (queued bool, err error) {
	if out.SumsOfB.IsSet() {
		if queued, err = d.matMulSums(m, out); queued || err != nil {
			return true, err
		}
		return true, kernels.MatMulApart(d, m, out)
	}
	switch e := m.Epilogue.(type) {
	case kernels.Gate:
		if m.Precision == kernels.PrecisionFloat8 {
			queued, err = d.gateFloat8(m, e, out)
		} else {
			queued, err = d.matMulGate(m, e, out)
		}
	case kernels.Symmetric:
		queued, err = d.matMulSymmetric(m, e, out)
	case kernels.TimesSlope:
		queued, err = d.matMulSloped(m, sloping{activation: e.Activation, z: e.Z}, out)
	case kernels.GateGradient:
		if m.Precision == kernels.PrecisionFloat8 {
			queued, err = d.gateGradientFloat8(m, e, out)
			break
		}
		queued, err = d.matMulSloped(m, sloping{activation: kernels.SiLU, z: e.Z, up: e.Up, dUp: e.DUp}, out)
	default:
		if !out.ColumnSums.IsSet() {
			return false, nil
		}
	}
	if queued || err != nil {
		return true, err
	}
	return true, kernels.MatMulApart(d, m, out)
}

// matMulActivated queues a product that has no epilogue but an activation.
func (d *Device) matMulActivated(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	epilogue, _ := m.Epilogue.(kernels.Activate)
	if activatesApart(m, epilogue, out.C) {
		plain, z := *m, out.C
		plain.Epilogue = kernels.Activate{Pre: epilogue.Pre}
		if epilogue.Pre.DType == out.C.DType {
			plain.Epilogue, z = nil, epilogue.Pre
		}
		if err := d.MatMul(&plain, kernels.MatMulOutputs{C: z}); err != nil {
			return err
		}
		return d.Activate(epilogue.Activation, z, out.C)
	}
	p := newProduct(d, m, epilogue, out.C)
	defer p.release()
	if len(m.Plus) > 0 && (p.rounds != neverRounds || !p.sums()) {
		return kernels.MatMulApart(d, m, out)
	}
	return p.run()
}

// activatesApart reports whether the activation of a product is a kernel of its own. Those behind
// lastActivated are in no product's kernel. The exact GELU of a large product is apart: its many
// instructions come after the last product of a tile, when nothing else keeps the multiprocessor
// busy, and took three times as long as a pass over memory (bench/log/gpu-step.md).
func activatesApart(m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) bool {
	const large = 1 << 20
	if m.Precision == kernels.PrecisionFloat8 && epilogue.Activation != kernels.NoActivation {
		return true
	}
	if epilogue.Activation != kernels.GELUErf {
		return epilogue.Activation > lastActivated
	}
	rounds := !epilogue.Pre.IsSet() || epilogue.Pre.DType == c.DType
	return m.A.DType != kernels.F32 && c.Elements() >= large && rounds
}

func (d *Device) checkMatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if err := m.Check(out); err != nil {
		return d.callError("matmul", err)
	}
	if m.Precision == kernels.PrecisionFloat8 && !d.hasMaps() {
		return kernels.Unsupported{Device: d.Name(), What: "a product in PrecisionFloat8"}
	}
	if t := m.A.DType; t != kernels.F32 && t != kernels.BF16 && t != kernels.F16 {
		return kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("a product of %v", t)}
	}
	if m.B.DType != m.A.DType && !m.B.DType.IsPacked() {
		return kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("a product of %v and %v", m.A.DType, m.B.DType)}
	}
	if rows, columns, depth := m.Dims(); max(rows, columns, depth, out.C.Elements()/max(1, columns)) > math.MaxInt32 {
		return fmt.Errorf("%s: matmul: a is %v and b is %v, a GPU computes up to %d rows and columns", d.Name(), m.A.Shape, m.B.Shape, math.MaxInt32)
	}
	return nil
}

// stack is Stack in src/matmul.cuh: a batch of matrices.
type stack[A readable | writable] struct {
	data A
	layout
}

// layout has the strides of a batch, in elements.
type layout struct{ outer, inner, row, column int64 }

// matmulArguments is MatMulArguments in src/matmul.cuh, which says what each field means.
type matmulArguments struct {
	a, b   stack[readable]
	c, pre stack[writable] // pre may only be read

	bias                                             readable
	rowMost, columnMost, partials, flags, columnSums address

	rows, columns, depth              int32
	items, inner                      int32
	activation, accumulate            int32
	cElement, preElement, biasElement element
	lowDepth                          int32
	diagonal                          float32 // the bits are reserved in MatMulArguments
}

// product is one call of MatMul: the problem as kernels are told it, and what the call borrows.
type product struct {
	device  *Device
	dtype   kernels.DType // of A and B as kernels see them
	parts   int           // that elements of float32 operands are split into
	args    *matmulArguments
	axes    []batchAxis // what is left of the batch's axes, the innermost first
	plus    []factors   // whose products are added
	swapped bool        // of a gated product: BUp lies before B
	rounds  float8Rounding
	rounded [2]kernels.Float8Sides // A and B where they were rounded ahead of the product
	apart   int64                  // how far what two items of B were rounded to lies apart
	scratch []*driver.Block
}

// float8Rounding is whether operands are rounded to 8 bits.
type float8Rounding int

const (
	neverRounds float8Rounding = iota
	willRound
	hasRounded
)

// batchAxis is an axis of the batch, with the strides of a, b, c and pre.
type batchAxis struct {
	size    int
	strides [4]int64
}

func (p *product) layouts() [4]*layout {
	g := p.args
	return [4]*layout{&g.a.layout, &g.b.layout, &g.c.layout, &g.pre.layout}
}

// newProduct describes a call to the kernels. They are told of all epilogues as of an activation
// and a Pre.
func newProduct(d *Device, m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) *product {
	rows, columns, depth := m.Dims()
	g := &matmulArguments{
		bias: read(m.Bias), rows: int32(rows), columns: int32(columns), depth: int32(depth), items: 1, inner: 1,
		activation: int32(epilogue.Activation), cElement: elementOf(c.DType), preElement: elementOf(epilogue.Pre.DType),
		biasElement: elementOf(m.Bias.DType),
	}
	if m.Accumulate {
		g.accumulate = 1
	}
	p := &product{device: d, dtype: m.A.DType, args: g, parts: 2}
	if m.Precision == kernels.PrecisionFloat8 {
		p.rounds, p.rounded = willRound, [2]kernels.Float8Sides{m.RoundedA, m.RoundedB}
	}
	if m.Precision > kernels.PrecisionFloat32 {
		p.parts = 1 // of 11 bits, more than asked for
	}
	tensors := [4]kernels.Tensor{m.A, m.B, c, epilogue.Pre}
	g.a.data, g.b.data, g.c.data, g.pre.data = read(m.A), read(m.B), written(c), written(epilogue.Pre)
	for i, l := range p.layouts() {
		if t := tensors[i]; t.IsSet() {
			last := len(t.Shape) - 1
			*l = layout{row: int64(t.Strides[last-1]), column: int64(t.Strides[last])}
		}
	}
	for axis := len(m.A.Shape) - 3; axis >= 0; axis-- {
		next := batchAxis{size: m.A.Shape[axis]}
		for i, t := range tensors {
			if axis < len(t.Shape)-2 {
				next.strides[i] = int64(t.Strides[axis])
			}
		}
		p.join(next)
	}
	for _, f := range m.Plus {
		p.plus = append(p.plus, p.newFactors(f))
	}
	return p
}

// join adds an axis around those that the product has: as more rows where all its items share B and
// the rows of the other tensors go on at one stride, or to the axis inside it where every tensor
// goes on there.
func (p *product) join(next batchAxis) {
	if next.size == 1 {
		return
	}
	g := p.args
	if len(p.axes) == 0 && next.strides[1] == 0 {
		goesOn := true
		isThere := [4]bool{g.a.data != 0, g.b.data != 0, g.c.data != 0, g.pre.data != 0}
		for i, l := range p.layouts() {
			goesOn = goesOn && (i == 1 || !isThere[i] || g.rows == 1 || next.strides[i] == int64(g.rows)*l.row)
		}
		if goesOn {
			for i, l := range p.layouts() {
				if g.rows == 1 && i != 1 {
					l.row = next.strides[i]
				}
			}
			g.rows *= int32(next.size)
			return
		}
	}
	if last := len(p.axes) - 1; last >= 0 {
		inside, goesOn := &p.axes[last], true
		for i := range next.strides {
			goesOn = goesOn && next.strides[i] == int64(inside.size)*inside.strides[i]
		}
		if goesOn {
			inside.size *= next.size
			return
		}
	}
	p.axes = append(p.axes, next)
}

// run queues the products: kernels take two axes of a batch, further ones are a launch an item.
func (p *product) run() error {
	g := p.args
	if last := len(p.axes) - 1; last >= axesOfKernels {
		outermost := p.axes[last]
		inside, first, dtype, rounds := slices.Clone(p.axes[:last]), *g, p.dtype, p.rounds
		for n := range outermost.size {
			p.axes, p.dtype, p.rounds, *g = slices.Clone(inside), dtype, rounds, first
			g.move(n, outermost.strides, p.sizes())
			if err := p.run(); err != nil {
				return err
			}
		}
		return nil
	}
	p.placeItems()
	if g.items == 0 || g.rows == 0 || g.columns == 0 {
		return nil
	}
	rounds := p.rounds != neverRounds && g.depth > 0
	if v, ok := p.ofFewRows(); ok && len(p.plus) == 0 && !rounds {
		return p.launchRows(v)
	}
	if p.isSmall() && len(p.plus) == 0 && !rounds {
		return p.launchAny()
	}
	if err := p.settle(); err != nil {
		return err
	}
	if rounds {
		return p.launchFloat8()
	}
	if p.device.hasMaps() {
		return p.launch90()
	}
	return p.launch80()
}

// placeItems tells kernels of the batch's axes, and reports whether they can take all of them.
func (p *product) placeItems() bool {
	g := p.args
	if len(p.axes) > axesOfKernels {
		return false
	}
	for n, axis := range p.axes {
		g.items *= int32(axis.size)
		for i, l := range p.layouts() {
			if n == 0 {
				l.inner = axis.strides[i]
			} else {
				l.outer = axis.strides[i]
			}
		}
		if n == 0 {
			g.inner = g.items
		}
	}
	return true
}

// axesOfKernels is how many axes of a batch kernels take.
const axesOfKernels = 2

// move goes to the n-th item of an axis, by the strides of a, b, c and pre and their elements'
// bytes.
func (g *matmulArguments) move(n int, strides, sizes [4]int64) {
	by := func(i int) uintptr { return uintptr(int64(n) * strides[i] * sizes[i]) }
	g.a.data += readable(by(0))
	g.b.data += readable(by(1))
	g.c.data += writable(by(2))
	g.pre.data += writable(by(3))
}

// isSmall reports whether the plain kernel, which needs neither scratch memory nor several
// launches, is done before the others would be: it takes about 40 ns a step of the depth, for two
// tiles a multiprocessor at a time, and they about 10 µs where operands are not as they need them.
func (p *product) isSmall() bool {
	g := p.args
	tiles := tilesOf(g.rows, anySide) * tilesOf(g.columns, anySide) * int(g.items)
	waves := (tiles + 2*p.device.Multiprocessors - 1) / (2 * p.device.Multiprocessors)
	steps := 250
	if p.dtype != kernels.F32 && p.operand(0).isMappable() && p.operand(1).isMappable() {
		steps = 32
	}
	return waves*int(g.depth) <= steps
}

// sizes are the bytes of an element of a, b, c and pre.
func (p *product) sizes() [4]int64 {
	g, own := p.args, int64(p.dtype.Size())
	size := func(e element) int64 {
		if e == elementF32 {
			return 4
		}
		return 2
	}
	return [4]int64{own, own, size(g.cElement), size(g.preElement)}
}

// launchAny queues the kernel that takes whatever there is.
func (p *product) launchAny() error {
	const threads = 256
	g := p.args
	blocks, err := p.blocks(anySide, anySide)
	if err != nil {
		return err
	}
	entry := map[kernels.DType]string{kernels.F32: "matmul_any_f32", kernels.BF16: "matmul_any_bf16", kernels.F16: "matmul_any_f16"}[p.dtype]
	return p.device.launch(shapeOf("matmul_any", entry, [3]int{blocks, 1, 1}, threads, 0), nil, unsafe.Pointer(g))
}

// anySide is the side of a tile of src/matmul_any.cu.
const anySide = 64

// blocks is how many tiles the product has.
func (p *product) blocks(rows, columns int) (int, error) {
	g := p.args
	blocks := tilesOf(g.rows, rows) * tilesOf(g.columns, columns) * int(g.items)
	if blocks > math.MaxInt32 {
		return 0, fmt.Errorf("%s: matmul: %d products of %d×%d are too many for one launch", p.device.Name(), g.items, g.rows, g.columns)
	}
	return blocks, nil
}

// release gives back what the call borrowed: its work is queued.
func (p *product) release() {
	for _, b := range p.scratch {
		b.Free()
	}
}
