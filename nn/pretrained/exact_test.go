package pretrained

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// testdata/exact.py is the other side of this file.

// exact is what transformers computes where all of it is float64.
type exact struct {
	Loss      float64
	Gradients []float64 // the norms, in the order of the tensors' names
}

// In float64 losses and gradients are those of transformers in float64, but for the rounding of
// that: what they differ by in float32 is rounding.
func TestExactGradients(t *testing.T) {
	slow.Race(t)
	text, err := os.ReadFile("testdata/exact.json")
	if err != nil {
		t.Fatal(err)
	}
	var models map[string]exact
	if err := json.Unmarshal(text, &models); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(languageModels, rewards, encoders, visions, pairs, writers) {
		want, known := models[name]
		if !known {
			t.Errorf("there are no gradients of %s", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "llama3" {
				t.Skip("short")
			}
			tolerance := 1e-12
			if strings.HasPrefix(name, "bloom") { // whose GELU has √(2/π) to 8 digits in transformers
				tolerance = 1e-9
			}
			compareExactly(t, name, want, tolerance)
		})
	}
}

// compareExactly compares a loss and its gradients in float64.
func compareExactly(t *testing.T, name string, want exact, tolerance float64) {
	t.Helper()
	m, golden := load(t, filepath.Join("testdata", name), Options{}), readGolden(t, name)
	s := nn.NewScope(gorgonia.NewGraph(), widened64(t, m)).DType(tensor.Float64)
	loss := m.exactLoss(s, name, golden)
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if _, err := gorgonia.Grad(loss.Node(), s.Trainable()...); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	if have := value(t, loss).Data().(float64); !(math.Abs(have-want.Loss) <= tolerance*math.Abs(want.Loss)) {
		t.Errorf("the loss is %v, want %v", have, want.Loss)
	}
	gradients := map[string][]float64{}
	for _, n := range s.Trainable() {
		v, err := n.Grad()
		if err != nil {
			t.Fatal(err)
		}
		gradients[n.Name()] = v.Data().([]float64)
	}
	at, largest := map[string]float64{}, slices.Max(want.Gradients)
	for i, tensor := range slices.Sorted(maps.Keys(golden.Gradients)) {
		at[tensor] = want.Gradients[i]
	}
	for i := range m.arch.links {
		l := &m.arch.links[i]
		if l.copied {
			continue
		}
		have, w := l.norm(gradients), at[l.theirs]
		// One that is nothing but for rounding counts beside the others.
		if !(math.Abs(have-w) <= tolerance*max(w, 1e-4*largest)) {
			t.Errorf("the gradient of %s is %v, want %v", l.theirs, have, w)
		}
	}
}

// widened64 are the model's parameters in float64.
func widened64(t *testing.T, m *Model) *nn.Parameters {
	t.Helper()
	p := nn.NewParameters(0)
	for _, name := range m.parameters.Names() {
		v := m.parameters.Value(name)
		whole := tensor.New(tensor.WithShape(v.Shape()...), tensor.WithBacking(wide(v.Float32s())), tensor.WithEngine(ops.Engine()))
		if err := p.Set(name, whole); err != nil {
			t.Fatal(err)
		}
	}
	for name, row := range m.arch.padding {
		p.FreezeRows(name, row)
	}
	p.Freeze(func(name string) bool { return slices.Contains(m.arch.frozen, name) })
	return p
}

// exactLoss is what the golden gradients are of.
func (m *Model) exactLoss(s *nn.Scope, name string, want golden) nn.Tensor {
	var outputs []nn.Tensor
	switch model := m.arch.build(s).(type) {
	case *nn.LanguageModel:
		if want.Mask == nil {
			targets := make([][]int, len(want.Tokens))
			for i, row := range want.Tokens {
				targets[i] = append(slices.Clone(row[1:]), nn.IgnoreTarget)
			}
			return model.Loss(ids(s, "tokens", want.Tokens), ids(s, "targets", targets))
		}
		outputs = []nn.Tensor{classesOf(s, model, want)}
	case *nn.Encoder:
		if want.Images != nil {
			outputs = seen(s, model, want)
		} else {
			outputs = headsOf(model, name, s, model.ForwardWith(ids(s, "tokens", want.Tokens), want.inputs(s)), want)
		}
	case *nn.EncoderDecoder:
		_, loss := written(s, model, want)
		return loss
	case *nn.Contrastive:
		_, loss := paired(s, model, want)
		return loss
	}
	loss := outputs[0].Square().Sum()
	for _, x := range outputs[1:] {
		loss = loss.Add(x.Square().Sum())
	}
	return loss
}

// norm is that of the tensor that the link makes of parameters, or of their gradients. What is not
// trained has none.
func (l *link) norm(ours map[string][]float64) float64 {
	sum := 0.0
	for _, p := range l.parts {
		x := ours[p.ours]
		switch {
		case x == nil:
		case l.transposed:
			for row := range l.rowLength() {
				from := p.first() + row*p.columns() + p.at
				for _, v := range x[from : from+p.n] {
					sum += v * v
				}
			}
		default:
			for _, v := range x[p.at*l.rowLength() : (p.at+p.n)*l.rowLength()] {
				sum += v * v
			}
		}
	}
	return math.Sqrt(sum)
}
