package ops_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A table that is looked up and multiplied with has the gradient that the sum of both gives, to the
// bit, whether the lookup's is added to the product's in its memory or Gorgonia adds them up.
func TestTableOfTwoUses(t *testing.T) {
	apart, _ := tableOfTwoUses(t, false, false)
	together, plan := tableOfTwoUses(t, true, false)
	seen, seenPlan := tableOfTwoUses(t, true, true)
	if fmt.Sprint(apart) != fmt.Sprint(together) || fmt.Sprint(apart) != fmt.Sprint(seen) {
		t.Errorf("the gradients are %v together, %v where one is looked at, want %v", together, seen, apart)
	}
	if adds := "adds to "; !strings.Contains(plan, adds) || strings.Contains(seenPlan, adds) {
		t.Errorf("the lookup should add to the product's gradient where nobody looks at it: %s\nand not: %s", plan, seenPlan)
	}
}

// tableOfTwoUses gives the gradients of three runs, and the plan.
func tableOfTwoUses(t *testing.T, reuses, kept bool) (list [][]float32, plan string) {
	const vocabulary, dim, rows = 13, 8, 40
	g, r := gorgonia.NewGraph(), rand.New(rand.NewPCG(1, 2))
	table := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(vocabulary, dim), gorgonia.WithName("table"))
	ids := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(rows), gorgonia.WithName("ids"))
	targets := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(rows), gorgonia.WithName("targets"))
	x := gorgonia.Must(ops.GELU(gorgonia.Must(ops.Embedding(table, ids))))
	loss := gorgonia.Must(ops.LinearCrossEntropy(x, table, targets, ops.LinearCrossEntropyOptions{}))
	gradients, err := gorgonia.Grad(loss, table)
	if err != nil {
		t.Fatal(err)
	}
	if reuses {
		ops.ReuseMemory(g)
	}
	for terms := g.From(gradients[0].ID()); kept && terms.Next(); {
		ops.Keep(terms.Node().(*gorgonia.Node))
	}
	var text bytes.Buffer
	if err := ops.WritePlan(&text, g); err != nil {
		t.Fatal(err)
	}
	machine, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	weights := make([]float32, vocabulary*dim)
	for i := range weights {
		weights[i] = float32(r.NormFloat64())
	}
	for range 3 {
		lookups, answers := make([]int, rows), make([]int, rows)
		for i := range rows {
			lookups[i], answers[i] = r.IntN(vocabulary/2), r.IntN(vocabulary)
		}
		for n, v := range map[*gorgonia.Node]any{table: weights, ids: lookups, targets: answers} {
			if err := gorgonia.Let(n, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(v))); err != nil {
				t.Fatal(err)
			}
		}
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		list = append(list, append([]float32(nil), gradients[0].Value().Data().([]float32)...))
		machine.Reset()
	}
	return list, text.String()
}
