package nn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// judge is a small model with a head for classes.
func judge(s *nn.Scope, padding *int) *nn.LanguageModel {
	c := nn.LlamaConfig{Vocab: 9, Context: 8, Layers: 1, Heads: 2, KVHeads: 1, Dim: 144, Hidden: 8}.Model()
	c.Classes = &nn.TextClasses{Count: 3, Padding: padding}
	return nn.NewLanguageModel(s, c)
}

// Classes are those of the last token that is not padding, as transformers finds it: by the token,
// wherever it stands; of a row of nothing else it is the first.
func TestClassifyReadsLastToken(t *testing.T) {
	rows := [][]int{{0, 0, 3, 4, 5}, {3, 4, 5, 0, 0}, {1, 2, 3, 4, 5}, {1, 0, 3, 0, 0}, {0, 0, 0, 0, 0}, {7, 0, 0, 0, 0}}
	last := []int{4, 2, 4, 2, 0, 0}
	for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		p := nn.NewParameters(5)
		s := nn.NewScope(gorgonia.NewGraph(), p).DType(dtype)
		m := judge(s, new(0))
		tokens := s.Constant("tokens", data.Ints(slices.Concat(rows...), len(rows), -1))
		h := m.Hidden(tokens)
		logits := m.Classify(h, tokens)
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		machine := gorgonia.NewTapeMachine(s.Graph())
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		have, vectors := floats(t, logits.Node().Value()), floats(t, h.Node().Value())
		weight := floats(t, p.Value("classifier.weight"))
		dim := len(weight) / 3
		for row, at := range last {
			for class := range 3 {
				want := 0.0
				for i := range dim {
					want += vectors[(row*len(rows[0])+at)*dim+i] * weight[i*3+class]
				}
				if got := have[row*3+class]; !(math.Abs(got-want) <= 1e-5) {
					t.Errorf("%v: class %d of %v has %v, want token %d's %v", dtype, class, rows[row], got, at, want)
				}
			}
		}
		if err := machine.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What cannot be classified is an error of the scope.
func TestClassifyErrors(t *testing.T) {
	for want, use := range map[string]func(s *nn.Scope, tokens nn.Tensor){
		"tokens has 2 texts, it needs 1 where Classes has no Padding": func(s *nn.Scope, tokens nn.Tensor) {
			m := judge(s, nil)
			m.Classify(m.Hidden(tokens), tokens)
		},
		"there is no head for tokens": func(s *nn.Scope, tokens nn.Tensor) { judge(s, nil).Forward(tokens) },
		"the config needs to be without Classes": func(s *nn.Scope, tokens nn.Tensor) {
			judge(s, nil).Loss(tokens, tokens)
		},
		"there is no classifier": func(s *nn.Scope, tokens nn.Tensor) {
			m := nn.NewLlama(s, nn.LlamaConfig{Vocab: 9, Context: 8, Layers: 1, Heads: 2, Dim: 8, Hidden: 8})
			m.Classify(m.Hidden(tokens), tokens)
		},
		"h has shape [2 3 144], it needs (batch, length, dim)": func(s *nn.Scope, tokens nn.Tensor) {
			m := judge(s, new(0))
			m.Classify(m.Hidden(tokens), s.Constant("others", data.Ints([]int{1, 2}, 1, -1)))
		},
		"classes is 0": func(s *nn.Scope, tokens nn.Tensor) {
			c := nn.LlamaConfig{Vocab: 9, Context: 8, Layers: 1, Heads: 2, Dim: 8, Hidden: 8}.Model()
			c.Classes = &nn.TextClasses{}
			nn.NewLanguageModel(s, c)
		},
	} {
		s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(5))
		use(s, s.Constant("tokens", data.Ints([]int{1, 2, 3, 4, 5, 6}, 2, -1)))
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
