package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Every operation gives, at every level, what it gives in float64, to a few steps of its type; NaN
// and infinities included.
func TestPointwise(t *testing.T) {
	testPointwise[float32](t, 4e-7)
	testPointwise[float64](t, 1e-15)
}

func testPointwise[T kernels.Float](t *testing.T, unit float64) {
	random := rand.New(rand.NewPCG(1, 2))
	special := []float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 88.5, -88.5, 88.8, 709.7, 200, -200, 1e-3, 1e30}
	const rows, n, stride = 5, 71, 96
	for _, level := range Levels() {
		restore := SetLevel(level)
		for _, op := range []score.Op{OpMulAdd, OpSubMul, OpMulNonzero, score.OpSelect, score.OpAdd, score.OpSub, score.OpMul, score.OpDiv, score.OpMin, score.OpMax,
			score.OpLess, score.OpLessEqual, score.OpEqual, score.OpNeg, score.OpAbs, score.OpExp, score.OpLog, score.OpTanh, score.OpSigmoid,
			score.OpSin, score.OpCos} {
			var data [3][]T
			var operands [3]Points[T]
			for k := range data {
				data[k] = make([]T, rows*stride)
				for i := range data[k] {
					data[k][i] = T(random.NormFloat64() * 3)
					if random.IntN(4) == 0 {
						data[k][i] = T(special[random.IntN(len(special))])
					}
				}
				operands[k] = Points[T]{At: &data[k][0], Stride: stride}
				if random.IntN(3) == 0 {
					operands[k].Same = true
					for r := range rows {
						fill(data[k][r*stride:][:16], data[k][r*stride])
					}
				}
			}
			element := func(k, r, c int) T {
				if operands[k].Same {
					c = 0
				}
				return data[k][r*stride+c]
			}
			out := make([]T, rows*stride)
			Pointwise(op, rows, n, &out[0], stride, operands[0], operands[1], operands[2])
			for r := range rows {
				for c := range n {
					x, y, z := element(0, r, c), element(1, r, c), element(2, r, c)
					got, want := float64(out[r*stride+c]), float64(T(point(op, float64(x), float64(y), float64(z))))
					if bound := unit * max(math.Abs(want), smallest[T]()); !(math.Abs(got-want) <= bound) && got != want && (got == got || want == want) {
						if (op == OpMulAdd || op == OpSubMul) && math.Abs(got-want) <= unit*(math.Abs(float64(x)*float64(y))+math.Abs(float64(z))) {
							continue
						}
						t.Fatalf("%v: %v of %v, %v, %v is %v instead of %v", level, op, x, y, z, got, want)
					}
				}
			}
		}
		restore()
	}
}

// smallest is about the smallest normal number, below which results may be 0.
func smallest[T kernels.Float]() float64 {
	if size[T]() == 4 {
		return 1e-38 / 4e-7
	}
	return 1e-307 / 1e-15
}

func fill[T any](list []T, x T) {
	for i := range list {
		list[i] = x
	}
}
