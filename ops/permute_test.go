package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Elements and gradients are where the definition says, for every order of three axes.
func TestPermute(t *testing.T) {
	for _, axes := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		shape := []int{2, 3, 4}
		testOp(t, []opCase{{
			options: fmt.Sprint(axes), in: []opInput{floats("x", shape...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Permute(in[0], axes...) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				x := float64sOf(in[0])
				out, d := make([]float64, len(x)), make([]float64, len(x))
				for i := range x {
					place := []int{i / 12, i / 4 % 3, i % 4}
					to := (place[axes[0]]*shape[axes[1]]+place[axes[1]])*shape[axes[2]] + place[axes[2]]
					out[to], d[i] = x[i], dOut[to]
				}
				return out, [][]float64{d}
			},
		}})
	}
	g := gorgonia.NewGraph()
	x := node(g, "x", tensor.Float32, 2, 3)
	for _, axes := range [][]int{{0}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}} {
		want := fmt.Sprintf("Permute: axes are %v, they need to be the numbers of x's axes, each once: x has shape [2 3]", axes)
		if _, err := ops.Permute(x, axes...); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// Parts lie behind each other along any axis, and each has its own gradient.
func TestConcat(t *testing.T) {
	for axis := range 3 {
		one, two := []int{2, 3, 4}, []int{2, 3, 4}
		two[axis] = 5
		inner := []int{12, 4, 1}[axis] // elements that one index of the axis has
		testOp(t, []opCase{{
			options: fmt.Sprint("axis ", axis), in: []opInput{floats("x", one...), floats("y", two...)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Concat(axis, in...) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				x, y := float64sOf(in[0]), float64sOf(in[1])
				var out, dx, dy []float64
				for len(dx) < len(x) {
					for _, part := range []struct {
						from []float64
						d    *[]float64
						n    int
					}{{x, &dx, one[axis] * inner}, {y, &dy, two[axis] * inner}} {
						*part.d = append(*part.d, dOut[len(out):][:part.n]...)
						out = append(out, part.from[len(*part.d)-part.n:][:part.n]...)
					}
				}
				return out, [][]float64{dx, dy}
			},
		}})
	}
	g := gorgonia.NewGraph()
	x, y := node(g, "x", tensor.Float32, 2, 3), node(g, "y", tensor.Float32, 3, 3)
	for want, parts := range map[string]gorgonia.Nodes{
		"Concat: part 1 is float32 of shape [3 3], it needs to be float32 of part 0's shape [2 3] but for axis 1": {x, y},
		"Concat: part 1 is nil, it needs to be a node":                                                            {x, nil},
	} {
		if _, err := ops.Concat(1, parts...); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
