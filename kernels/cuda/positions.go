//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// positionArguments is PositionArguments in src/positions.cu.
type positionArguments struct {
	ids           readable
	positions     writable
	idRow, row    int64
	padding       int64
	length, bytes int32
}

// TokenPositions counts the tokens of each row that are not padding.
func (d *Device) TokenPositions(p *kernels.TokenPositions, positions kernels.Tensor) error {
	const kernel = "token positions"
	if err := p.Check(positions); err != nil {
		return d.callError(kernel, err)
	}
	rows, length := p.IDs.Shape[0], p.IDs.Shape[1]
	if rows == 0 || length == 0 {
		return d.queue().Spare(1)
	}
	if max(rows, length) > math.MaxInt32 {
		return fmt.Errorf("%s: %s: ids is %v, a GPU takes up to %d rows and columns", d.Name(), kernel, p.IDs.Shape, math.MaxInt32)
	}
	const threads = 256
	g := &positionArguments{ids: read(p.IDs), positions: written(positions), idRow: int64(p.IDs.Strides[0]), row: int64(positions.Strides[0]),
		padding: int64(p.Padding), length: int32(length), bytes: int32(p.IDs.DType.Size())}
	err := d.launch(shapeOf("positions", "token_positions", [3]int{rows, 1, 1}, threads, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(p.IDs.Owner)
	runtime.KeepAlive(positions.Owner)
	return err
}
