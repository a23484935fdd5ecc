package ops

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rounder is a backend that counts what is rounded to 8 bits, and may round for each product anew.
type rounder struct {
	kernels.Backend
	apart            bool
	ahead, turned    int // matrices that were rounded ahead of products, by rows and by columns
	within, products int // operands that products round, and products
}

func (b *rounder) TurnFloat8(rows, columns kernels.Float8Sides) error {
	b.turned++
	if b.apart {
		return nil
	}
	return b.Backend.TurnFloat8(rows, columns)
}

func (b *rounder) RoundFloat8(x kernels.Tensor, r kernels.Float8Rounding) error {
	b.ahead++
	if b.apart {
		return nil
	}
	return b.Backend.RoundFloat8(x, r)
}

func (b *rounder) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if b.apart {
		m.RoundedA, m.RoundedB = kernels.Float8Sides{}, kernels.Float8Sides{}
	}
	b.products++
	var alone bool
	switch e := m.Epilogue.(type) {
	case kernels.Gate:
		if e.Rounding.IsSet() {
			b.ahead++
		}
		if b.apart {
			e.RoundedBUp, e.Rounding.Alone = kernels.Float8Sides{}, false
			m.Epilogue = e
		}
		alone = e.Rounding.Alone
	case kernels.GateGradient:
		if e.Rounding.IsSet() {
			b.ahead++
		}
		if b.apart {
			e.Rounding.Alone = false
			m.Epilogue = e
		}
		if alone = e.Rounding.Alone; alone {
			defer b.Backend.Fill(e.DUp, math.NaN())
		}
	}
	if alone {
		defer b.Backend.Fill(out.C, math.NaN())
	}
	for _, s := range []kernels.Float8Sides{m.RoundedA, m.RoundedB} {
		if !s.IsSet() {
			b.within++
		}
	}
	return b.Backend.MatMul(m, out)
}

// Layers round what products read once, for both directions of a run, and have the results of
// products that round, but for numbers that are small beside others of their row. Nothing reads
// what is left undefined.
func TestLayersRoundOnce(t *testing.T) {
	backend := host
	defer func() { host = backend }()
	const rows, in, out = 20, 24, 40
	must := gorgonia.Must
	several := func(list gorgonia.Nodes, err error) *gorgonia.Node {
		if err != nil {
			t.Fatal(err)
		}
		return must(Concat(1, list...))
	}
	type parameters func(shape ...int) *gorgonia.Node
	for _, c := range []struct {
		name                  string
		build                 func(x *gorgonia.Node, p parameters, apart bool) *gorgonia.Node
		ahead, turned, within int
	}{
		{"Linear", func(x *gorgonia.Node, p parameters, _ bool) *gorgonia.Node {
			return must(Linear(x, p(in, out), p(out), LinearOptions{Activation: kernels.SiLU}))
		}, 3, 3, 0},
		{"Linears", func(x *gorgonia.Node, p parameters, _ bool) *gorgonia.Node {
			return several(Linears(x, gorgonia.Nodes{p(in, out), p(in, out), p(in, 8)}, nil))
		}, 3, 3, 0},
		{"LinearsSideBySide", func(x *gorgonia.Node, p parameters, _ bool) *gorgonia.Node {
			return must(LinearsSideBySide(x, gorgonia.Nodes{p(in, out), p(in, 8)}, nil))
		}, 3, 3, 0},
		{"MLP", func(x *gorgonia.Node, p parameters, _ bool) *gorgonia.Node {
			return must(MLP(x, p(in, out), p(out), p(out, in), p(in), MLPOptions{Activation: kernels.GELUTanh}))
		}, 6, 6, 0},
		{"SwiGLUMLP", func(x *gorgonia.Node, p parameters, apart bool) *gorgonia.Node {
			if apart { // so that down reads what its input is made of
				first, err := Linears(x, gorgonia.Nodes{p(in, out), p(in, out)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return must(Linear(must(SwiGLU(first[0], first[1])), p(out, in), nil, LinearOptions{}))
			}
			return must(SwiGLUMLP(x, p(in, out), p(in, out), p(out, in), SwiGLUMLPBiases{}))
		}, 6, 6, 0},
	} {
		var first [][]float32
		for _, apart := range []bool{true, false} {
			r := &rounder{Backend: backend, apart: apart}
			host = r
			g, random := gorgonia.NewGraph(), rand.New(rand.NewPCG(1, 2))
			var wanted gorgonia.Nodes
			node := func(shape ...int) *gorgonia.Node {
				list := make([]float32, tensor.Shape(shape).TotalSize())
				for i := range list {
					list[i] = float32(random.NormFloat64())
				}
				n := gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(string(rune('a'+len(wanted)))),
					gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(list))))
				wanted = append(wanted, n)
				return n
			}
			x := node(rows, in)
			y := must(Cast(c.build(must(Cast(x, BFloat16)), node, apart), tensor.Float32))
			loss := must(gorgonia.Sum(must(gorgonia.Square(y))))
			if err := ModeOf(g).AllowPrecision(kernels.PrecisionFloat8); err != nil {
				t.Fatal(err)
			}
			gradients, err := gorgonia.Grad(loss, wanted...)
			if err != nil {
				t.Fatal(err)
			}
			Keep(append(gradients, y)...)
			if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
				t.Fatal(err)
			}
			var got [][]float32
			for _, n := range append(gradients, y) {
				list := n.Value().Data().([]float32)
				if !slices.ContainsFunc(list, func(x float32) bool { return x != 0 && !math.IsNaN(float64(x)) }) {
					t.Fatalf("%s: %v is all zeros or NaN", c.name, n)
				}
				got = append(got, slices.Clone(list))
			}
			if apart {
				first = got
				continue
			}
			for i, list := range got {
				largest, worst := 0.0, 0.0
				for j, x := range list {
					largest, worst = max(largest, math.Abs(float64(first[i][j]))), max(worst, math.Abs(float64(x-first[i][j])))
				}
				if !(worst <= 3e-5*largest) {
					t.Errorf("%s: result %d is %.2g of its largest off what products that round give", c.name, i, worst/largest)
				}
			}
			if r.ahead != c.ahead || r.turned != c.turned || r.within != c.within {
				t.Errorf("%s: %d matrices were rounded ahead, %d turned and %d operands rounded in %d products, want %d, %d and %d", c.name, r.ahead, r.turned, r.within, r.products, c.ahead, c.turned, c.within)
			}
		}
	}
}
