package neon

func rotate(k *kernel) {
	y1, x1, cos := k.tile("y1", "ldy"), k.tile("x1", "ldx"), k.tile("cos", "ldt")
	y2, x2, sin := tile{k.integer("y2"), y1.stride}, tile{k.integer("x2"), x1.stride}, tile{k.integer("sin"), cos.stride}
	sweep{kernel: k, tiles: []tile{y1, y2, x1, x2, cos, sin}, body: func(v access) {
		a, b, c, s := v.load(x1), v.load(x2), v.load(cos), v.load(sin)
		v.store(k.fms(k.mul(a, c), b, s), y1)
		v.store(k.fma(k.mul(b, c), a, s), y2)
	}}.emit()
}

func rotateNeighbours(k *kernel) {
	y, x, cos := k.tile("y", "ldy"), k.tile("x", "ldx"), k.tile("cos", "ldt")
	sin := tile{k.integer("sin"), cos.stride}
	sweep{kernel: k, tiles: []tile{y, x, cos, sin}, lastPart: &part8, body: func(v access) {
		a := v.load(x)
		v.store(k.fma(k.mul(a, v.load(cos)), k.flipPairs(a), v.load(sin)), y)
	}}.emit()
}
