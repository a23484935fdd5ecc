package neon

// inDoubles is a vector of elements as float64: two vectors, or one that is all.
func (k *kernel) inDoubles(x vec) []vec {
	if k.double {
		return []vec{x}
	}
	return []vec{k.lowDoubles(x), k.highDoubles(x)}
}

// doubleSum emits the sum over a row, in float64, of what add adds to a sum.
func (k *kernel) doubleSum(add func(sum, x vec)) {
	x, sums := k.line("x"), [2]vec{k.zeros(), k.zeros()}
	k.eachVector(func(a access) {
		for i, half := range k.inDoubles(a.load(x)) {
			k.asDoubles(func() { add(sums[i], half) })
		}
	})
	k.asDoubles(func() { k.result(0, k.total(k.add(sums[0], sums[1]))) })
}

// asDoubles emits instructions on float64 in a kernel of any element type.
func (k *kernel) asDoubles(emit func()) {
	before := k.double
	k.double = true
	emit()
	k.double = before
}

func sum(k *kernel) { k.doubleSum(func(sum, x vec) { k.add(sum, x, sum) }) }

func deviations(k *kernel) {
	x, centre, sum, squares := k.line("x"), k.scalar("centre"), k.zeros(), k.zeros()
	k.eachVector(func(a access) {
		d := a.only(k.sub(a.load(x), centre))
		k.add(sum, d, sum)
		k.fma(squares, d, d)
	})
	k.result(0, k.total(sum))
	k.result(1, k.total(squares))
}

func normalize(k *kernel) {
	y, x, gamma, beta := k.line("y"), k.line("x"), k.line("gamma"), k.line("beta")
	centre, rstd, shift := k.scalar("centre"), k.scalar("rstd"), k.scalar("shift")
	k.eachVector(func(a access) {
		d := k.fma(k.copy(shift), k.sub(a.load(x), centre), rstd)
		a.store(k.fma(a.load(beta), d, a.load(gamma)), y)
	})
}

func normalizeDots(k *kernel) {
	x, dy, gamma := k.line("x"), k.line("dy"), k.line("gamma")
	centre, rstd, sum, sumX := k.scalar("centre"), k.scalar("rstd"), k.zeros(), k.zeros()
	k.eachVector(func(a access) {
		d := k.mul(k.sub(a.load(x), centre), rstd)
		g := k.mul(a.load(dy), a.load(gamma)) // zero behind the row's end
		k.add(sum, g, sum)
		k.fma(sumX, a.only(d), g)
	})
	k.result(0, k.total(sum))
	k.result(1, k.total(sumX))
}

func normalizeGrad(k *kernel) {
	dx, x, dy, gamma, dGamma, dBeta := k.line("dx"), k.line("x"), k.line("dy"), k.line("gamma"), k.line("dGamma"), k.line("dBeta")
	centre, rstd, mean, meanX := k.scalar("centre"), k.scalar("rstd"), k.scalar("mean"), k.scalar("meanX")
	k.eachVector(func(a access) {
		xHat, g := k.mul(k.sub(a.load(x), centre), rstd), a.load(dy)
		a.store(k.fma(a.load(dGamma), g, xHat), dGamma)
		a.store(k.add(a.load(dBeta), g), dBeta)
		d := k.fms(k.sub(k.mul(g, a.load(gamma)), mean), xHat, meanX)
		a.store(k.mul(d, rstd), dx)
	})
}
