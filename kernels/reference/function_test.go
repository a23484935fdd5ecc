package reference_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestFunctionGrad(t *testing.T) {
	for _, f := range kernels.Functions() {
		r := rand.New(rand.NewPCG(21, uint64(f)))
		x, dy := normals(r, 20), normals(r, 20)
		for i := range x {
			if x[i] = math.Exp(x[i]); f == kernels.Abs && i%2 == 0 {
				x[i] = -x[i]
			}
		}
		_, dx := reference.Function(f, x, dy)
		checkDifferences(t, f.String(), x, dx, func() float64 { y, _ := reference.Function(f, x, dy); return inner(y, dy) })
	}
}

func TestDivGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 0))
	a, b, dc := normals(r, 9), normals(r, 9), normals(r, 9)
	for i := range b {
		b[i] = 1.5 + math.Abs(b[i])
	}
	_, da, db := reference.Div(a, b, dc)
	loss := func() float64 { c, _, _ := reference.Div(a, b, dc); return inner(c, dc) }
	checkDifferences(t, "a", a, da, loss)
	checkDifferences(t, "b", b, db, loss)
}

func TestSoftmaxGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 0))
	x, dy := normals(r, 15), normals(r, 15)
	of := kernels.Of(x, 3, 5)
	_, dx := reference.Softmax(of, dy)
	checkDifferences(t, "x", x, dx, func() float64 { y, _ := reference.Softmax(of, dy); return inner(y, dy) })
	y, _ := reference.Softmax(kernels.Of([]float64{0, math.Log(3)}, 1, 2), []float64{0, 0})
	near(t, "probabilities", y, []float64{0.25, 0.75}, 1e-15)
}

func TestIndexedByHand(t *testing.T) {
	nan := math.NaN()
	values, ids := reference.TopK[float64](kernels.Of([]float64{1, 5, 5, 2, nan, -1, 7, 7}, 2, 4), 3)
	if !slices.Equal(ids, []int{1, 2, 3, 0, 2, 3}) || !math.IsNaN(values[3]) {
		t.Errorf("the largest are %v at %v", values, ids)
	}
	near(t, "largest", slices.Delete(values, 3, 4), []float64{5, 5, 2, 7, 7}, 0)
	at := kernels.Of([]int32{2, 0, 1, 1}, 2, 2)
	near(t, "gathered", reference.Gather[float64](kernels.Of([]float64{1, 2, 3, 4, 5, 6}, 2, 3), at), []float64{3, 1, 5, 5}, 0)
	near(t, "scattered", reference.Scatter([]float64{1, 2, 3, 4}, at, 3), []float64{2, 0, 1, 0, 7, 0}, 0)
}
