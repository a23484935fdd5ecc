package ops

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// joining is the host with a kernel for products of rows, which it takes where a function says so.
type joining struct {
	kernels.Backend
	takes          func(p *kernels.RowsProduct) bool
	normed, summed int // how many products did a norm's work, and a sum's
}

func (j *joining) TakesRowsProduct(p *kernels.RowsProduct) bool {
	return p.Validate() == nil && j.takes(p)
}

func (j *joining) RowsProductForward(p *kernels.RowsProduct, c kernels.Tensor) error {
	if err := p.Check(c); err != nil {
		return err
	}
	if p.Norm != nil {
		j.normed++
	}
	if p.Residual.IsSet() {
		j.summed++
	}
	kernels.CopyHost(c, kernels.Of(reference.RowsProduct(p), c.Shape...))
	return nil
}

// rowsGraph is a graph of norms, products and sums of any of the nodes before them.
func rowsGraph(t *testing.T, seed uint64) (g *gorgonia.ExprGraph, all *gorgonia.Node) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	g = gorgonia.NewGraph()
	ReuseMemory(g)
	ModeOf(g).Evaluate()
	const rows, dim = 2, 4
	value := func(name string, shape ...int) *gorgonia.Node {
		v := tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float64))
		for i := range v.Float64s() {
			v.Float64s()[i] = r.NormFloat64()
		}
		return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(v))
	}
	x, gamma, bias := value("x", rows, dim), value("gamma", dim), value("bias", dim)
	var weights gorgonia.Nodes
	for _, name := range []string{"w0", "w1", "w2"} {
		weights = append(weights, value(name, dim, dim))
	}
	nodes := gorgonia.Nodes{x}
	recent := func() *gorgonia.Node { return nodes[max(0, len(nodes)-1-r.IntN(3))] }
	for range 6 + r.IntN(10) {
		var n, sum *gorgonia.Node
		var err error
		switch r.IntN(8) {
		case 0:
			n, err = RMSNorm(recent(), gamma, NormOptions{})
		case 1:
			sum, n, err = AddRMSNorm(recent(), recent(), gamma, NormOptions{})
			nodes = append(nodes, sum)
		case 2:
			n, err = RMSNormOfSum(recent(), recent(), nil, NormOptions{Epsilon: 0.1})
		case 3:
			n, err = Linear(recent(), weights[r.IntN(3)], []*gorgonia.Node{nil, bias}[r.IntN(2)], LinearOptions{})
		case 4:
			n, err = SwiGLUMLP(recent(), weights[0], weights[1], weights[2], SwiGLUMLPBiases{Down: bias})
		case 5:
			n, err = LinearsSideBySide(recent(), weights[:1], nil)
		case 6:
			n, err = MatMul(recent(), weights[r.IntN(3)], MatMulOptions{TransposeB: r.IntN(2) == 0})
		default:
			n, err = Add(recent(), recent())
		}
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return g, gorgonia.Must(Concat(0, nodes[len(nodes)-1], recent()))
}

// Steps that do the work of those before them give what these would have given, whatever the device
// takes, and in a second run too.
func TestPostponedWork(t *testing.T) {
	plain := host
	defer func() { host = plain }()
	var normed, summed int
	for seed := range uint64(100) {
		var want []float64
		for way, takes := range []func(p *kernels.RowsProduct) bool{
			func(*kernels.RowsProduct) bool { return false },
			func(*kernels.RowsProduct) bool { return true },
			func(p *kernels.RowsProduct) bool { return p.Norm == nil },
			func(p *kernels.RowsProduct) bool { return !p.Residual.IsSet() },
			func(p *kernels.RowsProduct) bool { return !p.Gated && (p.Norm == nil || !p.Residual.IsSet()) },
		} {
			device := &joining{Backend: plain, takes: takes}
			host = device
			g, all := rowsGraph(t, seed)
			machine, err := NewMachine(g)
			if err != nil {
				t.Fatal(err)
			}
			for run := range 2 {
				if err := machine.RunAll(); err != nil {
					t.Fatalf("seed %d, way %d: %v", seed, way, err)
				}
				got := all.Value().Data().([]float64)
				if want == nil {
					want = append(want, got...)
				}
				for i := range want {
					if !(math.Abs(got[i]-want[i]) <= 1e-9*(1+math.Abs(want[i]))) {
						t.Fatalf("seed %d, way %d, run %d: element %d is %v, it needs to be %v", seed, way, run, i, got[i], want[i])
					}
				}
				machine.Reset()
			}
			normed, summed = normed+device.normed, summed+device.summed
		}
	}
	if normed < 30 || summed < 30 {
		t.Errorf("%d products did a norm's work and %d a sum's, the graphs need to have more", normed, summed)
	}
}
