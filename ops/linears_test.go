package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Two layers whose results are multiplied.
func TestLinears(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	var cases []opCase
	for _, shape := range [][]int{{1}, {5}, {1, 7}, {2, 3, 5}, {2, 17, 33}} {
		for _, columns := range []int{1, 6, 19} {
			for _, bias := range []bool{true, false} {
				in := shape[len(shape)-1]
				list := []opInput{floats("x", shape...), floats("w0", in, columns), floats("w1", in, columns)}
				if bias {
					list = append(list, floats("b0", columns), floats("b1", columns))
				}
				of := func(in []*gorgonia.Node) (gorgonia.Nodes, error) {
					if !bias {
						return ops.Linears(in[0], gorgonia.Nodes(in[1:3]), nil)
					}
					return ops.Linears(in[0], gorgonia.Nodes(in[1:3]), gorgonia.Nodes(in[3:5]))
				}
				layers := func(in []kernels.Tensor) (layers [2][]kernels.Tensor) {
					for i := range layers {
						layers[i] = []kernels.Tensor{in[0], in[1+i]}
						if bias {
							layers[i] = append(layers[i], in[3+i])
						}
					}
					return layers
				}
				cases = append(cases, opCase{
					options: "Linears", in: list,
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						out, err := of(in)
						if err != nil {
							return nil, err
						}
						return ops.Mul(out[0], out[1])
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						const none = kernels.NoActivation
						l := layers(in)
						y0, _ := linearByReference(none, l[0], dOut)
						y1, _ := linearByReference(none, l[1], dOut)
						out, d0, d1 := make([]float64, len(dOut)), make([]float64, len(dOut)), make([]float64, len(dOut))
						for i, g := range dOut {
							out[i], d0[i], d1[i] = y0[i]*y1[i], g*y1[i], g*y0[i]
						}
						_, first := linearByReference(none, l[0], d0)
						_, second := linearByReference(none, l[1], d1)
						for i, x := range second[0] {
							first[0][i] += x
						}
						d := [][]float64{first[0], first[1], second[1]}
						if bias {
							d = append(d, first[2], second[2])
						}
						return out, d
					},
				})
			}
		}
	}
	testOp(t, cases)
}

// biasesOf are biases, or nil for none.
func biasesOf(in []*gorgonia.Node) gorgonia.Nodes {
	if len(in) == 0 {
		return nil
	}
	return in
}

// Three layers whose results lie side by side.
func TestLinearsSideBySide(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{5}, {1, 7}, {2, 17, 33}} {
		for _, bias := range []bool{true, false} {
			columns, in := []int{6, 1, 19}, shape[len(shape)-1]
			list := []opInput{floats("x", shape...)}
			for _, kind := range []string{"w", "b"} {
				for i, n := range columns {
					if kind == "w" {
						list = append(list, floats(fmt.Sprint(kind, i), in, n))
					} else if bias {
						list = append(list, floats(fmt.Sprint(kind, i), n))
					}
				}
			}
			cases = append(cases, opCase{
				options: "LinearsSideBySide", in: list,
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					return ops.LinearsSideBySide(in[0], gorgonia.Nodes(in[1:4]), biasesOf(in[4:]))
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					rows, width := in[0].Elements()/in[1].Shape[0], 6+1+19
					out, d, from := make([]float64, rows*width), make([][]float64, len(in)), 0
					for i, n := range columns {
						layer := []kernels.Tensor{in[0], in[1+i]}
						if bias {
							layer = append(layer, in[4+i])
						}
						dy := ordered(kernels.Of(dOut, rows, width).Slice(1, from, from+n))
						y, dLayer := linearByReference(kernels.NoActivation, layer, dy)
						for row := range rows {
							copy(out[row*width+from:][:n], y[row*n:])
						}
						if d[0] == nil {
							d[0] = make([]float64, len(dLayer[0]))
						}
						for j, x := range dLayer[0] {
							d[0][j] += x
						}
						d[1+i] = dLayer[1]
						if bias {
							d[4+i] = dLayer[2]
						}
						from += n
					}
					return out, d
				},
			})
		}
	}
	testOp(t, cases)
}

func TestSwiGLUMLP(t *testing.T) {
	var cases []opCase
	for _, c := range []struct {
		x           []int
		hidden, out int
	}{{[]int{1}, 1, 1}, {[]int{5}, 3, 4}, {[]int{1, 7}, 5, 1}, {[]int{2, 3, 5}, 7, 5}, {[]int{2, 17, 13}, 33, 9}} {
		for _, bias := range []bool{true, false} {
			in := c.x[len(c.x)-1]
			list := []opInput{floats("x", c.x...), floats("gate", in, c.hidden), floats("up", in, c.hidden), floats("down", c.hidden, c.out)}
			if bias {
				list = append(list, floats("gateBias", c.hidden), floats("upBias", c.hidden), floats("downBias", c.out))
			}
			cases = append(cases, opCase{
				options: "SwiGLUMLP", in: list,
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					var biases ops.SwiGLUMLPBiases
					if bias {
						biases = ops.SwiGLUMLPBiases{Gate: in[4], Up: in[5], Down: in[6]}
					}
					return ops.SwiGLUMLP(in[0], in[1], in[2], in[3], biases)
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					layer := func(i int, x kernels.Tensor) []kernels.Tensor {
						list := []kernels.Tensor{x, in[i]}
						if bias {
							list = append(list, in[3+i])
						}
						return list
					}
					const none = kernels.NoActivation
					rows, hidden := in[0].Elements()/in[1].Shape[0], in[1].Shape[1]
					nothing := make([]float64, rows*hidden)
					gate, _ := linearByReference(none, layer(1, in[0]), nothing)
					up, _ := linearByReference(none, layer(2, in[0]), nothing)
					h, _, _ := reference.SwiGLU(gate, up, nothing)
					out, ofDown := linearByReference(none, layer(3, kernels.Of(h, rows, hidden)), dOut)
					_, dGate, dUp := reference.SwiGLU(gate, up, ofDown[0])
					_, ofGate := linearByReference(none, layer(1, in[0]), dGate)
					_, ofUp := linearByReference(none, layer(2, in[0]), dUp)
					for i, x := range ofUp[0] {
						ofGate[0][i] += x
					}
					d := [][]float64{ofGate[0], ofGate[1], ofUp[1], ofDown[1]}
					if bias {
						d = append(d, ofGate[2], ofUp[2], ofDown[2])
					}
					return out, d
				},
			})
		}
	}
	testOp(t, cases)
}

// joined are a gated MLP and three layers of one input, in one type and by ops that do much or
// little at once: results and gradients by name.
func joined(t *testing.T, dtype tensor.Dtype, together bool) map[string][]float64 {
	g := gorgonia.NewGraph()
	value := func(name string, seed uint64, shape ...int) *gorgonia.Node {
		return input(g, name, dense(tensor.Float32, normal(rand.New(rand.NewPCG(seed, 1)), elements(shape)), shape...))
	}
	x := value("x", 1, 6, 33)
	p := gorgonia.Nodes{value("gate", 2, 33, 70), value("up", 3, 33, 70), value("down", 4, 70, 33), value("q", 5, 33, 24), value("k", 6, 33, 9), value("v", 7, 33, 16)}
	narrow := gorgonia.Must(ops.Cast(x, dtype))
	linear := func(x, w *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(ops.Linear(x, w, nil, ops.LinearOptions{}))
	}
	var y *gorgonia.Node
	var parts gorgonia.Nodes
	if together {
		y = gorgonia.Must(ops.SwiGLUMLP(narrow, p[0], p[1], p[2], ops.SwiGLUMLPBiases{}))
		var err error
		if parts, err = ops.Linears(y, p[3:], nil); err != nil {
			t.Fatal(err)
		}
	} else {
		y = linear(gorgonia.Must(ops.SwiGLU(linear(narrow, p[0]), linear(narrow, p[1]))), p[2])
		parts = gorgonia.Nodes{linear(y, p[3]), linear(y, p[4]), linear(y, p[5])}
	}
	var loss *gorgonia.Node
	for i, part := range parts {
		part = gorgonia.Must(ops.Cast(part, tensor.Float32))
		parts[i] = part
		term := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(part, part))))
		if loss == nil {
			loss = term
		} else {
			loss = gorgonia.Must(gorgonia.Add(loss, term))
		}
	}
	wrt := append(gorgonia.Nodes{x}, p...)
	gradients, err := gorgonia.Grad(loss, wrt...)
	if err != nil {
		t.Fatal(err)
	}
	ops.Keep(append(gradients, parts...)...)
	run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
	results := map[string][]float64{}
	for i, n := range parts {
		results[fmt.Sprint("part ", i)] = float64s(t, n.Value())
	}
	for i, d := range gradients {
		results["d"+wrt[i].Name()] = float64s(t, d.Value())
	}
	return results
}

// What is computed together has the bits of what is computed apart, and its gradients in 16 bits
// are at least as close to those in float32, but for an unlucky rounding.
func TestLayersOfOneInput(t *testing.T) {
	want := joined(t, tensor.Float32, false)
	for _, dtype := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
		apart, together := joined(t, dtype, false), joined(t, dtype, true)
		for name, exact := range want {
			if name[0] == 'p' && !slices.Equal(apart[name], together[name]) {
				t.Errorf("%v: %s is %v, apart %v", dtype, name, together[name], apart[name])
			}
			largest, worst, usual := 0.0, 0.0, 0.0
			for i, x := range exact {
				largest = max(largest, math.Abs(x))
				worst, usual = max(worst, math.Abs(together[name][i]-x)), max(usual, math.Abs(apart[name][i]-x))
			}
			if !(worst <= 1.5*usual+1e-6*largest) {
				t.Errorf("%v: %s is up to %g from float32's, apart up to %g", dtype, name, worst, usual)
			}
		}
	}
}

// A layer whose result nothing uses has a gradient of zeros, and adds nothing to that of x.
func TestLinearsOfWhichOneIsUsed(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
		var dx [2][]float64
		for i := range dx {
			g := gorgonia.NewGraph()
			value := func(name string, seed uint64, shape ...int) *gorgonia.Node {
				return input(g, name, dense(tensor.Float32, normal(rand.New(rand.NewPCG(seed, 1)), elements(shape)), shape...))
			}
			x, used, unused, bias := value("x", 1, 6, 33), value("used", 2, 33, 70), value("unused", 3, 33, 21), value("bias", 4, 21)
			narrow, wrt := gorgonia.Must(ops.Cast(x, dtype)), gorgonia.Nodes{x}
			var y *gorgonia.Node
			if i == 0 {
				y = gorgonia.Must(ops.Linear(narrow, used, nil, ops.LinearOptions{}))
			} else {
				out, err := ops.Linears(narrow, gorgonia.Nodes{unused, used}, gorgonia.Nodes{bias, nil})
				if err != nil {
					t.Fatal(err)
				}
				y, wrt = out[1], append(wrt, unused, bias)
			}
			y = gorgonia.Must(ops.Cast(y, tensor.Float32))
			gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(y, y)))), wrt...)
			if err != nil {
				t.Fatal(err)
			}
			ops.Keep(gradients...)
			run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
			dx[i] = float64s(t, gradients[0].Value())
			for _, d := range gradients[1:] {
				for _, x := range float64s(t, d.Value()) {
					if x != 0 {
						t.Errorf("%v: an unused layer's gradient is %v", dtype, d.Value())
						break
					}
				}
			}
		}
		if !slices.Equal(dx[0], dx[1]) {
			t.Errorf("%v: the gradient of x is %v, of the used layer alone %v", dtype, dx[1], dx[0])
		}
	}
}
