package ops_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestKeyMask checks the bias and the gradient of what it was made from, for every type of mask and
// on both machines.
func TestKeyMask(t *testing.T) {
	attend := []bool{true, false, true, false, false, true, true, true, true} // (3, 3)
	masks := []any{attend, []float32{1, 0, -1, 0, 0, 0.5, 1, 1, 1}, []float64{1, 0, -1, 0, 0, 0.5, 1, 1, 1},
		[]int{1, 0, 2, 0, 0, 1, 1, 1, 1}, []int32{1, 0, 2, 0, 0, 1, 1, 1, 1}, []int64{1, 0, 2, 0, 0, 1, 1, 1, 1}}
	for _, mask := range masks {
		for _, bias := range [][]int{nil, {1, 1, 1, 3}, {3, 1, 2, 3}, {1, 2, 2, 3}, {3, 2, 1, 3}} {
			for _, machine := range []string{"tapeMachine", "lispMachine"} {
				what := fmt.Sprintf("mask %T, bias %v, %s", mask, bias, machine)
				g := gorgonia.NewGraph()
				m := input(g, "mask", tensor.New(tensor.WithShape(3, 3), tensor.WithBacking(mask)))
				heads, rows, biases := 1, 1, 0
				var b *gorgonia.Node
				if bias != nil {
					biases, heads, rows = bias[0], bias[1], bias[2]
					data := make([]float64, biases*heads*rows*3)
					for i := range data {
						data[i] = float64(i + 1)
					}
					b = input(g, "bias", dense(tensor.Float64, data, bias...))
				}
				n, err := ops.KeyMask(m, b, tensor.Float64)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				// Of queries, keys and values of zeros, all that is left is the bias: in the
				// logsumexp.
				q := input(g, "q", dense(tensor.Float64, make([]float64, 3*2*2*1), 3, 2, 2, 1))
				k := input(g, "k", dense(tensor.Float64, make([]float64, 3*2*3*1), 3, 2, 3, 1))
				out, lse, err := ops.FlashAttentionLSE(q, k, k, ops.AttentionOptions{Bias: n})
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				loss := gorgonia.Must(gorgonia.Add(gorgonia.Must(ops.Sum(lse)), gorgonia.Must(ops.Sum(out))))
				var vm gorgonia.VM
				if machine == "lispMachine" {
					vm = gorgonia.NewLispMachine(g)
				} else {
					wrt := gorgonia.Nodes{q}
					if b != nil {
						wrt = append(wrt, b)
					}
					if _, err := gorgonia.Grad(loss, wrt...); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					vm = gorgonia.NewTapeMachine(g)
				}
				run(t, vm)

				got, want := float64s(t, n.Value()), make([]float64, 3*heads*rows*3)
				gradient := make([]float64, biases*heads*rows*3)
				for i := range want {
					batch, key, from := i/(heads*rows*3), i%3, i%(heads*rows*3)
					if biases == 3 {
						from = i
					}
					if want[i] = math.Inf(-1); attend[batch*3+key] {
						if want[i] = 0; bias != nil {
							want[i] = float64(from + 1)
						}
					}
					if got[i] != want[i] {
						t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
					}
				}
				if bias == nil {
					continue
				}
				// The gradient of a logsumexp is the softmax, once for each query and head that
				// reads the row.
				for i := range want {
					from := i
					if biases == 1 {
						from = i % len(gradient)
					}
					row, total := want[i/3*3:][:3], 0.0
					for _, x := range row {
						total += math.Exp(x)
					}
					gradient[from] += math.Exp(want[i]) / total * float64(2/heads*(2/rows))
				}
				for i, x := range gradientOf(t, b) {
					if !(math.Abs(x-gradient[i]) < 1e-12) {
						t.Errorf("%s: element %d of the gradient is %v, want %v", what, i, x, gradient[i])
					}
				}
			}
		}
	}
}

func TestKeyMaskErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	mask := node(g, "mask", tensor.Bool, 2, 5)
	keyMask := func(mask, bias *gorgonia.Node, dtype tensor.Dtype) error {
		_, err := ops.KeyMask(mask, bias, dtype)
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{keyMask(nil, nil, tensor.Float32), "KeyMask: mask is nil, it needs to be a node"},
		{keyMask(node(g, "mask", tensor.Byte, 2, 5), nil, tensor.Float32), "KeyMask: mask is uint8, it needs to be bool, float32, float64, BFloat16 or Float16, int, int32 or int64"},
		{keyMask(node(g, "mask", tensor.Bool, 5), nil, tensor.Float32), "KeyMask: mask has shape [5], it needs two axes (batch, keys)"},
		{keyMask(mask, nil, tensor.Int), "KeyMask: dtype is int, it needs to be float32, float64, BFloat16 or Float16"},
		{keyMask(mask, node(g, "bias", tensor.Float64, 1, 1, 1, 5), tensor.Float32), "KeyMask: bias is float64, it needs to be float32"},
		{keyMask(mask, node(g, "bias", tensor.Float32, 3, 1, 1, 5), tensor.Float32), "KeyMask: bias has shape [3 1 1 5], it needs (1 or 2, heads or 1, queries or 1, 5)"},
		{keyMask(mask, node(gorgonia.NewGraph(), "bias", tensor.Float32, 1, 1, 1, 5), tensor.Float32),
			"KeyMask: bias belongs to another graph than the inputs before it, all need one graph"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}
