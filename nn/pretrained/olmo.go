package pretrained

import (
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
	if c.has("clip_qkv") {
		c.fail("field clip_qkv is %s, only null is supported", c.fields["clip_qkv"])
	}
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
	theta := c.float("rope_theta", 500000)
	full := d.ropeOf(c, fullAttention, &ropeProblem{theta: theta, partial: 1, context: context})
	local := ops.RoPEOptions{Base: theta}
	if c.has("rope_parameters") {
		local = d.ropeOf(c, slidingAttention, &ropeProblem{theta: theta, partial: 1, context: context})
	}
	d.turnByType(full, local)
	return d.architecture()
}
