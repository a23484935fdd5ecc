package cpu_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestSoftCap(t *testing.T) { bothTypes(t, testSoftCap[float32], testSoftCap[float64]) }

func testSoftCap[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		f := func() field[T] { return newField[T](r, s.gap, s.shape...) }
		x, dy, y, dx := f(), f(), f(), f()
		refY, refDX := reference.SoftCap(1.5, x.values(), dy.values())
		ptY, ptDX := reference.SoftCap(1.5, x.typed(), dy.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.SoftCap(1.5, x.Tensor, y.Tensor); err != nil {
				return nil, err
			}
			err := b.SoftCapBackward(1.5, y.Tensor, dy.Tensor, dx.Tensor)
			return []result{resultOf("y", y, refY, ptY), resultOf("dx", dx, refDX, ptDX)}, err
		})
	}
}

func TestSoftCapErrors(t *testing.T) {
	b, x := cpu.New(), kernels.Of(make([]float32, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: softcap: cap is 0, it needs to be positive", b.SoftCap(0, x, x)},
		{"cpu: softcap: cap is 1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", b.SoftCap(1e39, x, x)},
		{"cpu: softcap backward: cap is 1e-40, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", b.SoftCapBackward(1e-40, x, x, x)},
		{"cpu: softcap backward: dy is missing, it needs shape [2 3]", b.SoftCapBackward(1, x, kernels.Tensor{}, x)},
	})
}
