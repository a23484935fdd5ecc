package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// thinHost is the host with a kernel for thin products of 16 bits.
type thinHost struct {
	kernels.Backend
	both, right, left int // how many calls had which factors
}

func (h *thinHost) TakesThinProducts(p *kernels.ThinProducts, parts int) bool {
	return p.Validate() == nil && p.X.DType == kernels.BF16 && parts <= 3
}

func (h *thinHost) ThinProductsBorrow(*kernels.ThinProducts) int { return 0 }

func (h *thinHost) ThinProducts(p *kernels.ThinProducts, out kernels.ThinOutputs) error {
	if err := p.Check(out); err != nil {
		return err
	}
	across, down := reference.ThinProducts(p)
	switch {
	case !p.Left.IsSet():
		h.right++
	case !p.Right.IsSet():
		h.left++
	default:
		h.both++
	}
	if p.Right.IsSet() {
		kernels.CopyHost(out.Across, kernels.Of(across, out.Across.Shape...))
	}
	for _, part := range out.Down {
		all := kernels.Of(down, p.Ranks(), p.X.Shape[1])
		kernels.CopyHost(part.Out, all.Slice(0, part.Rank, part.Rank+part.Out.Shape[0]).Slice(1, part.Column, part.Column+part.Out.Shape[1]))
	}
	return nil
}

// OnThinHost runs something where the host has a kernel for thin products, and tells how many it
// was given with both factors, with Right and with Left.
func OnThinHost(do func()) (both, right, left int) {
	plain := host
	defer func() { host = plain }()
	h := &thinHost{Backend: plain}
	host = h
	do()
	return h.both, h.right, h.left
}
