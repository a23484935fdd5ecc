package pretrained

import (
	"cmp"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// decoder is a model of Llama's shape and what the families of that shape do in their own way.
type decoder struct {
	nn.LlamaConfig
	embeddingScale, logitSoftCap float64
	normPlusOne                  bool

	act        kernels.Activation
	norms      nn.NormPlace
	qkvBias    bool
	projBias   bool
	mlpBias    bool
	qkNormAll  bool // QKNorm is the other way to have norms
	scale      float64
	softCap    float64
	attention  float64 // dropout of attention's weights
	residual   float64 // dropout of what blocks add
	fused      bool    // queries, keys and values are one tensor, and gate and up another
	windows    []int   // of each layer; 0 for none
	rope       []*ops.RoPEOptions
	layerTypes []string
}

// usual are a family's values of fields that a config leaves out. There are always sizes in a
// config.
type usual struct {
	context, kvHeads, headDim int // 0 of the last two: the heads, and their share of the width
	epsilon                   float64
	tied                      bool
}

// readDecoder reads what nearly all of the families have in common.
func readDecoder(c *config, u usual) *decoder {
	c.causal()
	c.ending("ForCausalLM", "Model")
	d := &decoder{LlamaConfig: nn.LlamaConfig{
		Vocab: c.size("vocab_size", 0), Context: c.size("max_position_embeddings", u.context), Layers: c.layers("num_hidden_layers", 0),
		Heads: c.size("num_attention_heads", 0), KVHeads: c.sizeOrNone("num_key_value_heads", u.kvHeads),
		Dim: c.size("hidden_size", 0), HeadDim: c.sizeOrNone("head_dim", u.headDim), Hidden: c.size("intermediate_size", 0),
		Epsilon: c.float("rms_norm_eps", cmp.Or(u.epsilon, 1e-6)), TiedHead: c.bool("tie_word_embeddings", u.tied),
	}}
	if d.KVHeads == 0 {
		d.KVHeads = d.Heads
	}
	if d.HeadDim == 0 {
		d.HeadDim = d.Dim / d.Heads
	}
	if d.HeadDim == 0 {
		c.fail("field num_attention_heads is %d, it needs to be at most hidden_size, which is %d", d.Heads, d.Dim)
		d.HeadDim = 1
	}
	d.act = c.activation("hidden_act", "silu")
	d.attention = c.float("attention_dropout", 0)
	d.windows, d.rope = make([]int, d.Layers), make([]*ops.RoPEOptions, d.Layers)
	return d
}

// bias reads attention_bias, which is of all four projections.
func (d *decoder) bias(c *config) {
	d.qkvBias = c.bool("attention_bias", false)
	d.projBias = d.qkvBias
}

// types sets the layers' types: layer_types, or what otherwise gives for each.
func (d *decoder) types(c *config, otherwise func(i int) bool) {
	given := c.strings("layer_types")
	if given != nil && len(given) != d.Layers {
		c.fail("field layer_types has %d elements, it needs one for each of the %d layers", len(given), d.Layers)
		given = nil
	}
	for i := range d.Layers {
		kind := "full_attention"
		if given == nil && otherwise(i) {
			kind = slidingAttention
		}
		if given != nil {
			kind = given[i]
		}
		if kind != "full_attention" && kind != slidingAttention {
			c.fail("field layer_types has %q, it needs to be full_attention or %s", kind, slidingAttention)
		}
		d.layerTypes = append(d.layerTypes, kind)
	}
}

const slidingAttention = "sliding_attention"

// slide gives the layers of that type a window.
func (d *decoder) slide(c *config, window int) {
	for i, kind := range d.layerTypes {
		if kind != slidingAttention {
			continue
		}
		if window == 0 {
			c.fail("field sliding_window is missing, layer %d is of %s", i, slidingAttention)
		}
		d.windows[i] = window
	}
}

// slideAll gives all layers a window; 0 for none.
func (d *decoder) slideAll(window int) {
	for i := range d.windows {
		d.windows[i] = window
	}
}

// turn gives all layers one RoPE.
func (d *decoder) turn(c *config, theta float64, context int) {
	o := c.rope("", ropeProblem{headDim: d.HeadDim, theta: c.float("rope_theta", theta), trained: d.Context, context: context})
	for i := range d.rope {
		d.rope[i] = &o
	}
}

func llama(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 2048})
	d.bias(c)
	d.mlpBias = c.bool("mlp_bias", false)
	d.turn(c, 10000, context)
	return d.architecture()
}

func mistral(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 4096 * 32, kvHeads: 8})
	d.turn(c, 10000, context)
	d.slideAll(c.sizeOrNone("sliding_window", 4096))
	return d.architecture()
}

// qwen is Qwen 2 and Qwen 3.
func (d *decoder) qwen(c *config, context int) *architecture {
	use, window, full := c.bool("use_sliding_window", false), c.sizeOrNone("sliding_window", 4096), c.float("max_window_layers", 28)
	if !use {
		window = 0
	}
	d.types(c, func(i int) bool { return window > 0 && float64(i) >= full })
	d.slide(c, window)
	d.turn(c, 10000, context)
	return d.architecture()
}

func qwen2(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 32768, kvHeads: 32})
	d.qkvBias = true
	return d.qwen(c, context)
}

func qwen3(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 32768, kvHeads: 32, headDim: 128})
	d.bias(c)
	d.QKNorm = true
	return d.qwen(c, context)
}

// gemma is what Gemma 2 and Gemma 3 have in common.
func gemma(c *config, context int) *decoder {
	d := readDecoder(c, usual{context: context, kvHeads: 4, headDim: 256, tied: true})
	act := c.activation("hidden_activation", "gelu_pytorch_tanh")
	d.act = act // hidden_act, which the first configs have too, is not what the model uses
	d.bias(c)
	d.norms, d.normPlusOne = nn.SandwichNorm, true
	d.embeddingScale = math.Sqrt(float64(d.Dim))
	scalar := c.float("query_pre_attn_scalar", 256)
	if scalar == 0 {
		c.fail("field query_pre_attn_scalar is 0, it needs to be positive")
	}
	d.scale = 1 / math.Sqrt(scalar)
	d.logitSoftCap = c.float("final_logit_softcapping", 0)
	needs(c, "use_bidirectional_attention", false)
	return d
}

func gemma2(c *config, context int) *architecture {
	d := gemma(c, 8192)
	if !c.given("final_logit_softcapping") {
		d.logitSoftCap = 30
	}
	if d.softCap = c.float("attn_logit_softcapping", 0); !c.given("attn_logit_softcapping") {
		d.softCap = 50
	}
	d.types(c, func(i int) bool { return i%2 == 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	d.turn(c, 10000, context)
	return d.architecture()
}

func gemma3(c *config, context int) *architecture {
	d := gemma(c, 131072)
	d.QKNorm = true
	if c.has("attn_logit_softcapping") {
		c.fail("field attn_logit_softcapping is %s, Gemma 3 has none", c.fields["attn_logit_softcapping"])
	}
	c.read["_sliding_window_pattern"] = true // is written beside layer_types, for no one to read
	pattern := c.size("sliding_window_pattern", 6)
	d.types(c, func(i int) bool { return (i+1)%pattern != 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	problem := ropeProblem{headDim: d.HeadDim, theta: c.float("rope_theta", 1e6), trained: d.Context, context: context}
	full := c.rope("full_attention", problem)
	// In configs from before transformers 5, rope_scaling and rope_theta are of the layers that see
	// everything alone.
	problem.theta = c.float("rope_local_base_freq", 10000)
	local := ops.RoPEOptions{Base: problem.theta}
	if c.has("rope_parameters") {
		local = c.rope(slidingAttention, problem)
	}
	for i, kind := range d.layerTypes {
		d.rope[i] = &full
		if kind == slidingAttention {
			d.rope[i] = &local
		}
	}
	return d.architecture()
}

func phi3(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 4096, epsilon: 1e-5})
	d.fused = true
	c.float("embd_pdrop", 0) // is in every config, for no one to read
	d.residual = c.float("resid_pdrop", 0)
	needs(c, "attention_bias", false)
	d.slideAll(c.optionalSize("sliding_window"))
	original := c.size("original_max_position_embeddings", 4096)
	if context == 0 {
		context = original
	}
	o := c.rope("", ropeProblem{
		headDim: d.HeadDim, theta: c.float("rope_theta", 10000), bands: true, trained: d.Context, original: original, context: context,
	})
	if o.Divisors != nil {
		d.Context = min(context, d.Context) // the divisors were chosen for sequences up to here
	}
	for i := range d.rope {
		d.rope[i] = &o
	}
	return d.architecture()
}

func olmo2(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 2048, epsilon: 1e-5})
	d.bias(c)
	d.qkNormAll, d.norms = true, nn.BranchNorm
	d.turn(c, 10000, context)
	return d.architecture()
}

func smollm3(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 32768, kvHeads: 4, tied: true})
	d.bias(c)
	d.mlpBias = c.bool("mlp_bias", false)
	d.turn(c, 2e6, context)
	turned, interval := c.ints("no_rope_layers"), c.size("no_rope_layer_interval", 4)
	if turned != nil && len(turned) < d.Layers {
		c.fail("field no_rope_layers has %d elements, it needs one for each of the %d layers", len(turned), d.Layers)
		turned = nil
	}
	for i := range d.Layers {
		if turned == nil && (i+1)%interval == 0 || turned != nil && turned[i] == 0 {
			d.rope[i] = nil
		}
	}
	use, window := c.bool("use_sliding_window", false), c.optionalSize("sliding_window")
	c.read["max_window_layers"] = true // is in the published config, for no one to read
	if !use {
		window = 0
	}
	d.types(c, func(i int) bool { return window > 0 && d.rope[i] == nil })
	d.slide(c, window)
	return d.architecture()
}

// architecture is the model and the names of its tensors.
func (d *decoder) architecture() *architecture {
	d.Block = func(i int, b *nn.BlockConfig) {
		b.Norms, b.Dropout, b.MLPBias = d.norms, d.residual, &d.mlpBias
		if d.act != kernels.SiLU {
			b.Activation = d.act
		}
		a := &b.Attention
		a.Separate = true
		a.NoBias, a.NoProjBias, a.QKNormAll, a.RoPE = !d.qkvBias, !d.projBias, d.qkNormAll, d.rope[i]
		a.Options.Scale, a.Options.SoftCap, a.Options.Dropout = d.scale, d.softCap, d.attention
		if d.windows[i] > 0 {
			a.Options.Window = &kernels.Window{Left: d.windows[i] - 1}
		}
	}
	links := []link{table("model.embed_tokens.weight", "tokens.weight", d.Vocab, d.Dim)}
	for i := range d.Layers {
		links = append(links, d.layer(fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("blocks.%d.", i))...)
	}
	links = append(links, same("model.norm.weight", "norm.weight", d.Dim))
	a := &architecture{prefix: "model.", unused: []string{"rotary_emb.inv_freq"}}
	if d.TiedHead {
		a.unused = append(a.unused, "lm_head.weight")
	} else {
		links = append(links, same("lm_head.weight", "head.weight", d.Vocab, d.Dim))
	}
	a.links = links
	a.build = func(s *nn.Scope) any {
		model := d.Model()
		model.EmbeddingScale, model.LogitSoftCap, model.Block.NormPlusOne = d.embeddingScale, d.logitSoftCap, d.normPlusOne
		return nn.NewLanguageModel(s, model)
	}
	return a
}

// layer is the tensors of a block.
func (d *decoder) layer(theirs, ours string) []link {
	queries, keys := d.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	q, k, v := output{ours + "attn.q", queries}, output{ours + "attn.k", keys}, output{ours + "attn.v", keys}
	gate, up := output{ours + "mlp.gate", d.Hidden}, output{ours + "mlp.up", d.Hidden}
	proj, down := output{ours + "attn.proj", d.Dim}, output{ours + "mlp.down", d.Dim}

	var links []link
	add := func(name string, in int, biased bool, outputs ...output) {
		weights, biases := make([]output, len(outputs)), make([]output, len(outputs))
		for i, o := range outputs {
			weights[i], biases[i] = o, o
			weights[i].ours, biases[i].ours = o.ours+".weight", o.ours+".bias"
		}
		links = append(links, joined(theirs+name+".weight", in, weights...))
		if biased {
			links = append(links, joinedBias(theirs+name+".bias", biases...))
		}
	}
	if d.fused {
		add("self_attn.qkv_proj", d.Dim, d.qkvBias, q, k, v)
		add("mlp.gate_up_proj", d.Dim, d.mlpBias, gate, up)
	} else {
		add("self_attn.q_proj", d.Dim, d.qkvBias, q)
		add("self_attn.k_proj", d.Dim, d.qkvBias, k)
		add("self_attn.v_proj", d.Dim, d.qkvBias, v)
		add("mlp.gate_proj", d.Dim, d.mlpBias, gate)
		add("mlp.up_proj", d.Dim, d.mlpBias, up)
	}
	add("self_attn.o_proj", queries, d.qkvBias && d.projBias, proj)
	add("mlp.down_proj", d.Hidden, d.mlpBias, down)
	if d.QKNorm {
		queries, keys = d.HeadDim, d.HeadDim
	}
	if d.QKNorm || d.qkNormAll {
		links = append(links, same(theirs+"self_attn.q_norm.weight", ours+"attn.qnorm.weight", queries),
			same(theirs+"self_attn.k_norm.weight", ours+"attn.knorm.weight", keys))
	}
	for _, norm := range normNames[d.norms] {
		links = append(links, same(theirs+norm.theirs+".weight", ours+norm.ours+".weight", d.Dim))
	}
	return links
}

// normNames are what the norms of a block are called in the files.
var normNames = map[nn.NormPlace][]struct{ ours, theirs string }{
	nn.PreNorm:    {{"norm1", "input_layernorm"}, {"norm2", "post_attention_layernorm"}},
	nn.BranchNorm: {{"norm1", "post_attention_layernorm"}, {"norm2", "post_feedforward_layernorm"}},
	nn.SandwichNorm: {
		{"norm1", "input_layernorm"}, {"outnorm1", "post_attention_layernorm"},
		{"norm2", "pre_feedforward_layernorm"}, {"outnorm2", "post_feedforward_layernorm"},
	},
}
