package nn_test

import (
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMachinesLeaveSharedValuesTheirEngine makes machines and a decoder over one Parameters, as
// many at once, which the race detector can look at. Without the engine, sums of gradients would be
// Gorgonia's, which know no device and no 16 bits.
func TestMachinesLeaveSharedValuesTheirEngine(t *testing.T) {
	store := nn.NewParameters(1)
	model := func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 11, Context: 8, Layers: 1, Heads: 2, Dim: 8})
	}
	errs := make(chan error)
	for range 4 {
		go func() {
			_, err := nn.NewDecoder(nn.DecoderConfig{Parameters: store, Model: func(s *nn.Scope) nn.CachedModel { return model(s) }})
			errs <- err
		}()
		go func() {
			g := gorgonia.NewGraph()
			s := nn.NewScope(g, store)
			ids := s.Tensor(gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(2, 8), gorgonia.WithName("ids")), nil)
			model(s).Loss(ids, ids)
			err := s.Err()
			if err == nil {
				_, err = ops.NewMachine(g)
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range store.Names() {
		if got := store.Value(name).Engine(); got != ops.Engine() {
			t.Errorf("%s has a %T for an engine", name, got)
		}
	}
}

func TestMachinesOfNonsense(t *testing.T) {
	for name, g := range map[string]*gorgonia.ExprGraph{"nil": nil, "an empty graph": gorgonia.NewGraph()} {
		if _, err := ops.NewMachine(g); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
