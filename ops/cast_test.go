package ops_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Numbers become the nearest ones of the other type, and so do gradients on their way back.
func TestCast(t *testing.T) {
	for dtype, rounded := range map[tensor.Dtype]func(float32) float32{
		ops.BFloat16: func(x float32) float32 { return kernels.ToBFloat16(x).Float32() },
		ops.Float16:  func(x float32) float32 { return kernels.ToFloat16(x).Float32() },
	} {
		g := gorgonia.NewGraph()
		data := []float32{1, 1.0001, -3.14159, 1e-3, 0, 300.7}
		x := gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(data)), gorgonia.WithName("x"))
		weights := []float32{1.001, 2, 3, 4, 5, 6.003}
		w := gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(weights)), gorgonia.WithName("w"))
		half := gorgonia.Must(ops.Cast(x, dtype))
		if half.Dtype() != dtype {
			t.Fatalf("the node is %v", half.Dtype())
		}
		back := gorgonia.Must(ops.Cast(half, tensor.Float32))
		loss := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(back, w))))
		gradients, err := gorgonia.Grad(loss, x)
		if err != nil {
			t.Fatal(err)
		}
		run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
		for i, want := range data {
			if got := back.Value().Data().([]float32)[i]; got != rounded(want) {
				t.Errorf("%v: %v became %v, want %v", dtype, want, got, rounded(want))
			}
			if got, want := gradients[0].Value().Data().([]float32)[i], rounded(weights[i]); got != want {
				t.Errorf("%v: the gradient is %v, want %v", dtype, got, want)
			}
		}
	}
	g := gorgonia.NewGraph()
	x := node(g, "x", tensor.Float32, 2)
	if same, err := ops.Cast(x, tensor.Float32); err != nil || same != x {
		t.Errorf("a cast to the same type gives %v and %v", same, err)
	}
	if _, err := ops.Cast(x, tensor.Int); err == nil || err.Error() != "Cast: dtype is int, it needs to be float32, float64, BFloat16 or Float16" {
		t.Errorf("the error is %v", err)
	}
	if _, err := ops.Cast(nil, tensor.Float32); err == nil {
		t.Error("a node that is nil is cast")
	}
}

// Rows that are looked up and cast in one pass have the bits of two passes, and so has the table's
// gradient.
func TestEmbeddingAs(t *testing.T) {
	for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16, tensor.Float64} {
		g := gorgonia.NewGraph()
		table := input(g, "table", dense(tensor.Float32, normal(rand.New(rand.NewPCG(1, 1)), 7*33), 7, 33))
		weights := input(g, "weights", dense(tensor.Float32, normal(rand.New(rand.NewPCG(1, 2)), 5*33), 5, 33))
		ids := input(g, "ids", tensor.New(tensor.WithShape(5), tensor.WithBacking([]int{3, 0, 3, 6, 3})))
		apart := gorgonia.Must(ops.Cast(gorgonia.Must(ops.Embedding(table, ids)), dtype))
		var outputs, gradients [2][]float32
		for i, out := range []*gorgonia.Node{apart, gorgonia.Must(ops.EmbeddingAs(table, ids, dtype))} {
			if out.Dtype() != dtype {
				t.Fatalf("the node is %v, it needs to be %v", out.Dtype(), dtype)
			}
			wide := gorgonia.Must(ops.Cast(out, tensor.Float32))
			d, err := gorgonia.Backpropagate(gorgonia.Nodes{gorgonia.Must(ops.Mul(wide, weights))}, gorgonia.Nodes{weights}, gorgonia.Nodes{table})
			if err != nil {
				t.Fatal(err)
			}
			ops.Keep(wide, d[0])
			run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
			outputs[i], gradients[i] = slices.Clone(wide.Value().Data().([]float32)), slices.Clone(d[0].Value().Data().([]float32))
		}
		if !slices.Equal(outputs[0], outputs[1]) || !slices.Equal(gradients[0], gradients[1]) {
			t.Errorf("%v: %v and %v in one pass, %v and %v in two", dtype, outputs[1], gradients[1], outputs[0], gradients[0])
		}
	}
}

// A key mask is what its definition says, for every type of mask and with and without a bias.
func TestKeyMaskIsItsDefinition(t *testing.T) {
	masks := []any{[]bool{true, false, true, false, false, true}, []float32{1, 0, 2, 0, 0, -1}, []float64{1, 0, 2, 0, 0, -1}, []int{1, 0, 2, 0, 0, -1}, []int32{1, 0, 2, 0, 0, -1}}
	for _, m := range masks {
		for _, batch := range []int{0, 1, 2} {
			g := gorgonia.NewGraph()
			mask := gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(m)), gorgonia.WithName("mask"))
			var bias *gorgonia.Node
			numbers := make([]float64, batch*2*2*3)
			for i := range numbers {
				numbers[i] = float64(i) + 0.5
			}
			if batch > 0 {
				bias = gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(batch, 2, 2, 3), tensor.WithBacking(numbers)), gorgonia.WithName("bias"))
			}
			out := gorgonia.Must(ops.KeyMask(mask, bias, tensor.Float64))
			run(t, gorgonia.NewTapeMachine(g))
			visible := []bool{true, false, true, false, false, true}
			rows := 1
			if batch > 0 {
				rows = 4
			}
			var want []float64
			for b := range 2 {
				for row := range rows {
					for j := range 3 {
						x := 0.0
						if batch > 0 {
							x = numbers[(b%batch*4+row)*3+j]
						}
						if !visible[b*3+j] {
							x = math.Inf(-1)
						}
						want = append(want, x)
					}
				}
			}
			if got := out.Value().Data().([]float64); !slices.Equal(got, want) {
				t.Errorf("a mask of %T with %d biases gives %v, want %v", m, batch, got, want)
			}
		}
	}
}
