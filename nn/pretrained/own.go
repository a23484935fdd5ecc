package pretrained

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// NewModel makes a Model of a language model of one's own, such as one that was trained from
// scratch. [Model.Save] then writes it as a folder that transformers reads.
//
//   - What [nn.NewGPT] makes is a gpt2. Biases that it lacks are zeros there.
//   - What [nn.NewLlama] makes is a llama, or with QKNorm a qwen3. The config needs a Context.
//   - An MLP of such a model may have ReLUSquared and no gate. It is written with a gate of ReLU,
//     whose matrix is there twice: relu(x)·x is the same.
//   - Such a model may have EmbeddingNorm and a head of its own. Its table of tokens is written as
//     the norm makes it.
//
// Any other config is refused by the name of a field. The model is on the host. It shares the
// values of parameters that are there, unless they change.
//
// EndOfText is the id that texts end with, negative for none. tokenizer.WriteFolder writes the
// tokenizer beside the model.
func NewModel(p *nn.Parameters, c nn.LanguageModelConfig, endOfText int) (*Model, error) {
	m, err := newModel(p, c, endOfText)
	if err != nil {
		return nil, fmt.Errorf("pretrained: NewModel: %w", err)
	}
	return m, nil
}

func newModel(p *nn.Parameters, c nn.LanguageModelConfig, endOfText int) (*Model, error) {
	switch {
	case p == nil:
		return nil, errors.New("parameters is nil, it needs to be those of the model")
	case p.IsSharedOut():
		return nil, errors.New("the parameters are shared out over ranks, it needs those of a checkpoint, which are whole")
	}
	own := ownModel{c: spelledOut(c), values: map[string]*tensor.Dense{}}
	for _, name := range p.Names() {
		value, err := ops.Download(p.Value(name))
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		own.values[name] = value
	}
	describeAs := own.asLlama
	if c.Positions {
		describeAs = own.asGPT2
	}
	fields, err := describeAs()
	if err != nil {
		return nil, err
	}
	fields["bos_token_id"], fields["eos_token_id"] = nil, nil
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
	if m.parameters, err = m.arch.withZeros(own.values, m.family); err != nil {
		return nil, err
	}
	return m, m.finish(Options{})
}

// ownModel is a language model that becomes one of transformers.
type ownModel struct {
	c      nn.LanguageModelConfig // spelled out
	values map[string]*tensor.Dense
}

// spelledOut is a config with what zeros mean in their place, without what matters to training
// alone.
func spelledOut(c nn.LanguageModelConfig) nn.LanguageModelConfig {
	b, a := &c.Block, &c.Block.Attention
	b.Init, b.ProjInit, b.Recompute, b.MLPDropout = nil, nil, false, 0
	a.Options.Dropout, a.Options.Guarantees, a.Options.Precision = ops.Drop{}, kernels.Guarantees{}, kernels.PrecisionAuto
	orFloat := func(x *float64, usual float64) {
		if *x == 0 {
			*x = usual
		}
	}
	orInt := func(x *int, usual int) {
		if *x == 0 {
			*x = usual
		}
	}
	for _, factor := range []*float64{&c.EmbeddingScale, &c.LogitScale, &b.Residual} {
		orFloat(factor, 1)
	}
	orFloat(&b.Epsilon, 1e-5)
	orInt(&a.KVHeads, a.Heads)
	orInt(&a.HeadDim, a.Dim/max(1, a.Heads))
	hidden, activation := 4*a.Dim, kernels.GELUTanh
	if b.Gated {
		hidden, activation = (8*a.Dim/3+255)/256*256, kernels.SiLU
	}
	orInt(&b.Hidden, hidden)
	if b.Activation == kernels.NoActivation {
		b.Activation = activation
	}
	if a.RoPE != nil {
		o := *a.RoPE
		o.Layout = 0
		orFloat(&o.Base, 10000)
		orFloat(&o.Scaling, 1)
		orFloat(&o.Amplitude, 1)
		orInt(&o.RotaryDim, a.HeadDim)
		a.RoPE = &o
	}
	a.Separate = a.Separate || a.RoPE != nil || a.QKNorm
	return c
}

// asGPT2 gives the config of a gpt2.
func (m *ownModel) asGPT2() (map[string]any, error) {
	b, a := &m.c.Block, &m.c.Block.Attention
	a.NoBias, a.NoProjBias, b.MLPBias, b.NormBias = false, false, nil, nil // what is missing is zero
	want := nn.GPTConfig{
		Vocab: m.c.Vocab, Context: m.c.Context, Layers: m.c.Layers, Heads: a.Heads, Dim: a.Dim, Hidden: b.Hidden,
		Activation: b.Activation, Epsilon: b.Epsilon, Dropout: m.c.Dropout,
	}.Model()
	want.Block.Dropout = b.Dropout
	if err := m.isLike(want, "gpt2"); err != nil {
		return nil, err
	}
	activation, err := activationName(b.Activation)
	return map[string]any{
		"architectures": []string{"GPT2LMHeadModel"}, "model_type": "gpt2", "activation_function": activation, "vocab_size": m.c.Vocab,
		"n_positions": m.c.Context, "n_layer": m.c.Layers, "n_head": a.Heads, "n_embd": a.Dim, "n_inner": b.Hidden,
		"layer_norm_epsilon": b.Epsilon, "embd_pdrop": m.c.Dropout, "attn_pdrop": b.Dropout, "resid_pdrop": b.Dropout,
		"tie_word_embeddings": true,
	}, err
}

// asLlama gives the config of a llama or a qwen3.
func (m *ownModel) asLlama() (map[string]any, error) {
	family, class := "llama", "LlamaForCausalLM"
	b, a := &m.c.Block, &m.c.Block.Attention
	a.Separate = true // as RoPE makes it, which is looked at below
	if a.QKNorm {
		family, class = "qwen3", "Qwen3ForCausalLM"
	}
	doubled := !b.Gated && b.Activation == kernels.ReLUSquared
	if doubled {
		b.Gated, b.Activation = true, kernels.ReLU
	}
	folded := m.c.EmbeddingNorm && !m.c.TiedHead
	if folded {
		m.c.EmbeddingNorm = false
	}
	want := nn.LlamaConfig{
		Vocab: m.c.Vocab, Context: m.c.Context, Layers: m.c.Layers, Heads: a.Heads, KVHeads: a.KVHeads, Dim: a.Dim, HeadDim: a.HeadDim,
		Hidden: b.Hidden, QKNorm: a.QKNorm, TiedHead: m.c.TiedHead, Epsilon: b.Epsilon, Dropout: m.c.Dropout,
	}
	if a.RoPE != nil {
		want.RoPE.Base = a.RoPE.Base
	}
	model := want.Model()
	model.Block.Dropout, model.Block.Activation = b.Dropout, b.Activation
	if err := m.isLike(model, family); err != nil {
		return nil, err
	}
	if m.c.Context == 0 {
		return nil, fmt.Errorf("field Context is 0, a %s needs to have a longest sequence", family)
	}
	activation, err := activationName(b.Activation)
	if err == nil && doubled {
		err = m.doubleGates()
	}
	if err == nil && folded {
		err = m.foldNorm()
	}
	return map[string]any{
		"architectures": []string{class}, "model_type": family, "hidden_act": activation, "vocab_size": m.c.Vocab,
		"max_position_embeddings": m.c.Context, "num_hidden_layers": m.c.Layers, "num_attention_heads": a.Heads,
		"num_key_value_heads": a.KVHeads, "head_dim": a.HeadDim, "hidden_size": a.Dim, "intermediate_size": b.Hidden,
		"rms_norm_eps": b.Epsilon, "rope_theta": want.RoPE.Base, "attention_bias": false, "attention_dropout": b.Dropout,
		"tie_word_embeddings": m.c.TiedHead,
	}, err
}

// activationName is what transformers calls an activation.
func activationName(a kernels.Activation) (string, error) {
	for _, name := range []string{"gelu", "gelu_new", "quick_gelu", "relu", "silu", "tanh", "relu2"} {
		if activations[name] == a {
			return name, nil
		}
	}
	return "", fmt.Errorf("field Block.Activation is %v, transformers has none of that kind", a)
}

// doubleGates makes the matrix of each MLP that of its gate and that of what it gates.
func (m *ownModel) doubleGates() error {
	for i := range m.c.Layers {
		mlp := fmt.Sprintf("blocks.%d.mlp.", i)
		fc, proj := m.values[mlp+"fc.weight"], m.values[mlp+"proj.weight"]
		if fc == nil || proj == nil {
			return fmt.Errorf("parameter %sfc.weight or %sproj.weight is missing", mlp, mlp)
		}
		m.values[mlp+"gate.weight"], m.values[mlp+"up.weight"], m.values[mlp+"down.weight"] = fc, fc.Clone().(*tensor.Dense), proj
		delete(m.values, mlp+"fc.weight")
		delete(m.values, mlp+"proj.weight")
	}
	return nil
}

// foldNorm puts the norm of the embeddings into the table.
func (m *ownModel) foldNorm() error {
	const tableName, normName = "tokens.weight", "embnorm.weight"
	dim := m.c.Block.Attention.Dim
	for _, p := range []struct {
		name  string
		shape []int
	}{{normName, []int{dim}}, {tableName, []int{m.c.Vocab, dim}}} {
		if value := m.values[p.name]; value == nil || value.Dtype() != tensor.Float32 || !slices.Equal(value.Shape(), p.shape) {
			return fmt.Errorf("parameter %s is missing or another, it needs to be float32 of shape %v", p.name, p.shape)
		}
	}
	table, weight := m.values[tableName], m.values[normName].Float32s()
	rows := slices.Clone(table.Float32s())
	for row := range slices.Chunk(rows, len(weight)) {
		squares := 0.0
		for _, x := range row {
			squares += float64(x) * float64(x)
		}
		length := math.Sqrt(squares/float64(len(row)) + m.c.Block.Epsilon)
		for i, x := range row {
			row[i] = float32(float64(x) / length * float64(weight[i]))
		}
	}
	delete(m.values, normName)
	m.values[tableName] = tensor.New(tensor.WithShape(table.Shape()...), tensor.WithBacking(rows), tensor.WithEngine(ops.Engine()))
	return nil
}

// isLike makes sure that the config is that of a family.
func (m *ownModel) isLike(want nn.LanguageModelConfig, family string) error {
	want = spelledOut(want)
	if name, have, other := firstDifference(reflect.ValueOf(m.c), reflect.ValueOf(want)); name != "" {
		return fmt.Errorf("field %s is %s, a %s needs it to be %s", name[1:], have, family, other)
	}
	return nil
}

// firstDifference finds a field in which two values of a type differ. The name begins with a dot,
// and is empty if there is none. Functions differ unless both are nil.
func firstDifference(a, b reflect.Value) (name, inA, inB string) {
	differs := false
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if name, inA, inB = firstDifference(a.Field(i), b.Field(i)); name != "" {
				return "." + a.Type().Field(i).Name + strings.TrimSuffix(name, "."), inA, inB
			}
		}
		return "", "", ""
	case reflect.Pointer:
		if !a.IsNil() && !b.IsNil() {
			return firstDifference(a.Elem(), b.Elem())
		}
		differs = a.IsNil() != b.IsNil()
	case reflect.Func, reflect.Slice, reflect.Map, reflect.Interface:
		differs = !a.IsNil() || !b.IsNil()
	default:
		differs = !a.Equal(b)
	}
	if !differs {
		return "", "", ""
	}
	return ".", shown(a), shown(b)
}

// shown is a value of a config for people.
func shown(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Slice, reflect.Map, reflect.Interface:
		if v.IsNil() {
			return "nil"
		}
		return "set"
	}
	return fmt.Sprint(v)
}

// withZeros are parameters of some values, and zero biases where there are none.
func (a *architecture) withZeros(values map[string]*tensor.Dense, family string) (*nn.Parameters, error) {
	all := nn.NewParameters(0)
	var have []string
	for i := range a.links {
		for _, part := range a.links[i].parts {
			value := values[part.ours]
			switch {
			case value == nil && strings.HasSuffix(part.ours, ".bias"):
				value = tensor.New(tensor.WithShape(part.shape...), tensor.Of(tensor.Float32), tensor.WithEngine(ops.Engine()))
			case value == nil:
				return nil, fmt.Errorf("parameter %s is missing, it needs to be one of a model of that shape", part.ours)
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
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("parameter %s is none of a %s", name, family)
		}
	}
	return all, nil
}
