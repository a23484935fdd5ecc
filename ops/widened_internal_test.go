package ops

import (
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	packing "github.com/stheno-ml/stheno/kernels/packed"
)

// wideHost is the host as a device that makes floats of packed matrices, and that writes the
// gradients of a gate over what they are of.
type wideHost struct {
	kernels.Backend
	widened, inPlace int // calls
}

func (h *wideHost) WidensFor(rows int) bool { return rows > 4 }

func (h *wideHost) Widen(t, to kernels.Tensor) error {
	if err := kernels.CheckWiden(t, to); err != nil {
		return err
	}
	h.widened++
	if t.Strides[0] == 1 {
		t, to = t.Permute(1, 0), to.Permute(1, 0)
	}
	row, err := packing.RowOf(t.DType, t.Shape[1])
	if err != nil {
		return err
	}
	list, err := packing.Widen(t.DType, unsafe.Slice((*byte)(t.Data), t.Shape[0]*row.Bytes), t.Shape[0], t.Shape[1])
	if err != nil {
		return err
	}
	kernels.CopyHost(to, kernels.Of(list, t.Shape...))
	return nil
}

func (h *wideHost) GateGradientsInPlace(m *kernels.MatMul, c kernels.Tensor) bool {
	e, ok := m.Epilogue.(kernels.GateGradient)
	return ok && slices.Equal(c.Strides, e.Z.Strides) && slices.Equal(c.Strides, e.Up.Strides)
}

func (h *wideHost) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if e, ok := m.Epilogue.(kernels.GateGradient); ok && e.Z.Data == out.C.Data {
		h.inPlace++
		z, up := onHostLike(e.Z), onHostLike(e.Up)
		kernels.CopyHost(z, e.Z)
		kernels.CopyHost(up, e.Up)
		apart := *m
		apart.Epilogue = kernels.GateGradient{Z: z, Up: up, DUp: e.DUp}
		return h.Backend.MatMul(&apart, out)
	}
	return h.Backend.MatMul(m, out)
}

// onHostLike is a new row-major tensor.
func onHostLike(t kernels.Tensor) kernels.Tensor {
	like, err := host.Alloc(t.DType, t.Shape...)
	if err != nil {
		panic(err)
	}
	return like
}

// OnWideHost runs something where the host makes floats of packed matrices, and tells how often it
// did so, and how often gradients of a gate came to lie over what they are of.
func OnWideHost(do func()) (widened, inPlace int) {
	plain := host
	defer func() { host = plain }()
	h := &wideHost{Backend: plain}
	host = h
	do()
	return h.widened, h.inPlace
}
