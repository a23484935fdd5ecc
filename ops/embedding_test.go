package ops_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestEmbedding(t *testing.T) {
	var cases []opCase
	for _, c := range []struct {
		vocabulary, features int
		ids                  []int
	}{{1, 1, []int{1}}, {1, 3, []int{2}}, {7, 5, []int{1, 1}}, {11, 17, []int{2, 13}}, {5, 33, []int{3, 2, 4}}, {300, 2, []int{31}}} {
		cases = append(cases, opCase{
			options: "Embedding",
			in:      []opInput{floats("table", c.vocabulary, c.features), ids("ids", c.vocabulary, c.ids...)},
			apply:   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Embedding(in[0], in[1]) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				e := &kernels.Embedding{Table: in[0], IDs: in[1]}
				return reference.Embedding[float64](e), [][]float64{reference.EmbeddingGrad(e, dOut), nil}
			},
		})
	}
	testOp(t, cases)
}

// TestEmbeddingOfEveryInteger looks up ids of each type, also through a transposed view, and new
// ids in the next run.
func TestEmbeddingOfEveryInteger(t *testing.T) {
	views := map[string]func(list []int) *tensor.Dense{
		"int": func(list []int) *tensor.Dense {
			return tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(slices.Clone(list)))
		},
		"int32": func(list []int) *tensor.Dense {
			narrow := make([]int32, len(list))
			for i, x := range list {
				narrow[i] = int32(x)
			}
			return tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(narrow))
		},
		"int64": func(list []int) *tensor.Dense {
			return tensor.New(tensor.WithShape(2, 3), tensor.WithBacking(int64s(list)))
		},
		"transposed int": func(list []int) *tensor.Dense {
			columns := make([]int, len(list))
			for i, x := range list {
				columns[i%3*2+i/3] = x
			}
			v := tensor.New(tensor.WithShape(3, 2), tensor.WithBacking(columns))
			if err := v.T(); err != nil {
				t.Fatal(err)
			}
			return v
		},
	}
	for name, view := range views {
		g := gorgonia.NewGraph()
		table := input(g, "table", dense(tensor.Float64, []float64{0, 1, 2, 3}, 4, 1))
		first := view([]int{3, 1, 2, 0, 0, 1})
		ids := node(g, "ids", first.Dtype(), 2, 3)
		out := gorgonia.Must(ops.Embedding(table, ids))
		m := gorgonia.NewTapeMachine(g)
		for _, list := range [][]int{{3, 1, 2, 0, 0, 1}, {0, 0, 3, 3, 2, 1}} {
			if err := gorgonia.Let(ids, view(list)); err != nil {
				t.Fatal(err)
			}
			run(t, m)
			want := make([]float64, len(list))
			for i, x := range list {
				want[i] = float64(x)
			}
			if got := float64s(t, out.Value()); !slices.Equal(got, want) || fmt.Sprint(out.Shape()) != "(2, 3, 1)" {
				t.Errorf("%s: rows %v of shape %v, want %v", name, got, out.Shape(), want)
			}
		}
	}
}
