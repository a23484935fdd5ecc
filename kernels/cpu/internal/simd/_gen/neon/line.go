package neon

func add(k *kernel) {
	c, a, b := k.line("c"), k.line("a"), k.line("b")
	k.eachVector(func(v access) { v.store(k.add(v.load(a), v.load(b)), c) })
}

func mul(k *kernel) {
	c, a, b := k.line("c"), k.line("a"), k.line("b")
	k.eachVector(func(v access) { v.store(k.mul(v.load(a), v.load(b)), c) })
}
