package pretrained

import (
	"cmp"
	"math"

	"github.com/stheno-ml/stheno/nn"
)

// deepSeekV2 is DeepSeek-V2 and its Coder and Lite.
func deepSeekV2(c *config, context int) *architecture {
	d := readDeepSeek(c, 2048)
	needs(c, "scoring_func", "softmax")
	needs(c, "norm_topk_prob", false)
	biased := c.bool("mlp_bias", false) // not of the experts that are chosen
	d.Block.MLPBias, d.mixture.Shared.Bias = &biased, biased
	g := grouping{scale: 1, shared: 2}
	switch method := c.string("topk_method", "greedy"); method {
	case "greedy":
		c.optionalSize("n_group") // of which it takes none
		c.optionalSize("topk_group")
		d.mixture.shared(c, g)
	case "group_limited_greedy":
		d.mixture.grouped(c, g)
	default:
		c.fail("field topk_method is %q, it needs to be greedy or group_limited_greedy", method)
	}
	return d.deepSeek(c, true, context)
}

// deepSeekV3 is DeepSeek-V3, R1, and others of their shape, without the layers that predict further
// tokens.
func deepSeekV3(c *config, context int) *architecture {
	c.also("n_routed_experts", "num_local_experts")
	c.also("num_nextn_predict_layers", "num_mtp_layers")
	d := readDeepSeek(c, 4096)
	needs(c, "scoring_func", "sigmoid")
	needs(c, "topk_method", "noaux_tc")
	d.mixture.corrected(c, grouping{scale: 2.5, groups: 8, kept: 4, dense: 3, shared: 1})
	a := d.deepSeek(c, c.bool("rope_interleave", true), context)
	a.ignores(c, d)
	return a
}

// readDeepSeek reads what both have but for the choice of experts.
func readDeepSeek(c *config, context int) *decoder {
	c.read["qk_head_dim"] = true // its parts say it
	d := newDecoder(c, context, false)
	d.names = llamaNames(expertNames(nil))
	d.Block.Hidden, d.Block.Epsilon = c.size("intermediate_size", 0), c.positive("rms_norm_eps", 1e-6)
	d.Block.Gated, d.Block.RMSNorm, d.Block.Activation = true, true, c.activation("hidden_act", "silu")
	a := &d.Block.Attention
	if heads := c.sizeOrNone("num_key_value_heads", a.Heads); heads != 0 && heads != a.Heads {
		c.fail("field num_key_value_heads is %d, it needs to be num_attention_heads, which is %d", heads, a.Heads)
	}
	a.Latent = &nn.Latent{
		Rank: c.size("kv_lora_rank", 512), QueryRank: c.sizeOrNone("q_lora_rank", 1536),
		Turned: c.size("qk_rope_head_dim", 64), Plain: c.size("qk_nope_head_dim", 128), Values: c.size("v_head_dim", 128),
	}
	needs(c, "head_dim", a.Latent.Turned) // which it stands for
	d.biases(c.bool("attention_bias", false), false)
	a.Options.Dropout.P = c.float("attention_dropout", 0)
	needs(c, "moe_layer_freq", 1)
	for _, name := range []string{"aux_loss_alpha", "ep_size", "seq_aux"} {
		c.read[name] = true // of how it was trained
	}
	readExperts(c, d, "moe_intermediate_size", "n_routed_experts", 8)
	return d
}

// deepSeek is the model, whose heads turn a part.
func (d *decoder) deepSeek(c *config, neighbours bool, context int) *architecture {
	a := &d.Block.Attention
	a.HeadDim = a.Latent.Turned
	if a.HeadDim%2 != 0 {
		c.fail("field qk_rope_head_dim is %d, it needs to be even", a.HeadDim)
	}
	p := &ropeProblem{theta: c.float("rope_theta", 10000), partial: 1, neighbours: neighbours, context: context}
	d.turnAs(c, p)
	a.HeadDim += a.Latent.Plain
	a.Options.Scale = cmp.Or(p.scores, 1) / math.Sqrt(float64(a.HeadDim))
	return d.architecture()
}

// latent is the tensors of an attention whose keys and values are made of a latent. Heads of
// queries have the part that turns behind the other in files, and in front of it here.
func (d *decoder) latent(theirs, ours string) (links []link) {
	a := d.Block.Attention
	l, head := a.Latent, a.Latent.Turned+a.Latent.Plain
	from, in, queries := "self_attn.q_proj", a.Dim, "attn.q"
	if middle := l.QueryRank; middle > 0 {
		links = append(linears(theirs+"self_attn.q_a_proj", a.Dim, !a.NoBias, output{ours: ours + "attn.qa", n: middle}),
			same(theirs+"self_attn.q_a_layernorm.weight", ours+"attn.qanorm.weight", middle))
		from, in, queries = "self_attn.q_b_proj", middle, "attn.qb"
	}
	var parts []output
	up := link{theirs: theirs + "self_attn.kv_b_proj.weight", shape: []int{a.Heads * (l.Plain + l.Values), l.Rank}, experts: true}
	for h := range a.Heads {
		of := a.Heads * head
		parts = append(parts, output{ours + queries, l.Plain, h*head + l.Turned, of}, output{ours + queries, l.Turned, h * head, of})
		up.parts = append(up.parts,
			part{ours: ours + "attn.keys.weight", shape: []int{a.Heads, l.Plain, l.Rank}, n: l.Plain, at: h * l.Plain},
			part{ours: ours + "attn.values.weight", shape: []int{a.Heads, l.Values, l.Rank}, n: l.Values, at: h * l.Values})
	}
	links = append(links, linears(theirs+from, in, false, parts...)...)
	links = append(links, linears(theirs+"self_attn.kv_a_proj_with_mqa", a.Dim, !a.NoBias, output{ours: ours + "attn.kva", n: l.Rank + l.Turned})...)
	links = append(links, same(theirs+"self_attn.kv_a_layernorm.weight", ours+"attn.kvnorm.weight", l.Rank), up)
	return append(links, linears(theirs+"self_attn.o_proj", a.Heads*l.Values, !a.NoBias, output{ours: ours + "attn.proj", n: a.Dim})...)
}
