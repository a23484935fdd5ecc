package ops_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Positions of ids of every type are integers that an embedding takes.
func TestTokenPositions(t *testing.T) {
	list, want := []int{0, 0, 4, 0, 3, 2, 1, 0}, []int64{0, 0, 1, 0, 1, 2, 3, 0}
	for _, backing := range []any{list, int64s(list), []int32{0, 0, 4, 0, 3, 2, 1, 0}} {
		g := gorgonia.NewGraph()
		ids := input(g, "ids", tensor.New(tensor.WithShape(2, 4), tensor.WithBacking(backing)))
		table := input(g, "table", dense(tensor.Float64, []float64{0, 1, 2, 3, 4}, 5, 1))
		positions, err := ops.TokenPositions(ids, 0)
		if err != nil {
			t.Fatal(err)
		}
		y, err := ops.Embedding(table, positions)
		if err != nil {
			t.Fatal(err)
		}
		loss := gorgonia.Must(ops.Sum(y))
		if _, err := gorgonia.Grad(loss, table); err != nil {
			t.Fatal(err)
		}
		run(t, gorgonia.NewTapeMachine(g))
		for i, x := range y.Value().Data().([]float64) {
			if int64(x) != want[i] {
				t.Errorf("%T: position %d is %v, want %d", backing, i, x, want[i])
			}
		}
		gradient := gradOf(t, table).Data().([]float64)
		if want := []float64{4, 2, 1, 1, 0}; !slices.Equal(gradient, want) {
			t.Errorf("%T: the table's gradient is %v, want %v", backing, gradient, want)
		}
	}
	g := gorgonia.NewGraph()
	ids := input(g, "ids", tensor.New(tensor.WithShape(4), tensor.WithBacking([]int{1, 2, 3, 4})))
	if _, err := ops.TokenPositions(ids, 0); fmt.Sprint(err) != "TokenPositions: ids has shape [4], it needs two axes (batch, length)" {
		t.Error(err)
	}
}

// Rows that are frozen have no gradient from what looks them up, in any type.
func TestFrozenRows(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
		g := gorgonia.NewGraph()
		ids := input(g, "ids", tensor.New(tensor.WithShape(5), tensor.WithBacking([]int{0, 2, 1, 2, 0})))
		table := input(g, "table", dense(tensor.Float32, []float64{1, 2, 3}, 3, 1))
		y, err := ops.EmbeddingAs(table, ids, dtype, 2)
		if err != nil {
			t.Fatal(err)
		}
		loss := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Cast(y, tensor.Float32))))
		if _, err := gorgonia.Grad(loss, table); err != nil {
			t.Fatal(err)
		}
		run(t, gorgonia.NewTapeMachine(g))
		if have, want := gradOf(t, table).Data().([]float32), []float32{2, 1, 0}; !slices.Equal(have, want) {
			t.Errorf("%v: the gradient is %v, want %v", dtype, have, want)
		}
		if _, err := ops.EmbeddingAs(table, ids, dtype, 3); err == nil {
			t.Error("row 3 of 3 is frozen without an error")
		}
	}
}

func gradOf(t *testing.T, n *gorgonia.Node) gorgonia.Value {
	t.Helper()
	v, err := n.Grad()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
