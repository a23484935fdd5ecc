package nn_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// at is the element of a tensor, broadcast to a shape, at a place in that shape.
func at(values []float64, shape, whole []int, place int) float64 {
	index, stride := 0, 1
	for i := len(whole) - 1; i >= 0; i-- {
		if k := i - len(whole) + len(shape); k >= 0 {
			if shape[k] > 1 {
				index += place % whole[i] * stride
			}
			stride *= shape[k]
		}
		place /= whole[i]
	}
	return values[index]
}

// Arithmetic broadcasts as its definition says, with gradients that finite differences have too.
func TestBroadcasting(t *testing.T) {
	operations := map[string]struct {
		tensors func(x, y nn.Tensor) nn.Tensor
		numbers func(x, y float64) float64
	}{
		"Add": {func(x, y nn.Tensor) nn.Tensor { return x.Add(y) }, func(x, y float64) float64 { return x + y }},
		"Sub": {func(x, y nn.Tensor) nn.Tensor { return x.Sub(y) }, func(x, y float64) float64 { return x - y }},
		"Mul": {func(x, y nn.Tensor) nn.Tensor { return x.Mul(y) }, func(x, y float64) float64 { return x * y }},
		"Div": {func(x, y nn.Tensor) nn.Tensor { return x.Div(y) }, func(x, y float64) float64 { return x / y }},
	}
	for name, op := range operations {
		for _, c := range []struct{ x, y, want []int }{
			{[]int{2, 3}, []int{2, 3}, []int{2, 3}},
			{[]int{2, 3}, []int{3}, []int{2, 3}},
			{[]int{3}, []int{2, 3}, []int{2, 3}},
			{[]int{2, 1, 4}, []int{2, 3, 4}, []int{2, 3, 4}},
			{[]int{2, 3, 4}, []int{1, 3, 1}, []int{2, 3, 4}},
			{[]int{2, 1, 4, 1}, []int{3, 1, 5}, []int{2, 3, 4, 5}},
			{[]int{1, 1, 300}, []int{2, 2, 1}, []int{2, 2, 300}},
			{[]int{1}, []int{5}, []int{5}},
			{[]int{1, 1}, []int{1}, []int{1, 1}},
		} {
			values := [2][]float64{}
			for i, shape := range [][]int{c.x, c.y} {
				for k := range tensor.Shape(shape).TotalSize() {
					values[i] = append(values[i], 1.5+value(fmt.Sprint(name, i), k))
				}
			}
			shapes := [2][]int{c.x, c.y}
			// The sum of out·weight has a gradient that is linear in each operand, but for
			// quotients.
			cost := func(values [2][]float64) float64 {
				sum := 0.0
				for k := range tensor.Shape(c.want).TotalSize() {
					sum += value("weight", k) * op.numbers(at(values[0], c.x, c.want, k), at(values[1], c.y, c.want, k))
				}
				return sum
			}
			s := nn.NewScope(gorgonia.NewGraph(), nil)
			x, y := s.Constant("x", data.Floats(values[0], c.x...)), s.Constant("y", data.Floats(values[1], c.y...))
			out := op.tensors(x, y)
			weight := s.Constant("weight", dense(tensor.Float64, c.want, func(i int) float64 { return value("weight", i) }))
			loss := out.Mul(weight).Sum()
			if s.Err() != nil || !slices.Equal(out.Shape(), c.want) {
				t.Fatalf("%s of %v and %v has shape %v, want %v: %v", name, c.x, c.y, out.Shape(), c.want, s.Err())
			}
			var got gorgonia.Value
			gorgonia.Read(out.Node(), &got)
			differentiate(t, "tape", s.Graph(), loss.Node(), gorgonia.Nodes{x.Node(), y.Node()})
			for k, have := range floats(t, got) {
				if want := op.numbers(at(values[0], c.x, c.want, k), at(values[1], c.y, c.want, k)); !(math.Abs(have-want) <= 1e-14) {
					t.Fatalf("%s of %v and %v: element %d is %v, want %v", name, c.x, c.y, k, have, want)
				}
			}
			for i, n := range []*gorgonia.Node{x.Node(), y.Node()} {
				gradient, err := n.Grad()
				if err != nil {
					t.Fatal(err)
				}
				for k, have := range floats(t, gradient) {
					const step = 1e-5
					moved := [2][2][]float64{}
					for j, by := range []float64{step, -step} {
						moved[j] = [2][]float64{slices.Clone(values[0]), slices.Clone(values[1])}
						moved[j][i][k] += by
					}
					if want := (cost(moved[0]) - cost(moved[1])) / (2 * step); !(math.Abs(have-want) <= 1e-7*(1+math.Abs(want))) {
						t.Fatalf("%s of %v and %v: element %d of the gradient of operand %d (%v) is %v, want %v", name, c.x, c.y, k, i, shapes[i], have, want)
					}
				}
			}
		}
	}
}

// Methods compute what their names say, with gradients that finite differences have too.
func TestTensorFunctions(t *testing.T) {
	shape := []int{2, 3, 4}
	row := func(x []float64, i int) []float64 { return x[i/4*4 : i/4*4+4] }
	sumExp := func(x []float64) (sum float64) {
		for _, v := range x {
			sum += math.Exp(v)
		}
		return sum
	}
	each := func(f func(float64) float64) func([]float64) []float64 {
		return func(x []float64) []float64 {
			y := make([]float64, len(x))
			for i := range x {
				y[i] = f(x[i])
			}
			return y
		}
	}
	along := func(by float64) func(x []float64) []float64 { // the middle axis
		return func(x []float64) []float64 {
			y := make([]float64, 8)
			for i := range x {
				y[i/12*4+i%4] += by * x[i]
			}
			return y
		}
	}
	for name, c := range map[string]struct {
		method func(x nn.Tensor) nn.Tensor
		want   func(x []float64) []float64
	}{
		"Exp":     {nn.Tensor.Exp, each(math.Exp)},
		"Log":     {func(x nn.Tensor) nn.Tensor { return x.Add(2).Log() }, each(func(x float64) float64 { return math.Log(x + 2) })},
		"Sqrt":    {func(x nn.Tensor) nn.Tensor { return x.Add(2).Sqrt() }, each(func(x float64) float64 { return math.Sqrt(x + 2) })},
		"Abs":     {nn.Tensor.Abs, each(math.Abs)},
		"ReLU":    {nn.Tensor.ReLU, each(func(x float64) float64 { return max(x, 0) })},
		"Clip":    {func(x nn.Tensor) nn.Tensor { return x.Clip(0.4) }, each(func(x float64) float64 { return min(max(x, -0.4), 0.4) })},
		"Sigmoid": {nn.Tensor.Sigmoid, each(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })},
		"Tanh":    {nn.Tensor.Tanh, each(math.Tanh)},
		"Square":  {nn.Tensor.Square, each(func(x float64) float64 { return x * x })},
		"SiLU":    {nn.Tensor.SiLU, each(func(x float64) float64 { return x / (1 + math.Exp(-x)) })},
		"GELU":    {nn.Tensor.GELU, each(func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 })},
		"numbers": {func(x nn.Tensor) nn.Tensor { return x.Mul(3).Add(1).Sub(0.5).Div(2) }, each(func(x float64) float64 { return (3*x + 0.5) / 2 })},
		"Softmax along the middle": {func(x nn.Tensor) nn.Tensor { return x.Softmax(1) }, func(x []float64) []float64 {
			y := make([]float64, len(x))
			for i := range x {
				at := i/12*12 + i%4
				y[i] = math.Exp(x[i]) / sumExp([]float64{x[at], x[at+4], x[at+8]})
			}
			return y
		}},
		"Max of two axes": {func(x nn.Tensor) nn.Tensor { return x.Max(0, -1) }, func(x []float64) (y []float64) {
			for s := range 3 {
				y = append(y, max(slices.Max(row(x, 4*s)), slices.Max(row(x, 12+4*s))))
			}
			return y
		}},
		"Max of all": {func(x nn.Tensor) nn.Tensor { return x.Max() }, func(x []float64) []float64 { return []float64{slices.Max(x)} }},
		"TopK, Gather and Scatter": {func(x nn.Tensor) nn.Tensor {
			values, ids := x.TopK(2)
			return values.Add(x.Square().Gather(ids)).Scatter(ids, 4)
		}, func(x []float64) []float64 {
			y := make([]float64, len(x))
			for i := range x {
				above := 0
				for _, v := range row(x, i) {
					if v > x[i] {
						above++
					}
				}
				if above < 2 {
					y[i] = x[i] + x[i]*x[i]
				}
			}
			return y
		}},
		"Softmax": {func(x nn.Tensor) nn.Tensor { return x.Softmax() }, func(x []float64) []float64 {
			y := make([]float64, len(x))
			for i := range x {
				y[i] = math.Exp(x[i]) / sumExp(row(x, i))
			}
			return y
		}},
		"Sum":  {func(x nn.Tensor) nn.Tensor { return x.Sum(-2) }, along(1)},
		"Mean": {func(x nn.Tensor) nn.Tensor { return x.Mean(1) }, along(1. / 3)},
		"Chunk": {func(x nn.Tensor) nn.Tensor {
			return nn.Concat(-1, x.Chunk(-1, 2)...).Mul(x.Chunk(1, 3)[1].Select(1, -1).Reshape(2, 1, 4))
		},
			func(x []float64) []float64 {
				y := make([]float64, len(x))
				for i := range x {
					y[i] = x[i] * x[i/12*12+4+i%4]
				}
				return y
			}},
		"Slice": {func(x nn.Tensor) nn.Tensor { return x.Slice(1, 1, 3).Slice(-1, 1, -1) }, func(x []float64) []float64 {
			return []float64{x[5], x[6], x[9], x[10], x[17], x[18], x[21], x[22]}
		}},
		"Pad": {func(x nn.Tensor) nn.Tensor { return x.Pad(2, -3, 1, 0.5) }, func(x []float64) []float64 {
			return []float64{x[3], 0.5, x[7], 0.5, x[11], 0.5, x[15], 0.5, x[19], 0.5, x[23], 0.5}
		}},
		"Unbind": {func(x nn.Tensor) nn.Tensor {
			parts := x.Unbind(2, 4)
			return parts[3].Sub(parts[0]).Reshape(-1)
		}, func(x []float64) []float64 {
			y := make([]float64, 6)
			for i := range y {
				y[i] = x[4*i+3] - x[4*i]
			}
			return y
		}},
	} {
		values := make([]float64, 24)
		for i := range values {
			values[i] = value(name, i)
		}
		s := nn.NewScope(gorgonia.NewGraph(), nil)
		x := s.Constant("x", data.Floats(values, shape...))
		out := c.method(x)
		if s.Err() != nil {
			t.Fatalf("%s: %v", name, s.Err())
		}
		var got gorgonia.Value
		gorgonia.Read(out.Node(), &got)
		evaluate(t, s.Graph())
		for i, want := range c.want(values) {
			if have := floats(t, got)[i]; !(math.Abs(have-want) <= 1e-12) {
				t.Errorf("%s: element %d is %v, want %v", name, i, have, want)
			}
		}
		err := gradcheck.Graph(func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
			s := nn.NewScope(g, nil)
			x := s.Constant("x", dense(dtype, shape, func(i int) float64 { return values[i] }))
			y := c.method(x)
			return y.Node(), gorgonia.Nodes{x.Node()}, s.Err()
		}, gradcheck.Options{Contiguous: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Clip of 16 bits gives numbers that 16 bits have, and leaves those within the limits as they are.
func TestClipIn16Bits(t *testing.T) {
	for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
		s := nn.NewScope(gorgonia.NewGraph(), nil)
		values := []float32{-1000, -8.5, -8, -0.01, 0, 3, 7.5, 8, 13, 60000}
		y := s.Constant("x", data.Floats(values, 2, 5)).Cast(dtype).Clip(8)
		same := s.Constant("same", data.Floats(values, 2, 5)).Cast(dtype).Cast(tensor.Float32)
		out := y.Cast(tensor.Float32)
		var have, as gorgonia.Value
		gorgonia.Read(out.Node(), &have)
		gorgonia.Read(same.Node(), &as)
		evaluate(t, s.Graph())
		for i, x := range as.Data().([]float32) {
			if got := have.Data().([]float32)[i]; got != min(max(x, -8), 8) {
				t.Errorf("%v: %v is clipped to %v", dtype, x, got)
			}
		}
	}
}

// Losses add up, with numbers and with each other.
func TestScalars(t *testing.T) {
	s := nn.NewScope(gorgonia.NewGraph(), nil)
	x := s.Constant("x", data.Floats([]float64{1, 2, 3, 4}, 2, 2))
	loss := x.Mean().Mul(2).Add(x.Square().Sum()).Sub(1).Div(4)
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	differentiate(t, "tape", s.Graph(), loss.Node(), gorgonia.Nodes{x.Node()})
	if have := floats(t, loss.Node().Value())[0]; have != (5+30-1)/4. {
		t.Errorf("the loss is %v, want 8.5", have)
	}
	gradient, err := x.Node().Grad()
	if err != nil {
		t.Fatal(err)
	}
	for i, have := range floats(t, gradient) {
		if want := (0.5 + 2*float64(i+1)) / 4; !(math.Abs(have-want) <= 1e-15) {
			t.Errorf("element %d of the gradient is %v, want %v", i, have, want)
		}
	}
}

// What is wrong with a tensor's operands is said once, with the line, and what follows does
// nothing.
func TestTensorErrors(t *testing.T) {
	array := func(s *nn.Scope, name string, shape ...int) nn.Tensor {
		return s.Constant(name, dense(tensor.Float32, shape, func(int) float64 { return 0 }))
	}
	for want, model := range map[string]func(s *nn.Scope){
		"Add: x has shape [2 3 8] and y [2 5 8], which do not broadcast: the sizes of an axis are 3 and 5": func(s *nn.Scope) {
			x := array(s, "x", 2, 3, 8).Add(array(s, "y", 2, 5, 8))
			x = s.MLP("mlp", x).LayerNorm().Mul(x)
			for _, part := range x.Unbind(1, 3) {
				part.Reshape(7).MatMul(x)
			}
		},
		"Mul: y is a string, it needs to be a Tensor, an int or a float":                                func(s *nn.Scope) { array(s, "x", 2).Mul("y") },
		"Sub: y is a zero Tensor, it needs to be one of the model's":                                    func(s *nn.Scope) { array(s, "x", 2).Sub(nn.Tensor{}) },
		"Add: y belongs to another graph than x":                                                        func(s *nn.Scope) { array(s, "x", 2).Add(array(nn.NewScope(gorgonia.NewGraph(), nil), "y", 2)) },
		"Add: x has shape [2] and y [], which do not broadcast: a scalar goes with scalars and numbers": func(s *nn.Scope) { x := array(s, "x", 2); x.Add(x.Sum()) },
		"Reshape: x has shape [2 3], it cannot become [4 -1]":                                           func(s *nn.Scope) { array(s, "x", 2, 3).Reshape(4, -1) },
		"Select: axis is 2, it needs to be one of shape [2 3]":                                          func(s *nn.Scope) { array(s, "x", 2, 3).Select(2, 0) },
		"Unbind: axis 1 of shape [2 3] has 3 elements, it needs 4":                                      func(s *nn.Scope) { _ = array(s, "x", 2, 3).Unbind(1, 4)[3] },
		"Chunk: n is 2, it needs to divide axis -1 of shape [2 3]":                                      func(s *nn.Scope) { _ = array(s, "x", 2, 3).Chunk(-1, 2)[1] },
		"Div: y is 0, it needs to be another number":                                                    func(s *nn.Scope) { array(s, "x", 2, 3).Div(0) },
		"Clip: limit is 0, it needs to be positive and finite":                                          func(s *nn.Scope) { array(s, "x", 2).Clip(0) },
		"TopK: k is 4, it needs to be from 1 to 3: x has shape [2 3]":                                   func(s *nn.Scope) { _, _ = array(s, "x", 2, 3).TopK(4) },
		"Gather: ids is float32, it needs to be int, int32 or int64":                                    func(s *nn.Scope) { array(s, "x", 2, 3).Gather(array(s, "y", 2, 2)) },
		"Scatter: ids is a zero Tensor, it needs to be one of the model's":                              func(s *nn.Scope) { array(s, "x", 2, 3).Scatter(nn.Tensor{}, 5) },
		"Max: axis is 2, it needs to be one of shape [2 3]":                                             func(s *nn.Scope) { array(s, "x", 2, 3).Max(2) },
		"Softmax: axes are [0 1], it needs to be one":                                                   func(s *nn.Scope) { array(s, "x", 2, 3).Softmax(0, 1) },
		"Constant: x is nil, it needs to be an array":                                                   func(s *nn.Scope) { s.Constant("x", data.Floats([]float32{1, 2}, 3)) },
		"MultiHeadAttention: dim is 8, it needs to be a multiple of heads, which is 3": func(s *nn.Scope) {
			x := array(s, "x", 2, 3, 8)
			s.Attention("attn", x, 3).Add(x).Square()
		},
	} {
		checkScope(t, want, model)
	}
}
