package neon

// Numbers below the smallest normal one cost these processors nothing, so unlike on amd64 they are
// kept.

func adamw(k *kernel) {
	w, g, m, v := k.line("w"), k.line("dw"), k.line("m"), k.line("v")
	scale, rest1, beta2, rest2 := k.scalar("scale"), k.scalar("rest1"), k.scalar("beta2"), k.scalar("rest2")
	root, epsilon, decay, rate := k.scalar("root"), k.scalar("epsilon"), k.scalar("decay"), k.scalar("rate")
	k.eachVector(func(a access) {
		gradient, mean := k.mul(a.load(g), scale), a.load(m)
		k.fma(mean, k.sub(gradient, mean), rest1)
		a.store(mean, m)
		square := k.fma(k.mul(a.load(v), beta2), k.mul(gradient, rest2), gradient)
		a.store(square, v)
		step := k.div(mean, k.fma(k.copy(epsilon), k.sqrt(square), root))
		a.store(k.fms(k.mul(a.load(w), decay), step, rate), w)
	})
}

func sgd(k *kernel) {
	w, g := k.line("w"), k.line("dw")
	scale, pull, decay, rate := k.scalar("scale"), k.scalar("pull"), k.scalar("decay"), k.scalar("rate")
	k.eachVector(func(a access) {
		weight := a.load(w)
		gradient := k.fma(k.mul(a.load(g), scale), weight, pull)
		a.store(k.fms(k.mul(weight, decay), gradient, rate), w)
	})
}

func sgdMomentum(k *kernel) {
	w, g, m := k.line("w"), k.line("dw"), k.line("m")
	scale, pull, momentum := k.scalar("scale"), k.scalar("pull"), k.scalar("momentum")
	decay, rate, ahead := k.scalar("decay"), k.scalar("rate"), k.scalar("ahead")
	k.eachVector(func(a access) {
		weight := a.load(w)
		gradient := k.fma(k.mul(a.load(g), scale), weight, pull)
		mean := k.fma(k.copy(gradient), a.load(m), momentum)
		a.store(mean, m)
		weight = k.fms(k.mul(weight, decay), gradient, rate)
		a.store(k.fms(weight, mean, ahead), w)
	})
}

func lion(k *kernel) {
	w, g, m := k.line("w"), k.line("dw"), k.line("m")
	scale, beta1, rest1, beta2, rest2 := k.scalar("scale"), k.scalar("beta1"), k.scalar("rest1"), k.scalar("beta2"), k.scalar("rest2")
	decay, rate := k.scalar("decay"), k.scalar("rate")
	zero, one, minusOne := k.zeros(), k.constant(1), k.constant(-1)
	k.eachVector(func(a access) {
		gradient, mean := k.mul(a.load(g), scale), a.load(m)
		x := k.fma(k.mul(gradient, rest1), mean, beta1)
		sign := k.pick(k.greater(x, zero), one, k.pick(k.greater(zero, x), minusOne, x)) // x where it is zero or NaN
		a.store(k.fma(k.mul(mean, beta2), gradient, rest2), m)
		a.store(k.fms(k.mul(a.load(w), decay), sign, rate), w)
	})
}

func sumSquares(k *kernel) { k.doubleSum(func(sum, x vec) { k.fma(sum, x, x) }) }
