package nn_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lone is one of three ranks, where nothing is run.
type lone int

func (l lone) Rank() int                           { return int(l) }
func (lone) Size() int                             { return 3 }
func (lone) CollectParts(...kernels.Tensor) error  { return nil }
func (lone) SumParts(...kernels.Tensor) error      { return nil }
func (lone) SumPartsLater(...kernels.Tensor) error { return nil }
func (lone) Join() error                           { return nil }

func (lone) CollectPartsLater(...kernels.Tensor) (kernels.Transfer, error) { return lone(0), nil }

// The ranks' parts are what one process has, whether values are made, set before the layers or
// after them, and loaded; vectors and tiny matrices are whole. Counts and summaries are those of
// the whole.
func TestShareOut(t *testing.T) {
	first := tensor.New(tensor.WithShape(7, 5), tensor.WithBacking(tensor.Range(tensor.Float32, 0, 35)))
	model := func(p *nn.Parameters) gorgonia.Nodes {
		if err := p.Set("a.weight", first); err != nil {
			t.Fatal(err)
		}
		g := gorgonia.NewGraph()
		var all gorgonia.Nodes
		s := nn.NewScope(g, p)
		for i, c := range []nn.LinearConfig{{In: 7, Out: 5}, {In: 5, Out: 4}, {In: 2, Out: 1}} {
			all = append(all, nn.NewLinear(s.Sub("abc"[i:i+1]), c).Parameters()...)
		}
		if got := s.Parameters(); !slices.Equal(got, all) {
			t.Errorf("the graph has the parameters %v, its layers %v", got, all)
		}
		return all
	}
	whole := nn.NewParameters(5)
	wholeNodes := model(whole)
	second := tensor.New(tensor.WithShape(5, 4), tensor.WithBacking(tensor.Range(tensor.Float32, 7, 27)))
	parts := map[string][]float32{}
	for rank := range 3 {
		p := nn.NewParameters(5)
		if err := p.ShareOut(lone(rank)); err != nil {
			t.Fatal(err)
		}
		nodes := model(p)
		if nn.Count(nodes) != nn.Count(wholeNodes) || nn.Summary(nodes) != nn.Summary(wholeNodes) {
			t.Errorf("rank %d counts %d parameters: %s", rank, nn.Count(nodes), nn.Summary(nodes))
		}
		for name, v := range p.Values() {
			if strings.HasSuffix(name, "bias") || name == "c.weight" {
				if !slices.Equal(v.Float32s(), whole.Value(name).Float32s()) {
					t.Errorf("rank %d: %s is not whole", rank, name)
				}
				continue
			}
			if v.Dims() != 2 || v.Shape()[0] != 1 {
				t.Errorf("rank %d: %s has shape %v, its axes need to be as many as the whole's", rank, name, v.Shape())
			}
			parts[name] = append(parts[name], v.Float32s()...)
		}
		if err := p.Set("b.weight", second); err != nil {
			t.Fatal(err)
		}
		parts["set"] = append(parts["set"], p.Value("b.weight").Float32s()...)
		if err := p.Load(whole.Values()); err != nil {
			t.Fatal(err)
		}
		parts["loaded"] = append(parts["loaded"], p.Value("b.weight").Float32s()...)
		for want, err := range map[string]error{
			"b.weight is float32 of shape [1 7], its layers need float32 of shape [5 4]":    p.Set("b.weight", p.Value("b.weight")),
			"layers have been made already, ShareOut needs to come before the first":        p.ShareOut(lone(rank)),
			"the values are shared out over ranks, weights in less memory need to be whole": p.KeepWeights(ops.BFloat16),
		} {
			if rank < 2 && (err == nil || !strings.Contains(err.Error(), want)) { // rank 2 has 6 elements
				t.Errorf("%v, want %q in it", err, want)
			}
		}
	}
	p := nn.NewParameters(5)
	if err := p.ShareOut(lone(0)); err != nil {
		t.Fatal(err)
	}
	_, err := nn.NewDecoder(nn.DecoderConfig{Parameters: p, Model: func(s *nn.Scope) nn.CachedModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 5, Context: 4, Layers: 1, Heads: 1, Dim: 4})
	}})
	if want := "a decoder needs parameters that are whole"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a decoder over parts: %v, want %q in it", err, want)
	}
	for name, want := range map[string]*tensor.Dense{"a.weight": first, "b.weight": whole.Value("b.weight"), "set": second, "loaded": whole.Value("b.weight")} {
		if !slices.Equal(parts[name], want.Float32s()) {
			t.Errorf("%s is %v in parts, whole %v", name, parts[name], want)
		}
	}
}
