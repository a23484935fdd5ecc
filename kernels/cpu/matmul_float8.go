package cpu

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// multiplyFloat8 is multiply for operands that are rounded to 8 bits: no processor multiplies such
// numbers, so it multiplies what they are in float32.
func (b *Backend) multiplyFloat8(m *kernels.MatMul, epilogue kernels.Activate, c kernels.Tensor) {
	h := halves{b: b}
	defer h.round()
	wide := *m
	wide.Precision = kernels.PrecisionFloat32
	last := len(m.A.Shape) - 1
	wide.A = h.roundedToFloat8(m.A, last-1, last)
	last = len(m.B.Shape) - 1
	wide.B = h.roundedToFloat8(m.B, last, last-1)
	wide.Bias = h.read(m.Bias)
	if epilogue.Pre = h.write(epilogue.Pre); m.Accumulate {
		c = h.update(c)
	} else {
		c = h.write(c)
	}
	b.multiply(&wide, epilogue, c)
}

// roundedToFloat8 is a copy of t in float32, each side of which, along the depth, is rounded by a
// scale of its own.
func (h *halves) roundedToFloat8(t kernels.Tensor, side, depth int) kernels.Tensor {
	wide := h.scratch(t, kernels.F32)
	h.b.convert(wide, t)
	own := wide // each element once, whatever is broadcast
	own.Shape = slices.Clone(wide.Shape)
	for axis, stride := range wide.Strides {
		if stride == 0 {
			own.Shape[axis] = min(1, wide.Shape[axis])
		}
	}
	list, l, n := kernels.Host[float32](own), layoutOf(own), own.Elements()
	sides, depths := own.Shape[side], own.Shape[depth]
	blocks := ceilDiv(sides, sidesTogether)
	h.b.each(l.items()*blocks, flopsPerElement*float64(n), func(task int) {
		first := task % blocks * sidesTogether
		from := l.offset(task/blocks) + first*wide.Strides[side]
		roundSides(list, from, min(sidesTogether, sides-first), wide.Strides[side], depths, wide.Strides[depth])
	})
	return wide
}

// sidesTogether is how many sides are rounded at once, at most.
const sidesTogether = 64

// roundSides rounds some sides whose elements lie so many steps apart.
func roundSides(list []float32, from, sides, sideStep, depth, depthStep int) {
	var most, up, down [sidesTogether]float32
	each := func(do func(i int, x *float32)) {
		if depthStep == 1 {
			for i := range sides {
				for p := range depth {
					do(i, &list[from+i*sideStep+p])
				}
			}
			return
		}
		for p := range depth {
			for i := range sides {
				do(i, &list[from+i*sideStep+p*depthStep])
			}
		}
	}
	each(func(i int, x *float32) {
		if size := math.Float32frombits(math.Float32bits(*x) &^ (1 << 31)); size <= math.MaxFloat32 {
			most[i] = max(most[i], size)
		}
	})
	for i := range sides {
		up[i], down[i] = kernels.Float8Scale(most[i])
	}
	each(func(i int, x *float32) { *x = kernels.ToFloat8(*x*up[i]).Float32() * down[i] })
}
