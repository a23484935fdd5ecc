package ops_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A machine that has run says so when it is run again, and runs after a Reset.
func TestMachineRunsOnceAReset(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewScalar(g, gorgonia.Float32, gorgonia.WithName("x"), gorgonia.WithValue(float32(3)))
	y := gorgonia.Must(gorgonia.Square(x))
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for n := range 3 {
		if err := gorgonia.Let(x, float32(n)); err != nil {
			t.Fatal(err)
		}
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		if got := y.Value().Data(); got != float32(n*n) {
			t.Errorf("the square of %d is %v", n, got)
		}
		if err := m.RunAll(); err == nil || !strings.Contains(err.Error(), "needs a Reset") {
			t.Errorf("the second run of two gives %v", err)
		}
		m.Reset()
	}
}

// An error of a run names the op, the number, and the input of the graph that holds it.
func TestRunErrorNamesTheInput(t *testing.T) {
	g := gorgonia.NewGraph()
	table := input(g, "words.weight", dense(tensor.Float32, make([]float64, 12), 3, 4))
	tokens := input(g, "tokens", tensor.New(tensor.WithShape(2), tensor.WithBacking([]int{1, 7})))
	gorgonia.Must(ops.Embedding(table, tokens))
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const want = "Embedding: cpu: ids[1] is 7, it needs to be from 0 to 2 (ids is tokens)"
	if err := m.RunAll(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
