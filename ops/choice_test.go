package ops_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Two graphs of one chooser choose by what each was sent, also where the other was sent more.
func TestChooser(t *testing.T) {
	chooser, err := ops.NewChooser(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	graph := func(logits ...float32) (*ops.Choosing, gorgonia.VM) {
		g := gorgonia.NewGraph()
		values := tensor.New(tensor.WithShape(len(logits)/4, 4), tensor.WithBacking(logits))
		c, err := chooser.Add(gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(len(logits)/4, 4), gorgonia.WithValue(values), gorgonia.WithName("logits")))
		if err != nil {
			t.Fatal(err)
		}
		machine, err := ops.NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { machine.Close() })
		return c, machine
	}
	one, oneMachine := graph(1, 4, 2, 3)
	two, twoMachine := graph(4, 1, 2, 3, 0, 0, 0, 0)
	choose := func(c *ops.Choosing, m gorgonia.VM, want []int, choices ...kernels.Choice) {
		t.Helper()
		if err := c.Send(choices); err != nil {
			t.Fatal(err)
		}
		m.Reset()
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		chosen, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for text, c := range chosen {
			if c.ID != want[text] || c.LogProb != 0 {
				t.Errorf("text %d has %+v, it needs token %d", text, c, want[text])
			}
		}
	}
	without := func(ids ...int32) (c kernels.Choice) {
		for _, id := range ids {
			c.Earlier = append(c.Earlier, kernels.EarlierToken{ID: id, Chosen: kernels.Forbidden})
		}
		return c
	}
	choose(two, twoMachine, []int{3, 2}, without(0), without(1, 0))
	choose(one, oneMachine, []int{1}, kernels.Choice{})
	choose(two, twoMachine, []int{0, 0}, kernels.Choice{}, kernels.Choice{})
	choose(one, oneMachine, []int{2}, without(3, 1))
	choose(two, twoMachine, []int{0, 1}, kernels.Choice{}, without(0))

	g := gorgonia.NewGraph()
	for _, c := range []struct {
		want string
		call func() error
	}{
		{"texts is 0", func() error { _, err := ops.NewChooser(nil, 0); return err }},
		{"logits needs to be a node of shape (texts, tokens)", func() error { _, err := chooser.Add(nil); return err }},
		{"of at most 2 texts", func() error {
			_, err := chooser.Add(gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(3, 4)))
			return err
		}},
		{"logits are of 5 tokens", func() error {
			_, err := chooser.Add(gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 5)))
			return err
		}},
		{"there are 1 choices, it needs one for each of the 2 texts", func() error { return two.Send(make([]kernels.Choice, 1)) }},
		{"text 1: min p is 2", func() error { return two.Send([]kernels.Choice{{}, {MinP: 2}}) }},
		{"text 0 has 5 earlier tokens", func() error { return one.Send([]kernels.Choice{without(0, 1, 2, 3, 3)}) }},
		{"Feed: n is 3", func() error {
			f, err := ops.NewFeed(nil, tensor.New(tensor.WithShape(2), tensor.WithBacking([]int{1, 2})))
			if err != nil {
				return err
			}
			return f.SendFirst(3)
		}},
	} {
		if err := c.call(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, it needs to say %q", err, c.want)
		}
	}
}
