package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestActivation(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testActivation[float32], testActivation[float64])
}

func testActivation[T kernels.Float](t *testing.T) {
	for i, s := range fieldShapes() {
		act := kernels.Activation(i % len(kernels.Activations()))
		r := newRandom()
		x, dy, y, dx := newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, s.shape...), newField[T](r, 2*s.gap, s.shape...)
		if x.Elements() > 100 {
			x.memory[50] = T(math.NaN())
		}
		refY, refDX := reference.Activation(act, x.values(), dy.values())
		ptY, ptDX := reference.Activation(act, x.typed(), dy.typed())
		verify[T](t, fmt.Sprint(act, " ", name(s.shape, s.gap)), func(b *cpu.Backend) ([]result, error) {
			if err := b.Activate(act, x.Tensor, y.Tensor); err != nil {
				return nil, err
			}
			err := b.ActivateBackward(act, x.Tensor, dy.Tensor, dx.Tensor)
			return []result{resultOf("y", y, refY, ptY), resultOf("dx", dx, refDX, ptDX)}, err
		})
	}
}

// Where x² is beyond the largest number, the slope is still 0 or 1.
func TestActivationSlopeFarFromZero(t *testing.T) {
	far := []float32{3e19, -3e19, 1e38, -1e38, math.MaxFloat32, -math.MaxFloat32, 2, -2}
	x, dy, dx := kernels.Of(far, len(far)), kernels.Of(make([]float32, len(far)), len(far)), make([]float32, len(far))
	kernels.FillHost(dy, 1)
	for _, act := range []kernels.Activation{kernels.GELUTanh, kernels.GELUErf, kernels.SiLU, kernels.ReLU, kernels.QuickGELU} {
		want := make([]float64, len(far))
		_, slopes := reference.Activation(act, []float64{2, -2}, []float64{1, 1})
		for i, v := range far {
			switch {
			case math.Abs(float64(v)) == 2:
				want[i] = slopes[i%2]
			case v > 0:
				want[i] = 1
			}
		}
		verify[float32](t, act.String(), func(b *cpu.Backend) ([]result, error) {
			err := b.ActivateBackward(act, x, dy, kernels.Of(dx, len(dx)))
			return []result{{name: "dx", got: widened(dx), ref: want, pt: want, steps: 2}}, err
		})
	}
}

func TestSwiGLU(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testSwiGLU[float32], testSwiGLU[float64])
}

func testSwiGLU[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		gate, up, dy, y, dGate, dUp := f(), f(), f(), f(), f(), f()
		refY, refGate, refUp := reference.SwiGLU(gate.values(), up.values(), dy.values())
		ptY, ptGate, ptUp := reference.SwiGLU(gate.typed(), up.typed(), dy.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.SwiGLU(gate.Tensor, up.Tensor, y.Tensor); err != nil {
				return nil, err
			}
			err := b.SwiGLUBackward(gate.Tensor, up.Tensor, dy.Tensor, dGate.Tensor, dUp.Tensor)
			return []result{resultOf("y", y, refY, ptY), resultOf("dGate", dGate, refGate, ptGate), resultOf("dUp", dUp, refUp, ptUp)}, err
		})
	}
}

// The halves of one projection are gate and up where they lie, and take their gradients there.
func TestSwiGLUInPlace(t *testing.T) {
	r := newRandom()
	both, dy := newField[float64](r, 0, 9, 26), newField[float64](r, 0, 9, 13)
	gate, up := both.Slice(1, 0, 13), both.Slice(1, 13, 26)
	var g, u []float64
	for i, v := range both.values() {
		if i%26 < 13 {
			g = append(g, v)
		} else {
			u = append(u, v)
		}
	}
	_, wantGate, wantUp := reference.SwiGLU(g, u, dy.values())
	if err := cpu.New().SwiGLUBackward(gate, up, dy.Tensor, gate, up); err != nil {
		t.Fatal(err)
	}
	for i, v := range both.values() {
		want := wantGate
		if i%26 >= 13 {
			want = wantUp
		}
		if e := math.Abs(v - want[i/26*13+i%13]); e > 1e-14 {
			t.Fatalf("element %d is off by %.3g", i, e)
		}
	}
}

func TestActivationErrors(t *testing.T) {
	b, x := cpu.New(), kernels.Of(make([]float32, 6), 2, 3)
	double := kernels.Of(make([]float64, 6), 2, 3)
	ids := kernels.Of(make([]int32, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: activation: activation is 9, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh", b.Activate(9, x, x)},
		{"cpu: activation: x is int32, it needs to be of floats", b.Activate(kernels.SiLU, ids, x)},
		{"cpu: activation: y is float64, it needs to be float32", b.Activate(kernels.SiLU, x, double)},
		{"cpu: activation: y has shape [3 2] and strides [1 3], it needs shape [2 3]", b.Activate(kernels.SiLU, x, x.Permute(1, 0))},
		{"cpu: activation backward: dy is missing, it needs shape [2 3]", b.ActivateBackward(kernels.SiLU, x, kernels.Tensor{}, x)},
		{"cpu: activation backward: dx has shape [2 3] but no data", b.ActivateBackward(kernels.SiLU, x, x, shapeOnly(2, 3))},
		{"cpu: swiglu: up has strides [1 2] for shape [2 3], it needs a stride of 1 on axis 1",
			b.SwiGLU(x, kernels.Of(make([]float32, 6), 3, 2).Permute(1, 0), x)},
	})
}
