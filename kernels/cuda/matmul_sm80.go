//go:build gpu

package cuda

import "unsafe"

// launch80 queues a kernel for any device since Ampere. Tensor maps could describe the operands, so that they can be read 16
// bytes at a time.
func (p *product) launch80() error {
	g := p.args
	v := matmul80{element: elementOf(p.dtype), aColumns: !p.operand(0).mappable(true), bRows: !p.operand(1).mappable(true)}
	if g.rowMost != 0 {
		v.parts = p.parts
	}
	blocks, err := p.blocks(matmul80Side)
	if err != nil {
		return err
	}
	s := launchShape{kernelName{v.name(), v.name()}, [3]int{blocks, 1, 1}, 256, v.sharedBytes()}
	return p.device.launch(s, nil, unsafe.Pointer(g))
}
