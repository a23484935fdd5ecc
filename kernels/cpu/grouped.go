package cpu

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// GroupedMatMul multiplies the rows of each group. All products are cut into one list of tasks, so
// that threads share what many small groups and one large one have to do.
func (b *Backend) GroupedMatMul(m *kernels.GroupedMatMul, c kernels.Tensor) (err error) {
	const kernel = "grouped matmul"
	defer catch(kernel, &err)
	if err := checked(kernel, m.Check(c)); err != nil {
		return err
	}
	from, err := readOffsets(kernel, m.Offsets, m.A.Shape[0])
	if err != nil {
		return err
	}
	var list products
	for g := range len(from) - 1 {
		if from[g] == from[g+1] {
			continue
		}
		product := kernels.MatMul{A: m.A.Slice(0, from[g], from[g+1]), B: itemOf(m.B, g), Accumulate: m.Accumulate, Precision: m.Precision}
		if m.Bias.IsSet() {
			product.Bias = itemOf(m.Bias, g)
		}
		list.add(product, c.Slice(0, from[g], from[g+1]))
	}
	return list.run(b)
}

// GroupedMatMulGradient multiplies the rows of each group with the gradients of what they gave.
func (b *Backend) GroupedMatMulGradient(m *kernels.GroupedMatMul, dC, dB kernels.Tensor) (err error) {
	const kernel = "grouped matmul gradient"
	defer catch(kernel, &err)
	if err := checked(kernel, m.CheckGradient(dC, dB)); err != nil {
		return err
	}
	from, err := readOffsets(kernel, m.Offsets, m.A.Shape[0])
	if err != nil {
		return err
	}
	var list products
	for g := range len(from) - 1 {
		product := kernels.MatMul{A: m.A.Slice(0, from[g], from[g+1]).Permute(1, 0), B: dC.Slice(0, from[g], from[g+1]), Precision: m.Precision}
		list.add(product, itemOf(dB, g))
	}
	return list.run(b)
}

// GroupedSumRows sums the rows of each group.
func (b *Backend) GroupedSumRows(x, offsets, out kernels.Tensor) (err error) {
	const kernel = "grouped sum of rows"
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckGroupedSumRows(x, offsets, out)); err != nil {
		return err
	}
	from, err := readOffsets(kernel, offsets, x.Shape[0])
	if err != nil {
		return err
	}
	for g := range len(from) - 1 {
		if err := b.SumRows(x.Slice(0, from[g], from[g+1]), itemOf(out, g), false); err != nil {
			return err
		}
	}
	return nil
}

// itemOf is the view of one index of the first axis, which goes away.
func itemOf(t kernels.Tensor, i int) kernels.Tensor {
	t = t.Slice(0, i, i+1)
	t.Shape, t.Strides = t.Shape[1:], t.Strides[1:]
	return t
}

// readOffsets is where groups begin, checked: they ascend from 0 to the number of rows.
func readOffsets(kernel string, t kernels.Tensor, rows int) ([]int, error) {
	numbers := kernels.Host[int32](t)
	from := make([]int, len(numbers))
	for i, n := range numbers {
		from[i] = int(n)
	}
	switch last := len(from) - 1; {
	case from[0] != 0 || from[last] != rows:
		return nil, callError(kernel, fmt.Errorf("offsets go from %d to %d, they need to go from 0 to the %d rows", from[0], from[last], rows))
	case !slices.IsSorted(from):
		return nil, callError(kernel, fmt.Errorf("offsets are %v, they need to ascend", from))
	}
	return from, nil
}

// products are several that are computed together.
type products struct {
	of []kernels.MatMul
	to []kernels.Tensor
}

func (p *products) add(m kernels.MatMul, c kernels.Tensor) {
	p.of, p.to = append(p.of, m), append(p.to, c)
}

// run computes all products. Those of 16-bit operands, whose kernels convert or cut them as a
// whole, come one after the other.
func (p *products) run(b *Backend) error {
	if len(p.of) == 0 {
		return nil
	}
	first := &p.of[0]
	bias := first.Bias.DType
	alike := first.B.DType == first.A.DType && (bias == kernels.NoDType || bias == first.A.DType)
	tiled := first.A.DType == kernels.F32 && first.Precision == kernels.PrecisionBFloat16 && simd.HasTiles()
	if isHalf(first.A.DType) || !alike || tiled {
		for i := range p.of {
			if err := b.MatMul(&p.of[i], kernels.MatMulOutputs{C: p.to[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	inTypeOf(first.A, multiplyTogether[float32], multiplyTogether[float64])(b, p)
	return nil
}

// sharedProduct is a product that is computed together with others, and its tasks.
type sharedProduct[T kernels.Float] struct {
	*multiplication[T]
	first        int // its first task
	blocks, runs int
	runRows      int
}

// multiplyTogether cuts each product as it would be cut alone, and its rows or columns into as many
// tasks as its share of the work: that changes no sum.
func multiplyTogether[T kernels.Float](b *Backend, p *products) {
	var parts []sharedProduct[T]
	var work float64
	for i := range p.of {
		x := newMultiplication[T](&p.of[i], kernels.Activate{}, p.to[i])
		if x.items*x.rows*x.columns == 0 {
			continue
		}
		x.b.data = kernels.Host[T](x.B)
		x.choose()
		parts = append(parts, sharedProduct[T]{multiplication: x})
		work += x.work()
	}
	threads, tasks := b.workers(len(parts)*tasksPerThread*b.threads(), work), 0
	for i := range parts {
		x := &parts[i]
		x.first = tasks
		x.share(x.work() / work * float64(tasksPerThread*threads))
		tasks += x.blocks * x.runs
	}
	b.inRuns(tasks, work, func(claim func() (int, bool)) {
		var w *scratch[T]
		at := -1 // the part that the scratch is for
		for task, ok := claim(); ok; task, ok = claim() {
			next, found := slices.BinarySearchFunc(parts, task, func(x sharedProduct[T], task int) int { return x.first - task })
			if !found {
				next--
			}
			x := &parts[next]
			if next != at {
				if w != nil {
					w.memory.release()
				}
				w, at = x.newScratch(), next
			}
			task -= x.first
			row, column := task%x.runs*x.runRows, task/x.runs*x.cut.width
			x.do(w, region{row: row, rows: min(x.runRows, x.rows-row), column: column, columns: min(x.cut.width, x.columns-column)})
		}
		if w != nil {
			w.memory.release()
		}
	})
}

// work is what the product takes, in multiplications.
func (x *multiplication[T]) work() float64 {
	return x.FLOPs() + flopsPerElement*float64(x.items*(x.rows*x.depth+x.depth*x.columns+x.rows*x.columns))
}

// share cuts C into at least so many tasks, if it is large enough.
func (x *sharedProduct[T]) share(tasks float64) {
	x.runs, x.runRows = 1, x.rows
	size := kernels.DTypeOf[T]().Size()
	if !x.packB {
		width := max(leastWidth/size, roundUp(int(float64(x.columns)/max(1, tasks)), quad[T]()))
		x.cut.width = min(x.cut.width, roundUp(width, quad[T]()))
	}
	x.blocks = ceilDiv(x.columns, x.cut.width)
	if wanted := int(tasks) / x.blocks; x.packB && wanted > 1 {
		wanted = max(1, min(wanted, x.rows/x.leastRun()))
		x.runRows = min(x.rows, roundUp(ceilDiv(x.rows, wanted), simd.GemmRows()))
		x.runs = ceilDiv(x.rows, x.runRows)
	}
}
