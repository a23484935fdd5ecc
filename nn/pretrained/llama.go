package pretrained

func llama(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 2048})
	d.biases(c.bool("attention_bias", false), c.bool("mlp_bias", false))
	d.turn(c, 10000, context)
	return d.architecture()
}

// arcee is AFM, a Llama whose MLPs have no gate.
func arcee(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 4096, epsilon: 1e-5})
	d.names.parts["mlp.fc"], d.names.parts["mlp.proj"] = "mlp.up_proj", "mlp.down_proj"
	d.Block.Gated, d.Block.Activation = false, c.activation("hidden_act", "relu2")
	d.biases(c.bool("attention_bias", false), c.bool("mlp_bias", false))
	d.turn(c, 10000, context)
	return d.architecture()
}

// ernie is ERNIE 4.5 without experts.
func ernie(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 131072, kvHeads: 2, headDim: 128, epsilon: 1e-5, tied: true})
	biased := c.bool("use_bias", false)
	d.biases(biased, biased)
	needs(c, "attention_dropout", 0.0)
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 500000), partial: 1, neighbours: true, context: context})
	return d.architecture()
}

func seedOSS(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 524288, kvHeads: 8, headDim: 128})
	attention, out := c.bool("attention_bias", true), c.bool("attention_out_bias", false)
	if d.biases(attention, c.bool("mlp_bias", false)); out && !attention {
		c.fail("field attention_out_bias is true and field attention_bias is false, the first needs to be false then")
	}
	d.Block.Attention.NoProjBias, d.Block.Dropout = !out, c.float("residual_dropout", 0.1)
	d.Block.Attention.Options.Dropout.P = c.float("attention_dropout", 0.1)
	d.turn(c, 10000, context)
	return d.architecture()
}

func mistral(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 4096 * 32, kvHeads: 8})
	d.turn(c, 10000, context)
	d.slideAll(c.sizeOrNone("sliding_window", 4096))
	return d.architecture()
}

func phi3(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 4096, epsilon: 1e-5})
	d.names = llamaNames(map[string]string{"attn.qkv": "self_attn.qkv_proj", "mlp.gateup": "mlp.gate_up_proj"})
	c.float("embd_pdrop", 0) // is in every config, for no one to read
	d.Block.Dropout = c.float("resid_pdrop", 0)
	needs(c, "attention_bias", false)
	d.slideAll(c.optionalSize("sliding_window"))
	original := c.size("original_max_position_embeddings", 4096)
	d.turnAs(c, &ropeProblem{theta: c.float("rope_theta", 10000), partial: 1, bands: true, original: original, context: context})
	return d.architecture()
}

// granite is Granite 3 and its successors without experts.
func granite(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 2048})
	d.biases(c.bool("attention_bias", false), c.bool("mlp_bias", false))
	d.turn(c, 10000, context)
	d.EmbeddingScale, d.Block.Residual = c.positive("embedding_multiplier", 1), c.positive("residual_multiplier", 1)
	d.Block.Attention.Options.Scale, d.LogitScale = c.positive("attention_multiplier", 1), 1/c.positive("logits_scaling", 1)
	return d.architecture()
}

func smollm3(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 32768, kvHeads: 4, tied: true})
	d.biases(c.bool("attention_bias", false), c.bool("mlp_bias", false))
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
