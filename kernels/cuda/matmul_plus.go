//go:build gpu

package cuda

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// This file is for products of further factors that are added to the first, in the kernels for
// sm_90a: their depth follows that of A and B.

// factors are A and B of a product that is added, as a product has them.
type factors [2]view

// newFactors describes the factors of matrices. BUp is behind B, as that of the first factors is.
func (p *product) newFactors(f kernels.Factors) factors {
	g, e := p.args, elementOf(p.dtype)
	last := len(f.A.Shape) - 1
	depth := int32(f.A.Shape[last])
	a := view{0, address(read(f.A)), g.rows, depth, int64(f.A.Strides[last-1]), int64(f.A.Strides[last]), e, nil}
	b := view{1, address(read(f.B)), g.columns, depth, int64(f.B.Strides[1]), int64(f.B.Strides[0]), e, nil}
	if f.BUp.IsSet() {
		b.batch = []batchAxis{{size: 2, strides: [4]int64{1: elementsBetween(read(f.B), read(f.BUp), f.B.DType)}}}
	}
	return factors{a, b}
}

// sums reports whether there is a kernel that adds the products of the further factors to the
// first: for large ones of 16-bit matrices.
func (p *product) sums() bool {
	_, few := p.ofFewRows()
	return p.device.hasMaps() && p.dtype != kernels.F32 && len(p.axes) == 0 && p.args.depth > 0 && p.hasFewFactors() && !few && !p.isSmall()
}

// hasFewFactors reports whether the kernels have maps for all further factors, of which none is
// empty.
func (p *product) hasFewFactors() bool {
	const most = 2
	return len(p.plus) <= most && !slices.ContainsFunc(p.plus, func(f factors) bool { return f[0].seconds == 0 })
}

// settleFactors makes the further factors lie as the first do, so that tensor maps can describe
// them: others are copied.
func (p *product) settleFactors(v matmul90) error {
	for n := range p.plus {
		for i, second := range []bool{!v.aColumns, !v.bRows} {
			x := &p.plus[n][i]
			if x.mappable(second) {
				continue
			}
			if err := p.alignFactor(x, second); err != nil {
				return err
			}
		}
	}
	return nil
}

// alignFactor copies a factor to rows that begin at multiples of 16 bytes, its second axis
// contiguous or its first, and the one behind it with it.
func (p *product) alignFactor(x *view, second bool) error {
	const multiple = 8 // of 16-bit elements
	padded := func(n int32) int64 { return (int64(n) + multiple - 1) / multiple * multiple }
	to := *x
	if to.first, to.second = padded(x.seconds), 1; !second {
		to.first, to.second = 1, padded(x.firsts)
	}
	item := max(to.first*int64(x.firsts), to.second*int64(x.seconds))
	items := int64(1 + len(x.batch))
	at, err := p.borrow(int(items*item) * p.dtype.Size())
	if err != nil {
		return err
	}
	if to.data = at; len(x.batch) > 0 {
		to.batch = []batchAxis{{size: 2, strides: [4]int64{1: item}}}
	}
	tensor := func(v view) kernels.Tensor {
		between := 0
		if len(v.batch) > 0 {
			between = int(v.batch[0].strides[1])
		}
		return kernels.Tensor{
			Data: v.data.Pointer(), DType: p.dtype, Shape: []int{int(items), int(v.firsts), int(v.seconds)},
			Strides: []int{between, int(v.first), int(v.second)},
		}
	}
	if err := p.device.copies([]pair{{tensor(to), tensor(*x)}}); err != nil {
		return err
	}
	*x = to
	return nil
}
