package cpu

import (
	"math"
	"slices"
	"unsafe"

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
	if m.RoundedA.IsSet() {
		wide.A = h.widened(m.RoundedA)
	} else {
		wide.A = h.roundedToFloat8(m.A, last-1, last)
	}
	last = len(m.B.Shape) - 1
	if m.RoundedB.IsSet() {
		wide.B = h.widened(m.RoundedB).Permute(1, 0)
	} else {
		wide.B = h.roundedToFloat8(m.B, last, last-1)
	}
	wide.RoundedA, wide.RoundedB = kernels.Float8Sides{}, kernels.Float8Sides{}
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

// RoundFloat8 rounds a matrix ahead of products.
func (b *Backend) RoundFloat8(x kernels.Tensor, r kernels.Float8Rounding) error {
	if err := kernels.CheckRoundFloat8(x, r); err != nil {
		return callError("round float8", err)
	}
	h := halves{b: b}
	defer h.round()
	wide := h.read(x)
	b.findFloat8Most(wide, r.Rows.Most)
	b.roundFloat8(wide, r.Rows)
	if r.ColumnMost.IsSet() {
		b.findFloat8Most(wide.Permute(1, 0), r.ColumnMost)
	}
	return nil
}

// TurnFloat8 rounds the columns of a matrix from its rows.
func (b *Backend) TurnFloat8(rows, columns kernels.Float8Sides) error {
	if err := kernels.CheckTurnFloat8(rows, columns); err != nil {
		return callError("turn float8", err)
	}
	h := halves{b: b}
	defer h.round()
	b.roundFloat8(h.widened(rows).Permute(1, 0), columns)
	return nil
}

// eachOfRows goes through a matrix of float32 in groups of rows, each in the order in which it
// lies.
func (b *Backend) eachOfRows(x kernels.Tensor, do func(first, rows int, each func(func(i, p int, x float32)))) {
	from, sides, depth := kernels.Host[float32](x), x.Shape[0], x.Shape[1]
	b.each(ceilDiv(sides, sidesTogether), flopsPerElement*float64(sides*depth), func(task int) {
		first := task * sidesTogether
		rows := min(sidesTogether, sides-first)
		do(first, rows, func(do func(i, p int, x float32)) {
			eachOfSides(rows, x.Strides[0], depth, x.Strides[1], func(i, p, at int) { do(i, p, from[first*x.Strides[0]+at]) })
		})
	})
}

// findFloat8Most finds the largest finite magnitude of each row.
func (b *Backend) findFloat8Most(x, most kernels.Tensor) {
	to := kernels.Host[float32](most)
	b.eachOfRows(x, func(first, rows int, each func(func(i, p int, x float32))) {
		own := to[first : first+rows]
		clear(own)
		each(func(i, _ int, x float32) { own[i] = largerMagnitude(own[i], x) })
	})
}

// roundFloat8 rounds each row by its largest magnitude, which is known.
func (b *Backend) roundFloat8(x kernels.Tensor, to kernels.Float8Sides) {
	most, depth := kernels.Host[float32](to.Most), x.Shape[1]
	b.eachOfRows(x, func(first, rows int, each func(func(i, p int, x float32))) {
		var up [sidesTogether]float32
		var numbers [sidesTogether][]kernels.Float8
		for i := range rows {
			up[i], _ = kernels.Float8Scale(most[first+i])
			numbers[i] = unsafe.Slice((*kernels.Float8)(unsafe.Add(to.Numbers.Data, (first+i)*to.Numbers.Strides[0])), kernels.Float8Stride(depth))
			clear(numbers[i][depth:])
		}
		each(func(i, p int, x float32) { numbers[i][p] = kernels.ToFloat8(x * up[i]) })
	})
}

// widened is a copy of sides in float32.
func (h *halves) widened(s kernels.Float8Sides) kernels.Tensor {
	sides, depth := s.Numbers.Shape[0], s.Numbers.Shape[1]
	wide := h.scratch(kernels.Contiguous(nil, kernels.F8, sides, depth), kernels.F32)
	to, most := kernels.Host[float32](wide), kernels.Host[float32](s.Most)
	h.b.each(sides, flopsPerElement*float64(depth), func(side int) {
		numbers := unsafe.Slice((*kernels.Float8)(unsafe.Add(s.Numbers.Data, side*s.Numbers.Strides[0])), depth)
		_, down := kernels.Float8Scale(most[side])
		for p, x := range numbers {
			to[side*depth+p] = x.Float32() * down
		}
	})
	return wide
}

// largerMagnitude is the larger one of a magnitude and that of x, if it is finite.
func largerMagnitude(most, x float32) float32 {
	if size := math.Float32frombits(math.Float32bits(x) &^ (1 << 31)); size <= math.MaxFloat32 {
		return max(most, size)
	}
	return most
}

// sidesTogether is how many sides are rounded at once, at most.
const sidesTogether = 64

// roundSides rounds some sides whose elements lie so many steps apart.
func roundSides(list []float32, from, sides, sideStep, depth, depthStep int) {
	var most, up, down [sidesTogether]float32
	each := func(do func(i int, x *float32)) {
		eachOfSides(sides, sideStep, depth, depthStep, func(i, _, at int) { do(i, &list[from+at]) })
	}
	each(func(i int, x *float32) {
		most[i] = largerMagnitude(most[i], *x)
	})
	for i := range sides {
		up[i], down[i] = kernels.Float8Scale(most[i])
	}
	each(func(i int, x *float32) { *x = kernels.ToFloat8(*x*up[i]).Float32() * down[i] })
}

// eachOfSides goes through the elements of sides in the order in which they lie.
func eachOfSides(sides, sideStep, depth, depthStep int, do func(i, p, at int)) {
	if depthStep == 1 {
		for i := range sides {
			for p := range depth {
				do(i, p, i*sideStep+p)
			}
		}
		return
	}
	for p := range depth {
		for i := range sides {
			do(i, p, i*sideStep+p*depthStep)
		}
	}
}
