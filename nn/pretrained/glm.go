package pretrained

import "github.com/stheno-ml/stheno/nn"

// glm is GLM-4-9B in the form of transformers.
func glm(c *config, context int) *architecture { return readGLM(c, context).architecture() }

// glm4 is GLM-4-0414, which normalises what is added too.
func glm4(c *config, context int) *architecture {
	d := readGLM(c, context)
	d.Block.Norms = nn.SandwichNorm
	d.names.parts["outnorm1"], d.names.parts["outnorm2"] = "post_self_attn_layernorm", "post_mlp_layernorm"
	return d.architecture()
}

func readGLM(c *config, context int) *decoder {
	d := readDecoder(c, usual{context: 131072, kvHeads: 2, headDim: 128, epsilon: 1.5625e-7})
	d.names = llamaNames(map[string]string{"mlp.gateup": "mlp.gate_up_proj"})
	d.biases(c.bool("attention_bias", true), false)
	d.Block.Attention.NoProjBias = true
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 0.5, bands: true, neighbours: true, context: context})
	return d
}
