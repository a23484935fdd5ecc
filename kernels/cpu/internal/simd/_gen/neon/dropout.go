package neon

// philox computes four counters at a time: each of their words in a vector of its own, so that the
// words of a counter have to be brought together at the end.
func philox(k *kernel) {
	const rounds = 7 // kernels.DropoutRounds
	n, numbers, key, counter := k.integer("n"), k.integer("numbers"), k.integer("key"), k.integer("counter")
	words := func(x uint64) vec { return k.vectorOf(x|x<<32, x|x<<32) }
	multipliers := [2]vec{words(0xD2511F53), words(0xCD9E8D57)}
	weyl := [2]vec{words(0x9E3779B9), words(0xBB67AE85)}
	step := words(4)
	load := func(from gp, word int) vec {
		at := k.gp()
		k.withNumber("ADD", at, from, 4*word)
		return k.loadAll(at)
	}
	keys, start := [2]vec{load(key, 0), load(key, 1)}, [3]vec{load(counter, 0), load(counter, 1), load(counter, 2)}
	column := k.addWhole(words4, load(counter, 3), k.vectorOf(1<<32, 3<<32|2))

	k.label("group")
	k0, k1 := keys[0], keys[1]
	c := [4]vec{start[0], start[1], start[2], column}
	for round := range rounds {
		// (c0, c1, c2, c3) becomes (high(p1)^c1^k0, low(p1), high(p0)^c3^k1, low(p0)).
		p0low, p0high := k.multiplyLow(c[0], multipliers[0]), k.multiplyHigh(c[0], multipliers[0])
		p1low, p1high := k.multiplyLow(c[2], multipliers[1]), k.multiplyHigh(c[2], multipliers[1])
		c = [4]vec{
			k.xor(k.xor(c[1], k0), k.oddLanes(words4, p1low, p1high)), k.evenLanes(words4, p1low, p1high),
			k.xor(k.xor(c[3], k1), k.oddLanes(words4, p0low, p0high)), k.evenLanes(words4, p0low, p0high),
		}
		if round < rounds-1 {
			k0, k1 = k.addWhole(words4, k0, weyl[0]), k.addWhole(words4, k1, weyl[1])
		}
	}
	for i, v := range k.square(c[:]) {
		k.store(v, numbers, i*bytes)
	}
	k.addWhole(words4, column, step, column)
	k.increase(numbers, 4*bytes)
	k.decrease(n, 32)
	k.compareWith(n, 0)
	k.branch(greater, "group")
}

// keep multiplies the elements whose number is not below the threshold and writes zeros for the
// others.
func keep(k *kernel) {
	end, to, from, numbers := k.elements("n"), k.integer("to"), k.integer("from"), k.integer("numbers")
	scale, threshold := k.scalar("scale"), k.broadcast(k.integer("threshold"))
	i := k.gp()
	k.zero(i)
	k.label("vector")
	// Numbers are widened to the size of an element.
	var number vec
	if k.double {
		number = k.widenWords(k.widenHalves(k.loadPart(part4, numbers, 0)))
	} else {
		number = k.widenHalves(k.loadPart(part8, numbers, 0))
	}
	k.increase(numbers, 2*k.lanes())
	x := k.mul(k.loadAt(whole16, from, i), scale)
	k.storeAt(whole16, k.and(x, k.notBelow(k.shape(), number, threshold)), to, i)
	k.increase(i, bytes)
	k.compare(i, end)
	k.branch(less, "vector")
}
