//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// ropeArguments is RoPEArguments in src/rope.cu.
type ropeArguments struct {
	x                    readable
	y                    writable
	frequencies          address
	positions            indexList
	itemPositions        int64
	from, to             [3]int64
	count                int64
	length, heads        int32
	shares               int32
	d, dim               int32
	units                int32
	rotated              int32
	width                int32
	offset               int32
	direction, amplitude float32
	zero                 int32
}

// RoPEForward rotates the pairs of each row by the angles of its position.
func (d *Device) RoPEForward(r *kernels.RoPE, x, y kernels.Tensor) error {
	return d.rotate("rope forward", r, r.CheckForward(x, y), x, y, 1)
}

// RoPEBackward rotates them back.
func (d *Device) RoPEBackward(r *kernels.RoPE, dy, dx kernels.Tensor) error {
	return d.rotate("rope backward", r, r.CheckBackward(dy, dx), dy, dx, -1)
}

func (d *Device) rotate(kernel string, r *kernels.RoPE, err error, x, y kernels.Tensor, direction float32) error {
	if err := d.checked(kernel, err, x.DType); err != nil {
		return err
	}
	if x.Elements() == 0 {
		return nil
	}
	g := &ropeArguments{x: read(x), y: written(y), length: int32(x.Shape[2]), heads: int32(x.Shape[1]),
		d: int32(x.Shape[3]), dim: int32(r.Dim(x.Shape[3])), offset: int32(r.Offset), direction: direction, amplitude: float32(r.EffectiveAmplitude())}
	for axis := range 3 {
		g.from[axis], g.to[axis] = int64(x.Strides[axis]), int64(y.Strides[axis])
	}
	if r.Positions.IsSet() {
		g.positions, g.itemPositions = indexListOf(r.Positions), int64(r.Positions.Strides[0])
	}
	g.cut(r.Pairing, x, y)
	d.shareHeads(g, x.Shape[0])
	var owner *driver.Owner
	if g.dim > 0 {
		if owner, err = d.frequencies(r, int(g.dim)); err != nil {
			return d.failed(kernel, err)
		}
		g.frequencies = owner.At
	}
	entry := "rope_half_split"
	if r.Pairing == kernels.Interleaved {
		entry = "rope_interleaved"
	}
	s := shapeOf("rope", entry+entrySuffixes[x.DType], [3]int{d.elementwiseBlocks(g.count), 1, 1}, elementwiseThreads, 0)
	err = d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(owner)
	runtime.KeepAlive(r.Positions.Owner)
	runtime.KeepAlive(x.Owner)
	runtime.KeepAlive(y.Owner)
	return err
}

// frequencies are those of all pairs, for heads of which dim dimensions are turned. The caller
// keeps the owner alive until the work that reads them is queued.
func (d *Device) frequencies(r *kernels.RoPE, dim int) (*driver.Owner, error) {
	list := make([]float64, dim/2)
	for pair := range list {
		list[pair] = r.Frequency(pair, dim)
	}
	return constant(d, list)
}

// cut says how many threads a row takes: by 16 bytes at once where all that they move lies at
// multiples of 16 bytes.
func (g *ropeArguments) cut(pairing kernels.Pairing, x, y kernels.Tensor) {
	width := int32(accessBytes / x.DType.Size())
	piece := g.dim / 2 // what one access takes a part of
	if pairing == kernels.Interleaved {
		piece = g.dim
	}
	whole := piece%width == 0 && g.d%width == 0 && isAligned(x, y)
	for axis := range 3 {
		whole = whole && g.from[axis]%int64(width) == 0 && g.to[axis]%int64(width) == 0
	}
	if !whole {
		width, piece = 1, g.dim/2
	}
	g.width, g.rotated = width, piece/width
	g.units = g.rotated + (g.d-g.dim)/width
}

// shareHeads lets a thread rotate as many heads as still leave the device enough threads: it
// computes angles once for them.
func (d *Device) shareHeads(g *ropeArguments, batch int) {
	rows := int64(batch) * int64(g.length) * int64(g.units)
	enough := int64(d.Multiprocessors) * 2048
	g.shares = int32(max(1, min(int64(g.heads), (enough+rows-1)/rows)))
	g.count = rows * int64(g.shares)
}
