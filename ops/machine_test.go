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

// Two inputs whose names hash alike are one to a tapeMachine, which then adds a vector to itself.
func TestMachineRefusesNodesOfOneHash(t *testing.T) {
	sum := func(a, b string) (g *gorgonia.ExprGraph, sum, x, y *gorgonia.Node) {
		g = gorgonia.NewGraph()
		input := func(name string, value ...float64) *gorgonia.Node {
			return gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(2), gorgonia.WithName(name), gorgonia.WithValue(tensor.New(tensor.WithBacking(value))))
		}
		x, y = input(a, 1, 2), input(b, 10, 20)
		return g, gorgonia.Must(ops.Add(x, y)), x, y
	}
	g, _, x, y := sum("x682451501", "x867542288")
	if x.Hashcode() != y.Hashcode() {
		t.Fatalf("the hashes are %#x and %#x, this test needs two names of one", x.Hashcode(), y.Hashcode())
	}
	_, err := ops.NewMachine(g)
	if err == nil || !strings.Contains(err.Error(), `"x682451501" and "x867542288" have one hash`) && !strings.Contains(err.Error(), `"x867542288" and "x682451501" have one hash`) {
		t.Errorf("the error is %v, it needs to name both", err)
	}
	g, total, _, _ := sum("x682451501", "another")
	vm, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	if got := total.Value().Data().([]float64); got[0] != 11 || got[1] != 22 {
		t.Errorf("the sum is %v, it needs to be 11 and 22", got)
	}
}
