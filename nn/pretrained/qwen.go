package pretrained

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
	d.biases(true, false)
	d.Block.Attention.NoProjBias = true
	return d.qwen(c, context)
}

func qwen3(c *config, context int) *architecture {
	d := readDecoder(c, usual{context: 32768, kvHeads: 32, headDim: 128})
	d.bias(c)
	d.Block.Attention.QKNorm = true
	return d.qwen(c, context)
}
