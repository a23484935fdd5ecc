package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The part at an index is that of the definition, and its gradient is zero elsewhere.
func TestSelect(t *testing.T) {
	shape := []int{2, 3, 4}
	for axis, length := range shape {
		for index := range length {
			testOp(t, []opCase{{
				options: fmt.Sprintf("axis %d, index %d", axis, index), in: []opInput{floats("x", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Select(in[0], axis, index) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					x := float64sOf(in[0])
					var out []float64
					d := make([]float64, len(x))
					for i := range x {
						place := []int{i / 12, i / 4 % 3, i % 4}
						if place[axis] == index {
							if len(out) < len(dOut) {
								d[i] = dOut[len(out)]
							}
							out = append(out, x[i])
						}
					}
					return out, [][]float64{d}
				},
			}})
		}
	}
	g := gorgonia.NewGraph()
	x := node(g, "x", tensor.Float32, 2, 3)
	for _, c := range []struct {
		axis, index int
		want        string
	}{
		{2, 0, "Select: axis is 2, it needs to be from 0 to x's last, 1"},
		{-1, 0, "Select: axis is -1, it needs to be from 0 to x's last, 1"},
		{1, 3, "Select: index is 3, it needs to be from 0 to 2: x has shape [2 3]"},
	} {
		if _, err := ops.Select(x, c.axis, c.index); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
