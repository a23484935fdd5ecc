package cpu_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestMul(t *testing.T) { bothTypes(t, testMul[float32], testMul[float64]) }

func testMul[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		f := func(gap int) field[T] { return newField[T](r, gap, s.shape...) }
		x, y, product, scaled := f(s.gap), f(0), f(2*s.gap), f(s.gap)
		want, _, _ := reference.Mul(x.typed(), y.typed(), y.typed())
		wantScaled := reference.Scale(-1.5, x.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.Mul(x.Tensor, y.Tensor, product.Tensor); err != nil {
				return nil, err
			}
			err := b.MulScalar(-1.5, x.Tensor, scaled.Tensor)
			return []result{resultOf("c", product, widened(want), want), resultOf("y", scaled, widened(wantScaled), wantScaled)}, err
		})
	}
}

func TestMulErrors(t *testing.T) {
	b, x := cpu.New(), kernels.Of(make([]float32, 6), 2, 3)
	double := kernels.Of(make([]float64, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: mul: b is float64, it needs to be float32", b.Mul(x, double, x)},
		{"cpu: mul scalar: factor is NaN, it needs to be finite", b.MulScalar(math.NaN(), x, x)},
		{"cpu: mul scalar: factor is -1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", b.MulScalar(-1e39, x, x)},
		{"cpu: mul scalar: y is missing, it needs shape [2 3]", b.MulScalar(1, x, kernels.Tensor{})},
	})
}
