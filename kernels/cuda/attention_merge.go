//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// mergeArguments is MergeArguments in src/attention_merge.cu.
type mergeArguments struct {
	sum                  rows[writable]
	part                 rows[readable]
	sumLSE               rows[writable]
	partLSE              rows[readable]
	count                int64
	heads, length, size  int32
	lanes, aligned, zero int32
}

// AttentionMerge joins attention to some keys with attention to others. The sum is float32.
func (d *Device) AttentionMerge(sum, part kernels.AttentionOutputs) error {
	const kernel = "attention merge"
	if err := d.checked(kernel, kernels.CheckMerge(sum, part), part.O.DType); err != nil {
		return err
	}
	for _, o := range []operand{{"sum's o", sum.O}, {"sum's lse", sum.LSE}, {"part's o", part.O}, {"part's lse", part.LSE}} {
		if err := d.checkHere(kernel, o.name, o.tensor); err != nil {
			return err
		}
	}
	shape := part.O.Shape
	g := mergeArguments{
		sum: rowsWritten(sum.O), part: rowsRead(part.O),
		sumLSE: valuesOf(sum.LSE, written(sum.LSE)), partLSE: valuesOf(part.LSE, read(part.LSE)),
		count: int64(shape[0] * shape[1] * shape[2]), heads: int32(shape[1]), length: int32(shape[2]), size: int32(shape[3]), lanes: 1,
	}
	if g.count == 0 {
		return nil
	}
	width := 1
	if shape[3]%4 == 0 && describable([]kernels.Tensor{sum.O, part.O}) {
		g.aligned, width = 1, 4
	}
	for g.lanes < 32 && int(g.lanes)*width < shape[3] {
		g.lanes *= 2
	}
	const threads = 256
	blocks := (g.count*int64(g.lanes) + threads - 1) / threads
	s := shapeOf("attention_merge", "attention_merge"+entrySuffixes[part.O.DType], [3]int{int(blocks), 1, 1}, threads, 0)
	err := d.launch(s, nil, unsafe.Pointer(&g))
	runtime.KeepAlive(sum)
	runtime.KeepAlive(part)
	return err
}

// valuesOf is a tensor of (batch, heads, length) as kernels are told it.
func valuesOf[A readable | writable](t kernels.Tensor, at A) rows[A] {
	return rows[A]{data: at, batch: int64(t.Strides[0]), head: int64(t.Strides[1])}
}
