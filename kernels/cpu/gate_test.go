package cpu_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestClampedGate(t *testing.T) {
	bothTypes(t, testClampedGate[float32], testClampedGate[float64])
}

func testClampedGate[T kernels.Float](t *testing.T) {
	gate := kernels.ClampedGate{Slope: 1.702, Limit: 1.25} // which is beside many numbers
	for _, s := range []fieldShape{{0, []int{2}}, {3, []int{3, 66}}, {0, []int{2, 5, 1030}}, {0, []int{300, 64}}} {
		r := newRandom()
		half := append([]int(nil), s.shape...)
		half[len(half)-1] /= 2
		x, y, dy, dx := newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, half...), newField[T](r, 0, half...), newField[T](r, 2*s.gap, s.shape...)
		ref, refD := reference.ClampedGate(gate, x.values(), dy.values())
		pt, ptD := reference.ClampedGate(gate, x.typed(), dy.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.ClampedGate(gate, x.Tensor, y.Tensor); err != nil {
				return nil, err
			}
			err := b.ClampedGateBackward(gate, x.Tensor, dy.Tensor, dx.Tensor)
			return []result{resultOf("y", y, ref, pt), resultOf("dx", dx, refD, ptD)}, err
		})
	}
	b, x := cpu.New(), kernels.Of(make([]float32, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: clamped gate: x has shape [2 3], it needs an even number of features", b.ClampedGate(gate, x, x)},
		{"cpu: clamped gate: slope is 0, it needs to be positive", b.ClampedGate(kernels.ClampedGate{Limit: 1}, x.Reshape(3, 2), x)},
		{"cpu: clamped gate backward: dy has shape [3 2] and strides [2 1], it needs shape [3 1]", b.ClampedGateBackward(gate, x.Reshape(3, 2), x.Reshape(3, 2), x.Reshape(3, 2))},
	})
}
