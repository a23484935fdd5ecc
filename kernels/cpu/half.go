package cpu

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// halves lets a kernel of float32 serve 16-bit tensors: what it reads is converted before it runs,
// and what it writes is rounded when it has run, to nearest and once. A kernel passes each of its
// tensors that may be a 16-bit one through halves; tensors of other types come back as they are.
type halves struct {
	b       *Backend
	written []halfOutput
	memory  []*workspace
}

// halfOutput is a 16-bit output and the float32 tensor that stands for it.
type halfOutput struct{ half, wide kernels.Tensor }

func isHalf(d kernels.DType) bool { return d == kernels.BF16 || d == kernels.F16 }

// read returns t in float32.
func (h *halves) read(t kernels.Tensor) kernels.Tensor {
	if !isHalf(t.DType) {
		return t
	}
	wide := h.scratch(t, kernels.F32)
	h.b.convert(wide, t)
	return wide
}

// readAs is read of a tensor that is rounded to a 16-bit type, unless it is a 16-bit one itself.
func (h *halves) readAs(dtype kernels.DType, t kernels.Tensor) kernels.Tensor {
	if isHalf(t.DType) || !isHalf(dtype) {
		return h.read(t)
	}
	rounded := h.scratch(t, dtype)
	h.b.convert(rounded, t)
	return h.read(rounded)
}

// write returns a float32 tensor for a kernel to write in the place of t, all of it.
func (h *halves) write(t kernels.Tensor) kernels.Tensor {
	if !isHalf(t.DType) {
		return t
	}
	wide := h.scratch(t, kernels.F32)
	h.written = append(h.written, halfOutput{t, wide})
	return wide
}

// update is write for a kernel that adds to what is there.
func (h *halves) update(t kernels.Tensor) kernels.Tensor {
	wide := h.write(t)
	if isHalf(t.DType) {
		h.b.convert(wide, t)
	}
	return wide
}

// round stores what the kernel has written, and ends the use of all tensors that halves returned.
func (h *halves) round() {
	for _, w := range h.written {
		h.b.convert(w.half, w.wide)
	}
	for _, memory := range h.memory {
		memory.release()
	}
}

// scratch is a tensor of t's shape without gaps, with its axes in the order of t's, and broadcast
// where t is.
func (h *halves) scratch(t kernels.Tensor, dtype kernels.DType) kernels.Tensor {
	s := kernels.Tensor{DType: dtype, Shape: t.Shape, Strides: make([]int, len(t.Shape))}
	elements := 1
	for _, axis := range slices.Backward(byStride(t)) {
		if t.Strides[axis] != 0 || t.Shape[axis] == 0 {
			s.Strides[axis] = elements
			elements *= t.Shape[axis]
		}
	}
	memory := newWorkspace(elements * dtype.Size())
	h.memory = append(h.memory, memory)
	s.Data = unsafe.Pointer(unsafe.SliceData(memory.memory))
	return s
}

// byStride is the axes of a tensor in the order of their strides, the longest first.
func byStride(t kernels.Tensor) []int {
	axes := make([]int, len(t.Shape))
	for axis := range axes {
		axes[axis] = axis
	}
	slices.SortStableFunc(axes, func(a, b int) int { return t.Strides[b] - t.Strides[a] })
	return axes
}

// convert copies src to dst in the order of src's memory, in tasks that threads share. An axis that
// is broadcast in both is copied once.
func (b *Backend) convert(dst, src kernels.Tensor) {
	n := src.Elements()
	if n <= taskElements { // for one thread
		kernels.CopyHost(dst, src)
		return
	}
	order := byStride(src)
	dst, src = dst.Permute(order...), src.Permute(order...)
	if dst.IsRowMajor() && src.IsRowMajor() && convertsRows(dst.DType, src.DType) {
		per := b.perTask(n)
		b.each(ceilDiv(n, per), elementFLOPs*float64(n), func(task int) {
			for from := task * per; from < min(n, (task+1)*per); from += pieceElements {
				convertRow(dst, src, from, min(pieceElements, n-from, (task+1)*per-from))
			}
		})
		return
	}
	if exchangesAxes(dst, src) {
		b.exchangeAxes(dst, src)
		return
	}
	cut := -1 // the outermost axis that there is something along
	for axis, d := range src.Shape {
		if d > 1 && src.Strides[axis] == 0 && dst.Strides[axis] == 0 {
			dst, src = dst.Slice(axis, 0, 1), src.Slice(axis, 0, 1)
		} else if d > 1 && cut < 0 {
			cut = axis
		}
	}
	if cut < 0 {
		kernels.CopyHost(dst, src)
		return
	}
	length := src.Shape[cut]
	perTask := b.rowsPerTask(length, n/length)
	b.each(ceilDiv(length, perTask), elementFLOPs*float64(n), func(task int) {
		from, to := task*perTask, min(length, (task+1)*perTask)
		kernels.CopyHost(dst.Slice(cut, from, to), src.Slice(cut, from, to))
	})
}

// convertsRows reports whether convertRow knows two types.
func convertsRows(to, from kernels.DType) bool {
	return to == kernels.F32 && from == kernels.BF16 || to == kernels.BF16 && from == kernels.F32
}

// convertRow converts n elements, from one on, of tensors that are row-major.
func convertRow(dst, src kernels.Tensor, from, n int) {
	to, at := unsafe.Add(dst.Data, from*dst.DType.Size()), unsafe.Add(src.Data, from*src.DType.Size())
	if dst.DType == kernels.F32 {
		simd.WidenRow(n, (*float32)(to), (*kernels.BFloat16)(at))
	} else {
		simd.RoundRow(n, (*kernels.BFloat16)(to), (*float32)(at))
	}
}
