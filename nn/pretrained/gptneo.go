package pretrained

import (
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/nn"
)

// gptParts are what the decoders of this file call the parts of a block.
func gptParts(other map[string]string) names {
	n := llamaNames(other)
	n.body, n.tokens, n.positions, n.norm, n.layers = "transformer.", "wte", "wpe", "ln_f", "h."
	n.parts["norm1"], n.parts["norm2"], n.parts["mlp.fc"], n.parts["mlp.proj"] = "ln_1", "ln_2", "mlp.c_fc", "mlp.c_proj"
	return n
}

// gptNeo is GPT-Neo, whose scores are not scaled and whose layers have a window in turns.
func gptNeo(c *config, _ int) *architecture {
	c.also("num_attention_heads", "num_heads")
	c.also("num_hidden_layers", "num_layers")
	d := newDecoder(c, 2048, true)
	d.names = gptParts(map[string]string{
		"attn.q": "attn.attention.q_proj", "attn.k": "attn.attention.k_proj", "attn.v": "attn.attention.v_proj", "attn.proj": "attn.attention.out_proj",
	})
	b := &d.Block
	if b.Hidden = c.optionalSize("intermediate_size"); b.Hidden == 0 {
		b.Hidden = 4 * b.Attention.Dim
	}
	b.Activation, b.Epsilon, d.Positions = c.activation("activation_function", "gelu_new"), c.positive("layer_norm_epsilon", 1e-5), true
	b.Attention.Options.Scale, b.Attention.Options.Dropout.P = 1, c.float("attention_dropout", 0)
	b.Dropout, d.Dropout = c.float("resid_dropout", 0), c.float("embed_dropout", 0)
	b.NewLinear, d.plainQKV = unbiased("q", "k", "v"), true
	window := c.size("window_size", 256)
	for i, kind := range c.turns(d.Layers) {
		switch kind {
		case "local":
			d.windows[i] = window
		case "global":
		default:
			c.fail("field attention_types has %q, it needs to be global or local", kind)
		}
	}
	c.unread("classifier_dropout", "gradient_checkpointing", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj")
	a := d.architecture()
	a.unused = append(a.unused, ".attn.attention.bias", ".attn.attention.masked_bias")
	return a
}

// unbiased makes linear layers, some parts without biases. It is nil for none.
func unbiased(plain ...string) nn.Maker[nn.LinearConfig] {
	if plain == nil {
		return nil
	}
	return func(s *nn.Scope, c nn.LinearConfig) nn.Layer {
		parts := strings.Split(s.Name(), ".")
		c.NoBias = c.NoBias || slices.Contains(plain, parts[len(parts)-1])
		return nn.NewLinear(s, c)
	}
}

// withoutBiases leaves out the links to biases of some parts of attention.
func withoutBiases(links []link, plain []string) []link {
	return slices.DeleteFunc(links, func(l link) bool {
		return slices.ContainsFunc(plain, func(part string) bool { return strings.HasSuffix(l.parts[0].ours, ".attn."+part+".bias") })
	})
}

// biasesOf reads which of queries, keys and values have no bias, by a field for each.
func (c *config) biasesOf(fields map[string]string) (plain []string) {
	for part, name := range fields {
		if !c.bool(name, true) {
			plain = append(plain, part)
		}
	}
	return plain
}

// turns reads the layers' types: lists of types, each with how often it is repeated.
func (c *config) turns(layers int) (types []string) {
	const name, spelled = "attention_types", "attention_layers"
	for _, pair := range field(c, name, "pairs of types and a number", [][2]any{{[]any{"global", "local"}, 12.0}}) {
		list, isList := pair[0].([]any)
		times, isNumber := pair[1].(float64)
		if !isList || !isNumber || times != float64(int(times)) || times < 0 || times > maxLayers || len(list) > maxLayers {
			c.fail("field %s is %.60s, it needs to be pairs of a list of types and how often it is repeated", name, c.fields[name])
			return nil
		}
		for range int(times) {
			for _, kind := range list {
				word, _ := kind.(string)
				if types = append(types, word); len(types) > layers {
					break
				}
			}
		}
	}
	if len(types) != layers {
		c.fail("field %s is %.60s, it needs a type for each of the %d layers", name, c.fields[name], layers)
		return nil
	}
	if given := c.strings(spelled); given != nil && !slices.Equal(given, types) {
		c.fail("field %s is %.60s and field %s is %.60s, they need to be the same types", spelled, c.fields[spelled], name, c.fields[name])
	}
	return types
}

// gptBigCode is SantaCoder and StarCoder, whose queries share one head of keys and values.
func gptBigCode(c *config, _ int) *architecture {
	for name, other := range map[string]string{
		"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
	} {
		c.also(name, other)
	}
	d := newDecoder(c, 1024, true)
	d.names = gptParts(map[string]string{"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj"})
	b, a := &d.Block, &d.Block.Attention
	if b.Hidden = c.optionalSize("n_inner"); b.Hidden == 0 {
		b.Hidden = 4 * a.Dim
	}
	b.Activation, b.Epsilon, d.Positions = c.activation("activation_function", "gelu_pytorch_tanh"), c.positive("layer_norm_epsilon", 1e-5), true
	if d.names.groups = !c.bool("multi_query", true); !d.names.groups {
		a.KVHeads = 1
	}
	if n := c.size("num_key_value_heads", a.KVHeads); n != a.KVHeads {
		c.fail("field num_key_value_heads is %d, it needs to be %d with %s of %d",
			n, a.KVHeads, c.called("num_attention_heads"), a.Heads)
	}
	if !c.bool("scale_attn_weights", true) {
		a.Options.Scale = 1
	}
	a.Options.Dropout.P, b.Dropout, d.Dropout = c.float("attn_pdrop", 0.1), c.float("resid_pdrop", 0.1), c.float("embd_pdrop", 0.1)
	needs(c, "add_cross_attention", false)
	c.unread(
		"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner", "max_batch_size", "max_sequence_length",
		"pad_key_length", "pre_allocate_kv_cache", "runner_max_sequence_length", "validate_runner_input", "n_ctx",
		"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
	)
	arch := d.architecture()
	arch.unused = append(arch.unused, ".attn.bias", ".attn.masked_bias")
	return arch
}
