package ops_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Weights in 16 bits beside an x of float32 count as what they are: layers, and the gradients of all else, are those of the same
// weights in float32.
func TestWeightsIn16Bits(t *testing.T) {
	const in, hidden = 40, 70
	for name, layer := range map[string]struct {
		weights [][]int
		of      func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error)
	}{
		"Linear": {[][]int{{in, hidden}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Linear(x, w[0], bias, ops.LinearOptions{Activation: kernels.SiLU})
		}},
		"Linears": {[][]int{{in, hidden}, {in, hidden}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			out, err := ops.Linears(x, w, gorgonia.Nodes{bias, nil})
			if err != nil {
				return nil, err
			}
			return ops.Mul(out[0], out[1])
		}},
		"MLP": {[][]int{{in, hidden}, {hidden, in}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.MLP(x, w[0], bias, w[1], nil, ops.MLPOptions{Activation: kernels.GELUTanh})
		}},
		"SwiGLUMLP": {[][]int{{in, hidden}, {in, hidden}, {hidden, in}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.SwiGLUMLP(x, w[0], w[1], w[2], ops.SwiGLUMLPBiases{Gate: bias})
		}},
		"MatMul": {[][]int{{hidden, in}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := ops.MatMul(x, w[0], ops.MatMulOptions{TransposeB: true})
			if err != nil {
				return nil, err
			}
			return ops.MatMul(y, bias, ops.MatMulOptions{})
		}},
	} {
		for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
			for _, rows := range []int{1, 3, 20} {
				var found [2][][]float32
				for kept := range found {
					r, g := rand.New(rand.NewPCG(5, 6)), gorgonia.NewGraph()
					random := func(name string, shape ...int) *gorgonia.Node {
						data := make([]float32, tensor.Shape(shape).TotalSize())
						for i := range data {
							data[i] = float32(r.NormFloat64())
						}
						return gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), gorgonia.WithName(name))
					}
					x, bias := random("x", rows, in), random("bias", hidden)
					var weights gorgonia.Nodes
					for i, shape := range layer.weights {
						w := random(string(rune('a'+i)), shape...)
						value, err := ops.Converted(w.Value(), dtype)
						if err == nil && kept == 0 {
							value, err = ops.Converted(value, tensor.Float32)
						}
						if err != nil {
							t.Fatal(err)
						}
						weights = append(weights, gorgonia.NewTensor(g, value.Dtype(), 2, gorgonia.WithShape(shape...), gorgonia.WithName("kept "+w.Name()), gorgonia.WithValue(value)))
					}
					y, err := layer.of(x, weights, bias)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(y, y)))), x, bias)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
					for _, n := range append(gorgonia.Nodes{y}, gradients...) {
						found[kept] = append(found[kept], n.Value().Data().([]float32))
					}
				}
				for i, want := range found[0] {
					var off, size float64
					for j, x := range want {
						off, size = max(off, math.Abs(float64(x-found[1][i][j]))), max(size, math.Abs(float64(x)))
					}
					if !(off <= 1e-5*size) {
						t.Errorf("%s in %v, %d rows: result %d differs by %v of its largest element", name, dtype, rows, i, off/size)
					}
				}
			}
		}
	}
}

// A weight in 16 bits has no gradient beside float32, and goes with no other type.
func TestWeightsIn16BitsErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	x, half := node(g, "x", tensor.Float32, 2, 3), node(g, "half", ops.BFloat16, 3, 5)
	y := gorgonia.Must(ops.Linear(x, half, nil, ops.LinearOptions{}))
	if _, err := gorgonia.Grad(gorgonia.Must(ops.Sum(y)), half); err == nil {
		t.Error("a weight that is kept in 16 bits has a gradient")
	}
	_, err := ops.Linear(node(g, "double", tensor.Float64, 2, 3), half, nil, ops.LinearOptions{})
	if want := "Linear: weight is bfloat16, x is float64: they need one dtype"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for want, convert := range map[string]func() (*tensor.Dense, error){
		"Converted: the value is nil": func() (*tensor.Dense, error) { return ops.Converted(nil, ops.BFloat16) },
		"Converted: dtype is int, it needs": func() (*tensor.Dense, error) {
			return ops.Converted(tensor.New(tensor.WithBacking([]float32{1})), tensor.Int)
		},
		"Converted: the value is int, it nee": func() (*tensor.Dense, error) {
			return ops.Converted(tensor.New(tensor.WithBacking([]int{1})), ops.BFloat16)
		},
	} {
		if _, err := convert(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
