package pretrained

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// decoder is a model that predicts the next token: its description, what differs from layer to
// layer, and what its tensors are called.
type decoder struct {
	nn.LanguageModelConfig
	names      names
	windows    []int              // of each layer; 0 for none
	rope       []*ops.RoPEOptions // of each layer; nil for none
	mixture    *mixture           // nil for none
	both       *config            // that of a model whose attention sees all tokens; nil for another
	plainQKV   bool               // queries, keys and values have no biases, even if the others do
	layerTypes []string
	padding    map[string]int // see architecture
}

// names are what the tensors of a decoder are called in files, without the .weight or .bias behind.
type names struct {
	body, head                       string // before all names but the head's, and that
	tokens, positions, embnorm, norm string
	project, narrow                  string // what lies between vectors of tokens and those of blocks
	layers                           string // of the blocks, before their numbers
	// parts are those of a block by the names of package nn. attn.qkv in the place of attn.q,
	// attn.k and attn.v is one matrix of the three, and mlp.gateup one of mlp.gate and mlp.up.
	// Norms of heads whose names have a %d are a tensor for each head.
	parts map[string]string
	// groups says that attn.qkv has the queries, key and value of one group of heads after the
	// other, and not all queries, all keys and all values.
	groups bool
}

// llamaNames are what most families call their tensors. Parts may be called otherwise.
func llamaNames(other map[string]string) names {
	parts := map[string]string{
		"norm1": "input_layernorm", "norm2": "post_attention_layernorm",
		"attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj", "attn.v": "self_attn.v_proj", "attn.proj": "self_attn.o_proj",
		"attn.qnorm": "self_attn.q_norm", "attn.knorm": "self_attn.k_norm",
		"mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
	}
	maps.Copy(parts, other)
	return names{body: "model.", head: "lm_head", tokens: "embed_tokens", norm: "norm", layers: "layers.", parts: parts}
}

// usual are a family's values of fields that a config leaves out. There are always sizes in a
// config.
type usual struct {
	context, kvHeads, headDim int // 0 of the last two: the heads, and their share of the width
	epsilon                   float64
	tied                      bool
}

// classified are the families, by model_type, whose decoders may have a head for classes of texts.
var classified = []string{"gemma", "gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"}

// unpadded are the families to whose pad_token_id transformers gives a gradient like to others.
var unpadded = []string{"bloom", "falcon", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt"}

// paddings are the rows of padding of configs that do not name one, of families that have one then.
var paddings = map[string]int{
	"cohere": 0, "cohere2": 0, "gemma": 0, "gemma2": 0, "gemma3_text": 0, "glm": 151329, "glm4": 151329, "olmo": 1, "olmo2": 1, "olmo3": 1, "olmoe": 1,
	"ernie4_5": 0, "opt": 1, "seed_oss": 1, "phi3": 32000, "smollm3": 128004,
}

// newDecoder reads what all decoders have. A context of 0 says that there is no limit and no field
// for it.
func newDecoder(c *config, context int, tied bool) *decoder {
	endings := []string{"ForCausalLM", "LMHeadModel", "Model"}
	if slices.Contains(classified, c.string("model_type", "")) {
		endings = append(endings, classes)
	}
	kind, family := c.ending(endings...), c.string("model_type", "")
	d := &decoder{LanguageModelConfig: nn.LanguageModelConfig{
		Vocab: c.size("vocab_size", 0), Layers: c.layers("num_hidden_layers", 0), TiedHead: c.bool("tie_word_embeddings", tied),
	}}
	if row, known := paddings[family]; !slices.Contains(unpadded, family) {
		if !known || row >= d.Vocab {
			row = noPadding
		}
		d.padding = c.padding(d.Vocab, row, "tokens.weight")
	}
	if context > 0 {
		d.Context = c.size("max_position_embeddings", context)
	}
	if kind == classes {
		d.Classes = &nn.TextClasses{Count: c.classes()}
		if c.has("pad_token_id") {
			d.Classes.Padding = new(field(c, "pad_token_id", "an integer", 0))
		}
	}
	a := &d.Block.Attention
	a.Dim, a.Heads, a.Separate = c.size("hidden_size", 0), c.size("num_attention_heads", 0), true
	a.KVHeads, a.HeadDim = a.Heads, a.Dim/a.Heads
	if a.HeadDim == 0 {
		c.fail("field %s is %d, it needs to be at most hidden_size, which is %d", c.called("num_attention_heads"), a.Heads, a.Dim)
		a.HeadDim = 1
	}
	a.Options.Causal = kernels.CausalBottomRight
	d.sees(c)
	c.unread("is_decoder")
	d.windows, d.rope = make([]int, d.Layers), make([]*ops.RoPEOptions, d.Layers)
	return d
}

// readDecoder reads what nearly all of the families of Llama's shape have in common.
func readDecoder(c *config, u usual) *decoder {
	d := newDecoder(c, u.context, u.tied)
	d.names = llamaNames(nil)
	d.Block.Hidden, d.Block.Epsilon = c.size("intermediate_size", 0), c.positive("rms_norm_eps", cmp.Or(u.epsilon, 1e-6))
	d.Block.Gated, d.Block.RMSNorm, d.Block.Activation = true, true, c.activation("hidden_act", "silu")
	d.group(c, u.kvHeads)
	a := &d.Block.Attention
	if size := c.sizeOrNone("head_dim", u.headDim); size > 0 {
		a.HeadDim = size
	}
	a.NoBias, a.Options.Dropout.P = true, c.float("attention_dropout", 0)
	return d
}

// group reads how many heads keys and values have; 0 means as many as queries.
func (d *decoder) group(c *config, otherwise int) {
	if heads := c.sizeOrNone("num_key_value_heads", otherwise); heads > 0 {
		d.Block.Attention.KVHeads = heads
	}
}

// bias reads attention_bias, which is of all four projections.
func (d *decoder) bias(c *config) { d.biases(c.bool("attention_bias", false), false) }

// biases says which linear layers have one.
func (d *decoder) biases(attention, mlp bool) {
	d.Block.Attention.NoBias, d.Block.MLPBias = !attention, &mlp
}

// clip reads what bounds queries, keys and values.
func (d *decoder) clip(c *config, name string) {
	if c.has(name) {
		d.Block.Attention.Clip = c.positive(name, 0)
	}
}

// normHeads reads whether heads of queries and keys are normalised by LayerNorms, and how.
func (d *decoder) normHeads(c *config, name string, otherwise bool, kind nn.QKNormKind, queries, keys string) {
	a := &d.Block.Attention
	if a.QKNorm = c.bool(name, otherwise); a.QKNorm {
		a.QKNormKind, d.names.parts["attn.qnorm"], d.names.parts["attn.knorm"] = kind, queries, keys
	}
}

// types sets the layers' types: layer_types, or what otherwise gives for each.
func (d *decoder) types(c *config, otherwise func(i int) bool) {
	given := c.strings("layer_types")
	if given != nil && len(given) != d.Layers {
		c.fail("field layer_types has %d elements, it needs one for each of the %d layers", len(given), d.Layers)
		given = nil
	}
	for i := range d.Layers {
		kind := fullAttention
		if given == nil && otherwise(i) {
			kind = slidingAttention
		}
		if given != nil {
			kind = given[i]
		}
		if kind != fullAttention && kind != slidingAttention {
			c.fail("field layer_types has %q, it needs to be %s or %s", kind, fullAttention, slidingAttention)
		}
		d.layerTypes = append(d.layerTypes, kind)
	}
}

const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// slide gives the layers of that type a window.
func (d *decoder) slide(c *config, window int) {
	for i, kind := range d.layerTypes {
		if kind != slidingAttention {
			continue
		}
		switch {
		case window == 0 && c.has("use_sliding_window"):
			c.fail("field use_sliding_window or field sliding_window gives no window, and field layer_types says that layer %d is of %s", i, slidingAttention)
		case window == 0:
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
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", theta), partial: 1, context: context})
}

// turnAs is turn for a problem that says more.
func (d *decoder) turnAs(c *config, p *ropeProblem) {
	o := d.ropeOf(c, "", p)
	for i := range d.rope {
		d.rope[i] = &o
	}
}

// ropeOf reads the RoPE of layers of a type. The model then takes sequences as long as it is for.
func (d *decoder) ropeOf(c *config, layerType string, p *ropeProblem) ops.RoPEOptions {
	p.headDim, p.trained = d.Block.Attention.HeadDim, d.Context
	o := c.rope(layerType, p)
	o.Interleaved = p.neighbours
	if p.holds > 0 {
		d.Context = min(d.Context, p.holds)
	}
	return o
}

// architecture is the model and the names of its tensors.
func (d *decoder) architecture() *architecture {
	d.Change = func(i int, b *nn.BlockConfig) {
		b.Attention.RoPE = d.rope[i]
		if d.windows[i] > 0 {
			b.Attention.Options.Window = &kernels.Window{Left: d.windows[i] - 1}
		}
		if m := d.mixture; m != nil && m.sparse[i] {
			b.NewMLP = func(s *nn.Scope, _ nn.MLPConfig) nn.Layer { return nn.NewExperts(s, m.ExpertsConfig) }
		}
	}
	n, dim := d.names, d.Block.Attention.Dim
	width := cmp.Or(d.TokenDim, dim)
	links := []link{table(n.body+n.tokens+".weight", "tokens.weight", d.Vocab, width)}
	if width != dim {
		links = append(links, weight(n.body+n.project+".weight", "project.weight", width, dim), weight(n.body+n.narrow+".weight", "narrow.weight", dim, width))
	}
	if d.Positions {
		links = append(links, same(n.body+n.positions+".weight", "positions.weight", d.FirstPosition+d.Context, dim))
	}
	if d.EmbeddingNorm {
		links = append(links, d.norm(n.body+n.embnorm, "embnorm")...)
	}
	for i := range d.Layers {
		links = append(links, d.layer(fmt.Sprintf("%s%s%d.", n.body, n.layers, i), fmt.Sprintf("blocks.%d.", i), d.mixture != nil && d.mixture.sparse[i])...)
	}
	if d.Block.Norms != nn.PostNorm && !d.NoLastNorm {
		links = append(links, d.norm(n.body+n.norm, "norm")...)
	}
	a := &architecture{decoder: d, prefix: n.body, padding: d.padding, unused: []string{"rotary_emb.inv_freq"}}
	switch {
	case d.Classes != nil:
		a.heads = []string{"score"}
		links = append(links, weight("score.weight", "classifier.weight", dim, d.Classes.Count))
	case d.TiedHead:
		a.repeats = []repeat{{n.head + ".weight", n.body + n.tokens + ".weight"}}
	default:
		links = append(links, same(n.head+".weight", "head.weight", d.Vocab, width))
	}
	if d.HeadBias {
		links = append(links, link{theirs: n.head + ".bias", shape: []int{d.Vocab}, parts: []part{{ours: "headbias", shape: []int{1, d.Vocab}, n: d.Vocab}}})
	}
	a.links = links
	a.build = func(s *nn.Scope) any { return nn.NewLanguageModel(s, d.LanguageModelConfig) }
	if d.both != nil {
		return d.encoder(a)
	}
	return a
}

// layer is the tensors of a block, whose MLP may be experts.
func (d *decoder) layer(theirs, ours string, sparse bool) []link {
	b, a := d.Block, d.Block.Attention
	mlpBias := !a.NoBias
	if b.MLPBias != nil {
		mlpBias = *b.MLPBias
	}
	links := d.attention(theirs, ours)
	if sparse {
		links = append(links, d.mixture.links(d, theirs, ours)...)
	} else {
		links = append(links, d.mlp(theirs, ours, mlpBias)...)
	}
	if a.Sinks {
		links = append(links, same(theirs+d.names.parts["attn.sinks"], ours+"attn.sinks", a.Heads))
	}
	if a.QKNorm || a.QKNormAll {
		links = append(links, d.headNorm(theirs+d.names.parts["attn.qnorm"], ours+"attn.qnorm", a.Heads)...)
		links = append(links, d.headNorm(theirs+d.names.parts["attn.knorm"], ours+"attn.knorm", a.KVHeads)...)
	}
	for _, norm := range normParts[b.Norms] {
		links = append(links, d.norm(theirs+d.names.parts[norm], ours+norm)...)
	}
	return links
}

// headNorm is the tensors of what normalises heads of queries or keys.
func (d *decoder) headNorm(theirs, ours string, heads int) (links []link) {
	switch a := d.Block.Attention; {
	case a.QKNormAll:
		return []link{same(theirs+".weight", ours+".weight", heads*a.HeadDim)}
	case a.QKNormKind == nn.HeadLayerNorm:
		return layerNorm(theirs, ours, a.HeadDim)
	case a.QKNormKind != nn.HeadLayerNorms:
		return []link{same(theirs+".weight", ours+".weight", a.HeadDim)}
	case !strings.Contains(theirs, "%d"):
		return []link{same(theirs+".weight", ours+".weight", heads, a.HeadDim)}
	default:
		for h := range heads {
			links = append(links, link{theirs: fmt.Sprintf(theirs, h) + ".weight", shape: []int{a.HeadDim}, parts: []part{
				{ours: ours + ".weight", shape: []int{heads, a.HeadDim}, n: a.HeadDim, at: h * a.HeadDim},
			}})
		}
		return links
	}
}

// attention is the tensors of a block's attention but for norms and sinks.
func (d *decoder) attention(theirs, ours string) (links []link) {
	a := d.Block.Attention
	if a.Latent != nil {
		return d.latent(theirs, ours)
	}
	add := func(name string, in int, biased bool, outputs ...output) {
		links = append(links, linears(theirs+d.names.parts[name], in, biased, outputs...)...)
	}
	biased := !a.NoBias && !d.plainQKV
	q, k, v := output{ours: ours + "attn.q", n: a.Heads * a.HeadDim}, output{ours: ours + "attn.k", n: a.KVHeads * a.HeadDim}, output{ours: ours + "attn.v", n: a.KVHeads * a.HeadDim}
	switch _, joined := d.names.parts["attn.qkv"]; {
	case joined && d.names.groups:
		add("attn.qkv", a.Dim, biased, inGroups(a.KVHeads, q, k, v)...)
	case joined:
		add("attn.qkv", a.Dim, biased, q, k, v)
	default:
		add("attn.q", a.Dim, biased, q)
		add("attn.k", a.Dim, biased, k)
		add("attn.v", a.Dim, biased, v)
	}
	add("attn.proj", a.Heads*a.HeadDim, !a.NoBias && !a.NoProjBias, output{ours: ours + "attn.proj", n: a.Dim})
	return links
}

// mlp is the tensors of a block's MLP.
func (d *decoder) mlp(theirs, ours string, biased bool) (links []link) {
	b, dim := d.Block, d.Block.Attention.Dim
	add := func(name string, in int, outputs ...output) {
		links = append(links, linears(theirs+d.names.parts[name], in, biased, outputs...)...)
	}
	gate, up, fc := output{ours: ours + "mlp.gate", n: b.Hidden}, output{ours: ours + "mlp.up", n: b.Hidden}, output{ours: ours + "mlp.fc", n: b.Hidden}
	switch _, joined := d.names.parts["mlp.gateup"]; {
	case !b.Gated:
		add("mlp.fc", dim, fc)
		add("mlp.proj", b.Hidden, output{ours: ours + "mlp.proj", n: dim})
	case joined:
		add("mlp.gateup", dim, gate, up)
	default:
		add("mlp.gate", dim, gate)
		add("mlp.up", dim, up)
	}
	if b.Gated {
		add("mlp.down", b.Hidden, output{ours: ours + "mlp.down", n: dim})
	}
	return links
}

// normParts are the norms of a block.
var normParts = map[nn.NormPlace][]string{
	nn.PreNorm: {"norm1", "norm2"}, nn.PostNorm: {"norm1", "norm2"}, nn.BranchNorm: {"norm1", "norm2"},
	nn.SandwichNorm: {"norm1", "outnorm1", "norm2", "outnorm2"}, nn.StreamNorm: {"norm1", "norm2"},
	nn.ParallelNorm: {"norm1"}, nn.ParallelNorms: {"norm1", "norm2"},
}

// norm is the tensors of a norm. Those of a maker have none.
func (d *decoder) norm(theirs, ours string) []link {
	dim := d.Block.Attention.Dim
	biased := !d.Block.Attention.NoBias
	if d.Block.NormBias != nil {
		biased = *d.Block.NormBias
	}
	switch {
	case d.Block.NewNorm != nil:
		return nil
	case d.Block.RMSNorm || !biased:
		return []link{same(theirs+".weight", ours+".weight", dim)}
	}
	return layerNorm(theirs, ours, dim)
}

// linears is the weight of linear layers side by side, and their biases.
func linears(theirs string, in int, biased bool, outputs ...output) []link {
	weights, biases := make([]output, len(outputs)), make([]output, len(outputs))
	for i, o := range outputs {
		weights[i], biases[i] = o, o
		weights[i].ours, biases[i].ours = o.ours+".weight", o.ours+".bias"
	}
	links := []link{joined(theirs+".weight", in, weights...)}
	if biased {
		links = append(links, joinedBias(theirs+".bias", biases...))
	}
	return links
}

// inGroups takes the outputs apart: of each of n groups what is of the first, of the second, and so
// on.
func inGroups(n int, outputs ...output) (list []output) {
	for group := range n {
		for _, o := range outputs {
			each := o.n / n
			list = append(list, output{ours: o.ours, n: each, at: group * each, of: o.n})
		}
	}
	return list
}
