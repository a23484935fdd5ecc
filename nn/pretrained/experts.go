package pretrained

import (
	"encoding/json"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
)

// mixture is the layers of a decoder that are experts.
type mixture struct {
	nn.ExpertsConfig
	sparse []bool // of each layer; the others have the decoder's MLP
}

// readExperts reads what the families with experts have in common. Their hidden size and their
// number are called otherwise from family to family.
func readExperts(c *config, d *decoder, hidden, count string, chosen int) *mixture {
	m := &mixture{sparse: make([]bool, d.Layers)}
	m.Dim, m.Hidden, m.Count = d.Block.Attention.Dim, c.size(hidden, 0), c.size(count, 0)
	m.Router = kernels.RouterOptions{Chosen: c.size("num_experts_per_tok", chosen)}
	if m.Router.Chosen > m.Count {
		c.fail("field num_experts_per_tok is %d, it needs to be at most %s, which is %d", m.Router.Chosen, c.called(count), m.Count)
		m.Router.Chosen = 1
	}
	m.Activation = d.Block.Activation
	c.read["router_aux_loss_coef"], c.read["output_router_logits"] = true, true // for balance alone
	for i := range m.sparse {
		m.sparse[i] = true
	}
	d.mixture = m
	return m
}

// balance reads what a family's loss adds so that tokens use all experts alike.
func (d *decoder) balance(c *config, usual float64) {
	if factor := c.float("router_aux_loss_coef", usual); c.bool("output_router_logits", false) {
		d.BalanceFactor = factor
	}
}

// steps reads which layers have an MLP all the same, as Qwen's configs say it.
func (m *mixture) steps(c *config) {
	step := c.size("decoder_sparse_step", 1)
	for i := range m.sparse {
		m.sparse[i] = (i+1)%step == 0
	}
	for _, i := range c.ints("mlp_only_layers") {
		if i >= 0 && i < len(m.sparse) {
			m.sparse[i] = false
		}
	}
}

// links are the tensors of a layer's experts.
func (m *mixture) links(d *decoder, theirs, ours string) (links []link) {
	parts, dim := d.names.parts, m.Dim
	name := func(part string) string { return theirs + parts[part] }
	router := weight(name("mlp.router")+".weight", ours+"mlp.router.weight", dim, m.Count)
	router.linear = false
	links = append(links, router)
	if m.Corrected {
		links = append(links, same(name("mlp.correction"), ours+"mlp.router.correction", m.Count))
	}
	if m.RouterBias {
		links = append(links, same(name("mlp.router")+".bias", ours+"mlp.router.bias", m.Count))
	}
	if m.Clamped != nil {
		return append(links, m.whole(name("mlp.experts"), ours)...)
	}
	for e := range m.Count {
		of := func(their, to string, in, out, at, columns int) {
			links = append(links, link{
				theirs: fmt.Sprintf("%s.%d.%s.weight", name("mlp.experts"), e, parts[their]), shape: []int{out, in}, transposed: true, experts: true,
				parts: []part{{ours: ours + to, shape: []int{m.Count, in, columns}, n: out, at: at, matrix: e}},
			})
		}
		of("expert.gate", "mlp.gateup.weight", dim, m.Hidden, 0, 2*m.Hidden)
		of("expert.up", "mlp.gateup.weight", dim, m.Hidden, m.Hidden, 2*m.Hidden)
		of("expert.down", "mlp.down.weight", m.Hidden, dim, 0, dim)
	}
	if hidden := m.Shared.Hidden; hidden > 0 {
		of := func(part string, in, out int) {
			theirs, ours := name("mlp.shared")+"."+parts["expert."+part], ours+"mlp.shared."+part
			links = append(links, linears(theirs, in, m.Shared.Bias, output{ours: ours, n: out})...)
		}
		of("gate", dim, hidden)
		of("up", dim, hidden)
		of("down", hidden, dim)
		if m.Shared.Gated {
			links = append(links, weight(name("mlp.sharedgate")+".weight", ours+"mlp.sharedgate.weight", dim, 1))
		}
	}
	return links
}

// whole are the tensors of all experts at once, as gpt-oss has them.
func (m *mixture) whole(theirs, ours string) (links []link) {
	for _, w := range []struct {
		theirs, ours string
		in, out      int
	}{{"gate_up_proj", "gateup", m.Dim, 2 * m.Hidden}, {"down_proj", "down", m.Hidden, m.Dim}} {
		l := same(theirs+"."+w.theirs, ours+"mlp."+w.ours+".weight", m.Count, w.in, w.out)
		l.experts = true
		links = append(links, l, same(theirs+"."+w.theirs+"_bias", ours+"mlp."+w.ours+".bias", m.Count, w.out))
	}
	return links
}

// expertNames are what most families with experts call their tensors, beside those of llamaNames.
func expertNames(other map[string]string) map[string]string {
	parts := map[string]string{
		"mlp.router": "mlp.gate", "mlp.correction": "mlp.gate.e_score_correction_bias", "mlp.experts": "mlp.experts",
		"expert.gate": "gate_proj", "expert.up": "up_proj", "expert.down": "down_proj", "mlp.shared": "mlp.shared_experts",
	}
	for part, name := range other {
		parts[part] = name
	}
	return parts
}

// grouping is a family's values of fields about the choice of experts that a config leaves out.
type grouping struct {
	scale         float64
	groups, kept  int // 0 of the first: one
	dense, shared int // the first layers, whose MLP is no mixture, and the experts that all tokens have
}

// corrected reads what GLM-4.5 and DeepSeek-V3 have in common: scores of each expert by itself,
// whose choice is corrected, groups of experts, and MLPs in the first layers.
func (m *mixture) corrected(c *config, usual grouping) {
	m.Corrected = true
	m.Router.Scores, m.Router.GroupChoice, m.Router.Epsilon = kernels.SigmoidScores, kernels.GroupByBestTwo, 1e-20
	m.Router.Normalize = c.bool("norm_topk_prob", true)
	m.grouped(c, usual)
}

// grouped reads groups of experts, and what belongs to them.
func (m *mixture) grouped(c *config, usual grouping) {
	if groups := c.size("n_group", max(1, usual.groups)); groups > 1 {
		m.Router.Groups, m.Router.KeptGroups = groups, c.size("topk_group", max(1, usual.kept))
	} else {
		needs(c, "topk_group", 1)
	}
	m.shared(c, usual)
	if err := m.Router.Validate(m.Count, kernels.F32); err != nil {
		c.fail("field n_group, topk_group or num_experts_per_tok: %w", err)
	}
}

// shared reads what experts are multiplied by, which ones all tokens have, and the MLPs of the
// first layers.
func (m *mixture) shared(c *config, usual grouping) {
	m.Router.Scale = c.positive("routed_scaling_factor", usual.scale)
	m.Shared.Hidden = m.Hidden * c.size("n_shared_experts", usual.shared)
	first := c.float("first_k_dense_replace", float64(usual.dense))
	for i := range m.sparse {
		m.sparse[i] = float64(i) >= first
	}
}

// gptOSS is gpt-oss, whose attention has sinks and whose layers slide in turns.
func gptOSS(c *config, context int) *architecture {
	c.also("num_local_experts", "num_experts")
	c.also("num_experts_per_tok", "experts_per_token")
	if !c.has("rope_parameters") && !c.has("rope_scaling") {
		c.fields["rope_scaling"] = json.RawMessage(
			`{"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false, "original_max_position_embeddings": 4096}`)
	}
	d := readDecoder(c, usual{context: 131072, kvHeads: 8, headDim: 64, epsilon: 1e-5})
	d.names = llamaNames(expertNames(map[string]string{"mlp.router": "mlp.router", "attn.sinks": "self_attn.sinks"}))
	d.biases(c.bool("attention_bias", true), false)
	d.Block.Attention.Sinks = true
	m := readExperts(c, d, "intermediate_size", "num_local_experts", 4)
	d.balance(c, 0.001)
	m.Router.Normalize, m.RouterBias, m.Bias = true, true, true
	m.Activation = kernels.NoActivation // hidden_act is given, and not used
	m.Clamped = &kernels.ClampedGate{Slope: c.positive("swiglu_alpha", 1.702), Limit: c.positive("swiglu_limit", 7)}
	c.read["initial_context_length"] = true // is in the published configs, for no one to read
	d.types(c, func(i int) bool { return i%2 == 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 128))
	d.turn(c, 150000, context)
	return d.architecture()
}

// glm4MoE is GLM-4.5, without the layers that predict further tokens.
func glm4MoE(c *config, context int) *architecture {
	c.also("n_routed_experts", "num_local_experts")
	c.also("num_nextn_predict_layers", "num_mtp_layers")
	d := readDecoder(c, usual{context: 131072, kvHeads: 8, epsilon: 1e-5})
	d.names = llamaNames(expertNames(nil))
	d.biases(c.bool("attention_bias", false), false)
	d.Block.Attention.NoProjBias, d.Block.Attention.QKNorm = true, c.bool("use_qk_norm", false)
	m := readExperts(c, d, "moe_intermediate_size", "n_routed_experts", 8)
	m.corrected(c, grouping{scale: 1, dense: 1, shared: 1})
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 0.5, bands: true, context: context})
	a := d.architecture()
	a.ignores(c, d)
	return a
}

// ignores lets files have layers behind those of the model, which predict further tokens.
func (a *architecture) ignores(c *config, d *decoder) {
	const name = "num_nextn_predict_layers"
	further := field(c, name, "an integer", 1)
	if further < 0 || further > maxLayers {
		c.fail("field %s is %d, it needs to be from 0 to %d", c.called(name), further, maxLayers)
		further = 0
	}
	for i := range further {
		a.further = append(a.further, fmt.Sprintf("%s%s%d.", d.names.body, d.names.layers, d.Layers+i))
	}
}

func mixtral(c *config, context int) *architecture {
	c.also("num_local_experts", "num_experts")
	d := readDecoder(c, usual{context: 4096 * 32, kvHeads: 8, epsilon: 1e-5})
	d.names = llamaNames(expertNames(map[string]string{
		"mlp.router": "block_sparse_moe.gate", "mlp.experts": "block_sparse_moe.experts", "expert.gate": "w1", "expert.up": "w3", "expert.down": "w2",
	}))
	c.training("router_jitter_noise")
	m := readExperts(c, d, "intermediate_size", "num_local_experts", 2)
	d.balance(c, 0.001)
	m.Router.Normalize = true
	d.turn(c, 1e6, context)
	d.slideAll(c.optionalSize("sliding_window"))
	return d.architecture()
}

func qwen2MoE(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 32768, kvHeads: 16})
	d.names = llamaNames(expertNames(map[string]string{"mlp.shared": "mlp.shared_expert", "mlp.sharedgate": "mlp.shared_expert_gate"}))
	d.biases(c.bool("qkv_bias", true), false)
	d.Block.Attention.NoProjBias = true
	m := readExperts(c, d, "moe_intermediate_size", "num_experts", 4)
	d.balance(c, 0.001)
	m.steps(c)
	m.Router.Normalize = c.bool("norm_topk_prob", false)
	m.Shared = nn.SharedExpert{Hidden: c.size("shared_expert_intermediate_size", 5632), Gated: true}
	window, most := 0, c.float("max_window_layers", 28)
	if c.read["sliding_window"] = true; c.bool("use_sliding_window", false) {
		window = c.sizeOrNone("sliding_window", 4096)
	}
	d.types(c, func(i int) bool { return window > 0 && i%2 == 0 && float64(i) < most })
	d.slide(c, window)
	d.turn(c, 10000, context)
	return d.architecture()
}

func qwen3MoE(c *config, context int) *architecture {
	c.also("num_experts", "num_local_experts")
	d := readDecoder(c, usual{context: 32768, kvHeads: 4})
	d.names = llamaNames(expertNames(nil))
	d.bias(c)
	d.Block.Attention.QKNorm = true
	m := readExperts(c, d, "moe_intermediate_size", "num_experts", 8)
	d.balance(c, 0.001)
	m.steps(c)
	m.Router.Normalize = c.bool("norm_topk_prob", false)
	d.turn(c, 10000, context)
	c.read["max_window_layers"] = true // is in the published configs, for no one to read
	if c.read["sliding_window"] = true; c.bool("use_sliding_window", false) {
		d.slideAll(c.sizeOrNone("sliding_window", 4096))
	}
	return d.architecture()
}

func olmoe(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 4096, epsilon: 1e-5})
	d.names = llamaNames(expertNames(nil))
	d.bias(c)
	d.Block.Attention.QKNormAll = true
	d.clip(c, "clip_qkv")
	c.also("num_experts", "num_local_experts")
	d.balance(c, 0.01)
	readExperts(c, d, "intermediate_size", "num_experts", 8).Router.Normalize = c.bool("norm_topk_prob", false)
	d.turn(c, 10000, context)
	return d.architecture()
}
