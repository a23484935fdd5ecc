package pretrained

func llama(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 2048})
	d.biases(c.bool("attention_bias", false), c.bool("mlp_bias", false))
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
