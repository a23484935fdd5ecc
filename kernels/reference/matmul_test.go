package reference_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestMatMul(t *testing.T) {
	slow.Emulated(t)
	a := kernels.Of([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
	b := kernels.Of([]float64{1, 0, 0, 1, 1, 1}, 3, 2)
	bias := kernels.Of([]float64{10, -20}, 2)
	for _, c := range []struct {
		name    string
		p       kernels.MatMul
		initial []float64
		c, pre  []float64
	}{
		{"A·B", kernels.MatMul{A: a, B: b}, nil, []float64{4, 5, 10, 11}, []float64{4, 5, 10, 11}},
		{"Aᵀ·Bᵀ", kernels.MatMul{A: a.Permute(1, 0), B: b.Permute(1, 0)}, nil,
			[]float64{1, 4, 5, 2, 5, 7, 3, 6, 9}, []float64{1, 4, 5, 2, 5, 7, 3, 6, 9}},
		{"A·B + bias, activated", kernels.MatMul{A: a, B: b, Bias: bias, Epilogue: kernels.Activate{Activation: kernels.ReLUSquared}}, nil,
			[]float64{196, 0, 400, 0}, []float64{14, -15, 20, -9}},
		{"C + A·B + bias", kernels.MatMul{A: a, B: b, Bias: bias, Accumulate: true}, []float64{1, 2, 3, 4},
			[]float64{15, -13, 23, -5}, []float64{15, -13, 23, -5}},
		{"batch, B shared", kernels.MatMul{A: a.Unflatten(0, 1), B: b}, nil, []float64{4, 5, 10, 11}, []float64{4, 5, 10, 11}},
		{"batch", kernels.MatMul{A: kernels.Of([]float64{2, 3}, 2, 1, 1), B: kernels.Of([]float64{5, 7}, 2, 1, 1)}, nil,
			[]float64{10, 21}, []float64{10, 21}},
	} {
		got, pre := reference.MatMul(&c.p, c.initial)
		if !slices.Equal(got, c.c) || !slices.Equal(pre, c.pre) {
			t.Errorf("%s is %v before and %v after the activation, it needs to be %v and %v", c.name, pre, got, c.pre, c.c)
		}
	}
}

func TestMatMulKeepsNaN(t *testing.T) {
	p := kernels.MatMul{A: kernels.Of([]float64{0, 1}, 1, 2), B: kernels.Of([]float64{math.NaN(), 2, 3, 4}, 2, 2)}
	if c, _ := reference.MatMul[float64](&p, nil); !math.IsNaN(c[0]) || c[1] != 4 {
		t.Errorf("[0 1]·[[NaN 2] [3 4]] is %v, it needs to be [NaN 4]", c)
	}
}

func TestSumRows(t *testing.T) {
	x := kernels.Of([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2)
	if got := reference.SumRows[float64](x); !slices.Equal(got, []float64{16, 20}) {
		t.Errorf("the rows' sum is %v, it needs to be [16 20]", got)
	}
}
