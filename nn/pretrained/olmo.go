package pretrained

import (
	"slices"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
)

// olmo is the first OLMo, whose norms have no parameters.
func olmo(c *config, context int) *architecture {
	d := newDecoder(c, 2048, false)
	d.names = llamaNames(nil)
	d.Block.Hidden, d.Block.Gated, d.Block.Activation = c.size("intermediate_size", 0), true, c.activation("hidden_act", "silu")
	d.Block.NewNorm = func(*nn.Scope, nn.NormConfig) nn.Layer { return nn.LayerFunc(nn.Tensor.LayerNorm) }
	d.group(c, 0)
	d.bias(c)
	d.Block.Attention.Options.Dropout.P = c.float("attention_dropout", 0)
	d.clip(c, "clip_qkv")
	d.turn(c, 10000, context)
	return d.architecture()
}

// branched is what OLMo 2 and 3 have in common.
func branched(c *config) *decoder {
	d := readDecoder(c, usual{context: 2048, epsilon: 1e-5})
	d.names = llamaNames(map[string]string{"norm1": "post_attention_layernorm", "norm2": "post_feedforward_layernorm"})
	d.bias(c)
	d.Block.Attention.QKNormAll, d.Block.Norms = true, nn.BranchNorm
	return d
}

func olmo2(c *config, context int) *architecture {
	d := branched(c)
	d.turn(c, 10000, context)
	return d.architecture()
}

func olmo3(c *config, context int) *architecture {
	d := branched(c)
	d.types(c, func(i int) bool { return (i+1)%4 != 0 })
	d.slide(c, c.sizeOrNone("sliding_window", 4096))
	const usual = 500000.0
	full := d.ropeOf(c, fullAttention, &ropeProblem{theta: c.float("rope_theta", usual), partial: 1, context: context})
	local := ops.RoPEOptions{Base: c.slidingTheta(d.layerTypes, usual)}
	if c.has("rope_parameters") {
		local = d.ropeOf(c, slidingAttention, &ropeProblem{theta: local.Base, partial: 1, context: context})
	}
	d.turnByType(full, local)
	return d.architecture()
}

// slidingTheta is the base of layers that slide, where rope_parameters does not say it. Versions of
// transformers before 5 took rope_theta for it, and later ones do not.
func (c *config) slidingTheta(types []string, usual float64) float64 {
	theta := c.float("rope_theta", usual)
	if o := c.object("rope_parameters"); o != nil {
		if local := o.object(slidingAttention); local != nil && local.has("rope_theta") {
			return usual
		}
	}
	if theta != usual && slices.Contains(types, slidingAttention) {
		c.fail("field rope_theta is %v, and versions of transformers differ in whether layers of %s turn by it: "+
			"field rope_parameters needs to say the rope_theta of both types", theta, slidingAttention)
	}
	return usual
}
