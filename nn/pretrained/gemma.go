package pretrained

import (
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// readGemma is what the Gemmas have in common.
func readGemma(c *config, context, kvHeads int) *decoder {
	d := readDecoder(c, usual{context: context, kvHeads: kvHeads, headDim: 256, tied: true})
	d.bias(c)
	d.Block.NormPlusOne = true
	d.EmbeddingScale = math.Sqrt(float64(d.Block.Attention.Dim))
	needs(c, "use_bidirectional_attention", false)
	if d.Classes != nil && !c.given("pad_token_id") {
		d.Classes.Padding = new(0)
	}
	return d
}

// gemma is the first Gemma, whose gelu was always the approximation by a tanh.
func gemma(c *config, context int) *architecture {
	d := readGemma(c, 8192, 16)
	if d.Block.Activation == kernels.GELUErf || !c.has("hidden_act") {
		d.Block.Activation = kernels.GELUTanh
	}
	c.read["hidden_activation"] = true // is in the published configs, for no one to read
	d.turn(c, 10000, context)
	return d.architecture()
}

// sandwiched is what Gemma 2 and Gemma 3 have in common.
func (d *decoder) sandwiched(c *config) {
	d.names = llamaNames(map[string]string{"outnorm1": "post_attention_layernorm", "norm2": "pre_feedforward_layernorm", "outnorm2": "post_feedforward_layernorm"})
	d.Block.Activation = c.activation("hidden_activation", "gelu_pytorch_tanh") // hidden_act is given too, and not used
	d.Block.Norms = nn.SandwichNorm
	d.Block.Attention.Options.Scale = 1 / math.Sqrt(c.positive("query_pre_attn_scalar", 256))
	d.LogitSoftCap = c.float("final_logit_softcapping", 0)
}

func gemma2(c *config, context int) *architecture {
	d := readGemma(c, 8192, 4)
	d.sandwiched(c)
	if !c.given("final_logit_softcapping") {
		d.LogitSoftCap = 30
	}
	softCap := &d.Block.Attention.Options.SoftCap
	if *softCap = c.float("attn_logit_softcapping", 0); !c.given("attn_logit_softcapping") {
		*softCap = 50
	}
	d.types(c, func(i int) bool { return i%2 == 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	d.turn(c, 10000, context)
	return d.architecture()
}

func gemma3(c *config, context int) *architecture {
	d := readGemma(c, 131072, 4)
	d.sandwiched(c)
	d.Block.Attention.QKNorm = true
	if c.has("attn_logit_softcapping") {
		c.fail("field attn_logit_softcapping is %s, Gemma 3 has none", c.fields["attn_logit_softcapping"])
	}
	c.read["_sliding_window_pattern"] = true // is written beside layer_types, for no one to read
	pattern := c.size("sliding_window_pattern", 6)
	d.types(c, func(i int) bool { return (i+1)%pattern != 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	full := d.ropeOf(c, fullAttention, &ropeProblem{theta: c.float("rope_theta", 1e6), partial: 1, context: context})
	// In configs from before transformers 5, rope_scaling and rope_theta are of the layers that see
	// everything alone.
	theta := c.float("rope_local_base_freq", 10000)
	local := ops.RoPEOptions{Base: theta}
	if c.has("rope_parameters") {
		local = d.ropeOf(c, slidingAttention, &ropeProblem{theta: theta, partial: 1, context: context})
	}
	d.turnByType(full, local)
	return d.architecture()
}

// turnByType gives layers that see everything one RoPE and those that slide another.
func (d *decoder) turnByType(full, local ops.RoPEOptions) {
	for i, kind := range d.layerTypes {
		d.rope[i] = &full
		if kind == slidingAttention {
			d.rope[i] = &local
		}
	}
}
