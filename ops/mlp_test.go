package ops_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestMLP(t *testing.T) {
	slow.Emulated(t)
	var cases []opCase
	for _, c := range []struct {
		x           []int
		hidden, out int
	}{{[]int{1}, 1, 1}, {[]int{5}, 3, 4}, {[]int{1, 7}, 5, 1}, {[]int{2, 3, 5}, 7, 5}, {[]int{2, 17, 13}, 33, 9}} {
		in := c.x[len(c.x)-1]
		for act := kernels.NoActivation; act <= kernels.SiLU; act++ { // finite differences meet the corner of the other one
			for _, bias := range []bool{true, false} {
				list := []opInput{floats("x", c.x...), floats("in", in, c.hidden), floats("out", c.hidden, c.out)}
				if bias {
					list = append(list, floats("inBias", c.hidden), floats("outBias", c.out))
				}
				cases = append(cases, opCase{
					options: fmt.Sprint("MLP with ", act), in: list,
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						in = append(in[:len(in):len(in)], nil, nil)
						return ops.MLP(in[0], in[1], in[3], in[2], in[4], ops.MLPOptions{Activation: act})
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						first, second := []kernels.Tensor{in[0], in[1]}, []kernels.Tensor{{}, in[2]}
						if bias {
							first, second = append(first, in[3]), append(second, in[4])
						}
						rows := in[0].Elements() / in[1].Shape[0]
						h, _ := linearByReference(act, first, make([]float64, rows*in[1].Shape[1]))
						second[0] = kernels.Of(h, rows, in[1].Shape[1])
						out, ofSecond := linearByReference(kernels.NoActivation, second, dOut)
						_, ofFirst := linearByReference(act, first, ofSecond[0])
						d := [][]float64{ofFirst[0], ofFirst[1], ofSecond[1]}
						if bias {
							d = append(d, ofFirst[2], ofSecond[2])
						}
						return out, d
					},
				})
			}
		}
	}
	testOp(t, cases)
}

// An MLP has the bits of two linear layers, in 16 bits too.
func TestMLPIsTwoLinearLayers(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, ops.BFloat16, ops.Float16} {
		var results [2]map[string][]float64
		for i := range results {
			g := gorgonia.NewGraph()
			results[i] = map[string][]float64{}
			value := func(name string, seed uint64, shape ...int) *gorgonia.Node {
				return input(g, name, dense(tensor.Float32, normal(rand.New(rand.NewPCG(seed, 1)), elements(shape)), shape...))
			}
			x := value("x", 1, 6, 33)
			parameters := gorgonia.Nodes{value("in", 2, 33, 70), value("inBias", 3, 70), value("out", 4, 70, 21), value("outBias", 5, 21)}
			narrow, p := gorgonia.Must(ops.Cast(x, dtype)), parameters
			var y *gorgonia.Node
			if i == 0 {
				h := gorgonia.Must(ops.Linear(narrow, p[0], p[1], ops.LinearOptions{Activation: kernels.GELUTanh}))
				y = gorgonia.Must(ops.Linear(h, p[2], p[3], ops.LinearOptions{}))
			} else {
				y = gorgonia.Must(ops.MLP(narrow, p[0], p[1], p[2], p[3], ops.MLPOptions{Activation: kernels.GELUTanh}))
			}
			y = gorgonia.Must(ops.Cast(y, x.Dtype()))
			loss := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(y, y))))
			wrt := append(gorgonia.Nodes{x}, parameters...)
			gradients, err := gorgonia.Grad(loss, wrt...)
			if err != nil {
				t.Fatal(err)
			}
			ops.Keep(append(gradients, y)...)
			run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
			results[i]["y"] = float64s(t, y.Value())
			for n, d := range gradients {
				results[i]["d"+wrt[n].Name()] = float64s(t, d.Value())
			}
		}
		for name, want := range results[0] {
			if got := results[1][name]; !slices.Equal(got, want) {
				t.Errorf("%v: %s is %v, of two layers %v", dtype, name, got, want)
			}
		}
	}
}
