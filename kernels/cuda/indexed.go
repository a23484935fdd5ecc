//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// indexedArguments is IndexedArguments in src/indexed.cu.
type indexedArguments struct {
	lines lines
	ids   indexList
	fault fault
	x     readable
	y     writable
	sums  address
	n, k  int32

	group, aligned int32
}

// describeIndexed tells the kernels of what they write, of ids, and of what they read, whose rows
// are the same.
func (d *Device) describeIndexed(kernel string, written, ids, x kernels.Tensor, n, k int) (*indexedArguments, error) {
	if n > math.MaxInt32 || k > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %s: rows have %d and %d elements, a GPU computes up to %d", d.Name(), kernel, n, k, math.MaxInt32)
	}
	l, err := linesOf(written, ids, x)
	if err != nil {
		return nil, d.failed(kernel, err)
	}
	return &indexedArguments{lines: l, x: read(x), n: int32(n), k: int32(k)}, nil
}

// TopK finds the largest elements of each row.
func (d *Device) TopK(x, values, ids kernels.Tensor) error {
	const kernel = "top-k"
	if err := d.checked(kernel, kernels.CheckTopK(x, values, ids), x.DType); err != nil {
		return err
	}
	last := len(x.Shape) - 1
	g, err := d.describeIndexed(kernel, values, ids, x, x.Shape[last], values.Shape[last])
	if err != nil || g.lines.count == 0 {
		return err
	}
	g.y, g.ids = written(values), indexList{data: readable(written(ids))}
	if ids.DType == kernels.I64 {
		g.ids.wide = 1
	}
	blocks, err := g.share(x)
	if err != nil {
		return d.failed(kernel, err)
	}
	return d.indexed(kernel, g.topK(x.DType), x.DType, blocks, g, x, values, ids)
}

// topK is the kernel for the largest elements: one that goes through rows once, where rows have a
// warp, and k is not too large for it. Of 16 bits it sorts some more elements than k, so that it
// soon finds a bound that few others are above.
func (g *indexedArguments) topK(dtype kernels.DType) string {
	const warp, mostOnce = 32, 64
	sorted := dtype.Size() == 2 && g.aligned != 0
	entry := "top_k_once"
	switch {
	case g.group != warp || g.k > mostOnce:
		return "top_k"
	case g.k == 1:
		entry = "top_one"
	case sorted && g.k <= 24:
		return "top_k_32"
	case sorted && g.k <= 52:
		return "top_k_64"
	case sorted:
		return "top_k_128"
	}
	if g.aligned == 0 {
		entry += "_any"
	}
	return entry
}

// share gives each of a tensor's rows some threads: as many as have something to load at once, up
// to a warp, or a block where a warp would go round often.
func (g *indexedArguments) share(t kernels.Tensor) (blocks int, err error) {
	l, err := linesOf(t)
	if err != nil {
		return 0, err
	}
	const warp, often = 32, 64
	atOnce := 1
	if g.aligned = l.aligned; g.aligned != 0 {
		atOnce = accessBytes / t.DType.Size()
	}
	for g.group = 1; g.group < warp && int(g.group)*atOnce < int(g.n); {
		g.group *= 2
	}
	if int(g.n) > warp*atOnce*often {
		g.group = elementwiseThreads
	}
	return int((l.count*int64(g.group) + elementwiseThreads - 1) / elementwiseThreads), nil
}

// Gather takes elements of each row by their indices.
func (d *Device) Gather(x, ids, y kernels.Tensor) error {
	const kernel = "gather"
	if err := d.checked(kernel, kernels.CheckGather(x, ids, y), x.DType); err != nil {
		return err
	}
	last := len(x.Shape) - 1
	g, err := d.describeIndexed(kernel, y, ids, x, x.Shape[last], ids.Shape[last])
	if err != nil || y.Elements() == 0 {
		return err
	}
	g.y, g.ids = written(y), indexListOf(ids)
	if g.fault, err = d.fault(faultGather); err != nil {
		return d.failed(kernel, err)
	}
	return d.indexed(kernel, "gather", x.DType, d.elementwiseBlocks(g.lines.count*int64(g.k)), g, x, y, ids)
}

// Scatter adds elements to each row where their indices say, in the order of the indices.
func (d *Device) Scatter(x, ids, y kernels.Tensor) error {
	const kernel = "scatter"
	if err := d.checked(kernel, kernels.CheckScatter(x, ids, y), y.DType); err != nil {
		return err
	}
	last := len(y.Shape) - 1
	g, err := d.describeIndexed(kernel, y, ids, x, y.Shape[last], ids.Shape[last])
	if err != nil || y.Elements() == 0 {
		return err
	}
	g.y, g.ids = written(y), indexListOf(ids)
	if g.fault, err = d.fault(faultScatter); err != nil {
		return d.failed(kernel, err)
	}
	const few, warpsOfBlock = 8, 8
	if g.k <= few {
		blocks, err := g.share(y)
		if err != nil {
			return d.failed(kernel, err)
		}
		return d.indexed(kernel, "scatter_few", y.DType, blocks, g, x, y, ids)
	}
	if y.DType != kernels.F32 {
		sums, err := d.scratch(4 * y.Elements())
		if err != nil {
			return d.failed(kernel, err)
		}
		defer sums.Free()
		g.sums = sums.At
	}
	return d.indexed(kernel, "scatter", y.DType, int((g.lines.count+warpsOfBlock-1)/warpsOfBlock), g, x, y, ids)
}

func (d *Device) indexed(kernel, entry string, dtype kernels.DType, blocks int, g *indexedArguments, tensors ...kernels.Tensor) error {
	suffix := entrySuffixes[dtype]
	err := d.launch(shapeOf("indexed"+suffix, entry+suffix, [3]int{blocks, 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(g))
	for _, t := range tensors {
		runtime.KeepAlive(t.Owner)
	}
	return err
}
