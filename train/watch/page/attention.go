package page

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"gorgonia.org/tensor"
)

// mostTokens is how many tokens of a text are looked at: as many as a picture can show.
const mostTokens = 64

// Attention gives what [Options] asks for of a language model, whose parameters may be trained
// meanwhile, by the same loop. Of a long text it takes the first 64 tokens, or as many as the model
// sees. It has no memory of parameters that ranks share out, which is an error in the page.
func Attention(parameters *nn.Parameters, model func(*nn.Scope) *nn.LanguageModel, t tokenizer.Tokenizer) func(text string, layer int) (Weights, error) {
	a := &attention{parameters: parameters, model: model, tokenizer: t, layers: map[int]*train.Predictor{}}
	return a.of
}

// attention computes the weights of layers.
type attention struct {
	parameters *nn.Parameters
	model      func(*nn.Scope) *nn.LanguageModel
	tokenizer  tokenizer.Tokenizer
	layers     map[int]*train.Predictor
	count      int // layers that the model has, once one is made
	context    int // tokens that are looked at
}

func (a *attention) of(text string, layer int) (Weights, error) {
	if a.parameters.IsSharedOut() {
		return Weights{}, errors.New("no process has the whole model, its weights are shared out")
	}
	if err := a.measure(); err != nil {
		return Weights{}, err
	}
	if layer < 0 || layer >= a.count {
		return Weights{}, fmt.Errorf("the layer is %d, it needs to be from 0 to %d", layer, a.count-1)
	}
	ids, err := a.tokenizer.Encode(text)
	if err != nil {
		return Weights{}, err
	}
	ids = ids[:min(len(ids), a.context)]
	w := Weights{Layer: layer, Layers: a.count}
	for _, id := range ids {
		piece, err := a.tokenizer.Bytes(id)
		if err != nil {
			return Weights{}, err
		}
		w.Tokens = append(w.Tokens, string(piece))
	}
	// One graph serves texts of all lengths: no token sees what comes behind it.
	padded := make([]int, a.context)
	copy(padded, ids)
	computed, err := a.predictor(layer).Predict(data.Batch{"tokens": data.Ints(padded, 1, -1)})
	if err != nil {
		return Weights{}, err
	}
	w.Heads, err = split(computed, len(ids))
	return w, err
}

// measure finds out what the model is like, in a scope that is thrown away.
func (a *attention) measure() error {
	if a.count > 0 {
		return nil
	}
	predictor, err := train.NewPredictor(a.parameters, func(s *nn.Scope, in train.Inputs) nn.Tensor {
		m := a.model(s)
		if s.Err() == nil {
			a.count, a.context = m.Layers(), mostTokens
			if m.Context() > 0 {
				a.context = min(a.context, m.Context())
			}
		}
		return in.Get("tokens")
	})
	if err != nil {
		return err
	}
	_, err = predictor.Predict(data.Batch{"tokens": data.Ints([]int{0}, 1, -1)})
	return errors.Join(err, predictor.Close())
}

func (a *attention) predictor(layer int) *train.Predictor {
	if a.layers[layer] == nil {
		a.layers[layer], _ = train.NewPredictor(a.parameters, func(s *nn.Scope, in train.Inputs) nn.Tensor {
			return a.model(s).AttentionWeights(in.Get("tokens"), layer)
		})
	}
	return a.layers[layer]
}

// split gives by head and token the weights of the tokens up to it, of (1, heads, all, all).
func split(v *tensor.Dense, tokens int) ([][][]float32, error) {
	shape := v.Shape()
	if len(shape) != 4 || shape[0] != 1 || shape[2] != shape[3] || tokens > shape[2] {
		return nil, fmt.Errorf("the attention has shape %v, it needs (1, heads, %d, %[2]d) or more", []int(shape), tokens)
	}
	var at func(i int) float32
	switch list := v.Data().(type) {
	case []float32:
		at = func(i int) float32 { return list[i] }
	case []float64:
		at = func(i int) float32 { return float32(list[i]) }
	default:
		return nil, fmt.Errorf("the attention is %v, it needs to be float32 or float64", v.Dtype())
	}
	heads := make([][][]float32, shape[1])
	for h := range heads {
		for i := range tokens {
			row := make([]float32, i+1)
			for j := range row {
				row[j] = at((h*shape[2]+i)*shape[3] + j)
			}
			heads[h] = append(heads[h], row)
		}
	}
	return heads, nil
}
