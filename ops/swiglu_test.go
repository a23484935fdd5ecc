package ops_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestSwiGLU(t *testing.T) {
	slow.Emulated(t)
	var cases []opCase
	for _, shape := range elementShapes {
		cases = append(cases, opCase{
			options: "SwiGLU", in: []opInput{floats("gate", shape...), floats("up", shape...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.SwiGLU(in[0], in[1]) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				y, dGate, dUp := reference.SwiGLU(float64sOf(in[0]), float64sOf(in[1]), dOut)
				return y, [][]float64{dGate, dUp}
			},
		})
	}
	testOp(t, cases)
}
