package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// dora is a layer with a DoRA in float64, by plain loops over the values of its parameters.
type dora struct {
	in, out, rank       int
	scale               float64
	w, a, b, m, bias, x []float64
	lengths             []float64 // nil for those of the values as they are
}

// direction is a column of W + scale·A·B.
func (d *dora) direction(column int) []float64 {
	v := make([]float64, d.in)
	for i := range v {
		v[i] = d.w[i*d.out+column]
		for k := range d.rank {
			v[i] += d.scale * d.a[i*d.rank+k] * d.b[k*d.out+column]
		}
	}
	return v
}

func (d *dora) length(column int) float64 {
	sum := 0.0
	for _, x := range d.direction(column) {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// loss is the sum of the outputs' SiLU, each times its number.
func (d *dora) loss() (loss float64) {
	for row := range len(d.x) / d.in {
		for column := range d.out {
			z := 0.0
			for i, v := range d.direction(column) {
				z += d.x[row*d.in+i] * v
			}
			length := d.length(column)
			if d.lengths != nil {
				length = d.lengths[column]
			}
			z = z*d.m[column]/length + d.bias[column]
			loss += float64(row*d.out+column+1) * z / (1 + math.Exp(-z))
		}
	}
	return loss
}

// A DoRA computes what plain loops do. Its gradients are the differences of these with the lengths
// held as they are, and it starts as the layer was.
func TestDoRA(t *testing.T) {
	const in, out, rank, rows = 3, 4, 2, 2
	p := nn.NewParameters(7)
	if err := p.SetLoRA(nn.LoRA{Rank: 1, Sizes: func(string) (int, float64) { return rank, 3 }, Decomposed: true}); err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p).DType(tensor.Float64)
	layer := nn.NewLinear(s.Sub("l"), nn.LinearConfig{In: in, Out: out, Activation: kernels.SiLU})
	values := func(name string) []float64 { return p.Value(name).Float64s() }
	d := &dora{in: in, out: out, rank: rank, scale: 1.5, w: values("l.weight"), a: values("l.lora_a"), b: values("l.lora_b"), m: values("l.lora_m"),
		bias: values("l.bias"), x: []float64{1, 2, 3, -1, 0.5, 2}}
	for column := range out {
		if want := d.length(column); !(math.Abs(d.m[column]-want) <= 1e-12) {
			t.Errorf("the length of column %d starts as %v, want %v", column, d.m[column], want)
		}
	}
	for i := range d.b {
		d.b[i] = float64(i%3) - 0.7
	}
	for i := range d.m {
		d.m[i] += 0.3 * float64(i)
	}
	weights := make([]float64, rows*out)
	for i := range weights {
		weights[i] = float64(i + 1)
	}
	x := s.Constant("x", tensor.New(tensor.WithShape(rows, in), tensor.WithBacking(slices.Clone(d.x))))
	number := s.Constant("numbers", tensor.New(tensor.WithShape(rows, out), tensor.WithBacking(weights)))
	loss := layer.Forward(x).Mul(number).Sum()
	trained := s.Trainable()
	if s.Err() != nil || len(trained) != 3 {
		t.Fatalf("%v are trained: %v", trained, s.Err())
	}
	if _, err := gorgonia.Grad(loss.Node(), trained...); err != nil {
		t.Fatal(err)
	}
	ops.ModeOf(g).Evaluate()
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(trained...))
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	if have, want := loss.Node().Value().Data().(float64), d.loss(); !(math.Abs(have-want) <= 1e-10*math.Abs(want)) {
		t.Errorf("the loss is %v, want %v", have, want)
	}
	for column := range out {
		d.lengths = append(d.lengths, d.length(column))
	}
	var variables []gradcheck.Variable
	for _, n := range trained {
		gradient, err := n.Grad()
		if err != nil {
			t.Fatal(err)
		}
		variables = append(variables, gradcheck.Variable{Name: n.Name(), Shape: n.Shape(), X: values(n.Name()), Gradient: gradient.Data().([]float64)})
	}
	if err := gradcheck.Function(d.loss, variables, gradcheck.Options{Elements: -1}); err != nil {
		t.Error(err)
	}
}

// A DoRA drops elements of what gives the direction alone: without changes and at its start,
// nothing of x·W is dropped.
func TestDoRADropsOfTheChangeAlone(t *testing.T) {
	p := nn.NewParameters(7)
	if err := p.SetLoRA(nn.LoRA{Rank: 2, Dropout: 0.5, Decomposed: true}); err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p)
	x := s.Constant("x", tensor.New(tensor.WithShape(2, 8), tensor.WithBacking(tensor.Range(tensor.Float32, 0, 16))))
	y := nn.NewLinear(s.Sub("l"), nn.LinearConfig{In: 8, Out: 4}).Forward(x)
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	var kept gorgonia.Value
	gorgonia.Read(y.Node(), &kept)
	machine := gorgonia.NewTapeMachine(g)
	defer machine.Close()
	result := func() []float32 {
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		machine.Reset()
		return slices.Clone(kept.Data().([]float32))
	}
	ops.ModeOf(g).Evaluate()
	want := result()
	ops.ModeOf(g).Train(3)
	for i, have := range result() {
		if !(math.Abs(float64(have-want[i])) <= 1e-4) {
			t.Errorf("element %d is %v while training, %v else", i, have, want[i])
		}
	}
	b := p.Value("l.lora_b").Float32s()
	for i := range b {
		b[i] = 1
	}
	ops.ModeOf(g).Evaluate()
	want = result()
	ops.ModeOf(g).Train(3)
	if slices.Equal(result(), want) {
		t.Error("training drops nothing")
	}
}

// What is detached counts, and has no gradient.
func TestDetach(t *testing.T) {
	p := nn.NewParameters(1)
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, p).DType(tensor.Float64)
	x := s.Parameter("x", nil, 3)
	loss := x.Mul(x.Square().Detach()).Sum()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if _, err := gorgonia.Grad(loss.Node(), x.Node()); err != nil {
		t.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(x.Node()))
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	gradient, err := x.Node().Grad()
	if err != nil {
		t.Fatal(err)
	}
	for i, have := range gradient.Data().([]float64) {
		if want := math.Pow(p.Value("x").Float64s()[i], 2); !(math.Abs(have-want) <= 1e-12) {
			t.Errorf("the gradient of element %d is %v, want its square, %v", i, have, want)
		}
	}
}
