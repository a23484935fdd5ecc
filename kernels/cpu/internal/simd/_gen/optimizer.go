package main

import . "github.com/mmcloughlin/avo/build"

// Moments that no gradient feeds shrink with every step, those of a word that is not seen for one,
// until they are below the smallest normal number. That is why these kernels flush. The gradients
// are called dw here, for g is a register to the assembler.

func adamw(t target) {
	t.function("adamw", "(n int, w, dw, m, v *T, scale, rest1, beta2, rest2, root, epsilon, decay, rate T)", "is AdamW.")
	restore := flushing()
	w, g, m, v := t.line("w"), t.line("dw"), t.line("m"), t.line("v")
	scale, rest1, beta2, rest2 := t.scalar("scale"), t.scalar("rest1"), t.scalar("beta2"), t.scalar("rest2")
	root, epsilon, decay, rate := t.scalar("root"), t.scalar("epsilon"), t.scalar("decay"), t.scalar("rate")
	t.eachVector(func(a access) {
		gradient, mean, x := a.load(g), a.load(m), t.vector()
		t.mul(scale, gradient, gradient)
		t.sub(mean, gradient, x)
		t.fma(rest1, x, mean)
		a.store(mean, m)
		square := a.load(v)
		t.mul(beta2, square, square)
		t.mul(rest2, gradient, x)
		t.fma(x, gradient, square)
		a.store(square, v)
		t.pick(VSQRTPS, VSQRTPD)(square, x)
		t.mulAdd(epsilon, root, x)
		t.div(x, mean, mean)
		weight := a.load(w)
		t.mul(decay, weight, weight)
		t.fnma(rate, mean, weight)
		a.store(weight, w)
	})
	restore()
	ret()
}

func sgd(t target) {
	t.function("sgd", "(n int, w, dw *T, scale, pull, decay, rate T)", "is SGD.")
	restore := flushing()
	w, g := t.line("w"), t.line("dw")
	scale, pull, decay, rate := t.scalar("scale"), t.scalar("pull"), t.scalar("decay"), t.scalar("rate")
	t.eachVector(func(a access) {
		gradient, weight := a.load(g), a.load(w)
		t.mul(scale, gradient, gradient)
		t.fma(pull, weight, gradient)
		t.mul(decay, weight, weight)
		t.fnma(rate, gradient, weight)
		a.store(weight, w)
	})
	restore()
	ret()
}

func sgdMomentum(t target) {
	t.function("sgdMomentum", "(n int, w, dw, m *T, scale, pull, momentum, decay, rate, ahead T)", "is SGDMomentum.")
	restore := flushing()
	w, g, m := t.line("w"), t.line("dw"), t.line("m")
	scale, pull, momentum := t.scalar("scale"), t.scalar("pull"), t.scalar("momentum")
	decay, rate, ahead := t.scalar("decay"), t.scalar("rate"), t.scalar("ahead")
	t.eachVector(func(a access) {
		gradient, weight, mean := a.load(g), a.load(w), a.load(m)
		t.mul(scale, gradient, gradient)
		t.fma(pull, weight, gradient)
		t.mulAdd(gradient, momentum, mean)
		a.store(mean, m)
		t.mul(decay, weight, weight)
		t.fnma(rate, gradient, weight)
		t.fnma(ahead, mean, weight)
		a.store(weight, w)
	})
	restore()
	ret()
}

func lion(t target) {
	t.function("lion", "(n int, w, dw, m *T, scale, beta1, rest1, beta2, rest2, decay, rate T)", "is Lion.")
	restore := flushing()
	w, g, m := t.line("w"), t.line("dw"), t.line("m")
	scale, beta1, rest1, beta2, rest2 := t.scalar("scale"), t.scalar("beta1"), t.scalar("rest1"), t.scalar("beta2"), t.scalar("rest2")
	decay, rate := t.scalar("decay"), t.scalar("rate")
	// The sign is what is left of a number that is multiplied by the inverse of the smallest normal
	// one and cut at ±1.
	large := t.constantInMemory(t.either(0x1p126, 0x1p1022))
	one, minusOne := t.constantInMemory(1), t.constantInMemory(-1)
	t.eachVector(func(a access) {
		gradient, mean, sign, limit := a.load(g), a.load(m), t.vector(), t.vector()
		t.mul(scale, gradient, gradient)
		t.mul(rest1, gradient, sign)
		t.fma(beta1, mean, sign)
		t.mul(large, sign, sign)
		t.load(one, limit)
		t.min(sign, limit, sign)
		t.load(minusOne, limit)
		t.max(sign, limit, sign)
		t.mul(beta2, mean, mean)
		t.fma(rest2, gradient, mean)
		a.store(mean, m)
		weight := a.load(w)
		t.mul(decay, weight, weight)
		t.fnma(rate, sign, weight)
		a.store(weight, w)
	})
	restore()
	ret()
}

func sumSquares(t target) {
	t.function("sumSquares", "(n int, x *T) float64", "is SumSquares.")
	d := target{avx512: t.avx512, double: true}
	x, low, high := t.line("x"), d.zeros(), d.zeros()
	t.eachVector(func(a access) {
		values := a.load(x)
		if t.double {
			d.fma(values, values, low)
			return
		}
		lowHalf, highHalf := t.halves(values)
		d.fma(lowHalf, lowHalf, low)
		d.fma(highHalf, highHalf, high)
	})
	d.add(high, low, low)
	d.result(0, d.reduce(low, d.add))
	ret()
}
