package pretrained

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// NewGPT2 makes a Model of a GPT of one's own, such as one that was trained from scratch, so that
// [Model.Save] writes it as a folder that transformers reads: a gpt2. The model shares the values
// of the parameters, and has biases that are zero where the config has none. What a gpt2 cannot be,
// a window, a bias by distance, or blocks that Block changes, is an error.
//
// The tokenizer belongs beside it: tokenizer.WriteHuggingFace writes its tokenizer.json. EndOfText
// is the id that texts end with, negative for none.
func NewGPT2(p *nn.Parameters, c nn.GPTConfig, endOfText int) (*Model, error) {
	m, err := newGPT2(p, c, endOfText)
	if err != nil {
		return nil, fmt.Errorf("pretrained: NewGPT2: %w", err)
	}
	return m, nil
}

func newGPT2(p *nn.Parameters, c nn.GPTConfig, endOfText int) (*Model, error) {
	switch o := c.Attention; {
	case p == nil:
		return nil, errors.New("parameters is nil, it needs to be those of the model")
	case p.IsSharedOut():
		return nil, errors.New("the parameters are shared out over ranks, it needs those of a checkpoint, which are whole")
	case c.Block != nil:
		return nil, errors.New("the config has Block set, a gpt2 has blocks that are all alike")
	case o.Window != nil || o.SoftCap != 0 || o.ALiBi != nil || o.Bias != nil || o.Score != nil || o.Mask != nil || o.Sinks != nil || o.Scale != 0 ||
		o.Causal == kernels.CausalTopLeft:
		return nil, errors.New("the config has options of Attention, a gpt2 has none")
	}
	if c.Activation == kernels.NoActivation {
		c.Activation = kernels.GELUTanh
	}
	if c.Epsilon == 0 {
		c.Epsilon = 1e-5
	}
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Dim
	}
	act := ""
	for _, name := range []string{"gelu", "gelu_new", "quick_gelu", "relu", "silu", "tanh", "relu2"} {
		if activations[name] == c.Activation {
			act = name
		}
	}
	if act == "" {
		return nil, fmt.Errorf("activation is %v, transformers has none of that kind", c.Activation)
	}
	fields := map[string]any{
		"architectures": []string{"GPT2LMHeadModel"}, "model_type": "gpt2", "activation_function": act, "vocab_size": c.Vocab, "n_positions": c.Context,
		"n_layer": c.Layers, "n_head": c.Heads, "n_embd": c.Dim, "n_inner": c.Hidden, "layer_norm_epsilon": c.Epsilon, "embd_pdrop": c.Dropout,
		"attn_pdrop": c.Dropout, "resid_pdrop": c.Dropout, "bos_token_id": nil, "eos_token_id": nil, "tie_word_embeddings": true,
	}
	if endOfText >= 0 {
		fields["bos_token_id"], fields["eos_token_id"] = endOfText, endOfText
	}
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return nil, err
	}
	m := &Model{config: append(text, '\n'), metadata: map[string]any{}}
	if m.family, m.arch, err = describe(m.config, Options{}); err != nil {
		return nil, err
	}
	m.arch.stored = tensor.Float32
	if m.parameters, err = m.arch.withZeros(p); err != nil {
		return nil, err
	}
	return m, m.finish(Options{})
}

// withZeros are parameters with the values of others, and zero biases where there are none.
func (a *architecture) withZeros(p *nn.Parameters) (*nn.Parameters, error) {
	all := nn.NewParameters(0)
	var have []string
	for i := range a.links {
		for _, part := range a.links[i].parts {
			value := p.Value(part.ours)
			switch {
			case value == nil && len(part.shape) == 1:
				value = tensor.New(tensor.WithShape(part.shape...), tensor.Of(tensor.Float32), tensor.WithEngine(ops.Engine()))
			case value == nil:
				return nil, fmt.Errorf("parameter %s is missing, it needs to be one of a GPT of that shape", part.ours)
			case !slices.Equal(value.Shape(), part.shape):
				return nil, fmt.Errorf("parameter %s has shape %v, the config asks for %v", part.ours, []int(value.Shape()), part.shape)
			case value.Dtype() != tensor.Float32:
				return nil, fmt.Errorf("parameter %s is %v, it needs to be float32", part.ours, value.Dtype())
			}
			if err := all.Set(part.ours, value); err != nil {
				return nil, err
			}
			have = append(have, part.ours)
		}
	}
	for _, name := range p.Names() {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("parameter %s is none of a gpt2", name)
		}
	}
	return all, nil
}
