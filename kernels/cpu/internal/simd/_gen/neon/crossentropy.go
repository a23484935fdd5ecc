package neon

import "math"

func greatest(k *kernel) {
	x := k.line("x")
	lowest := k.constant(k.either(-math.MaxFloat32, -math.MaxFloat64))
	most := k.copy(lowest)
	k.eachVector(func(a access) { k.max(most, a.otherwise(lowest, a.load(x)), most) })
	k.result(0, k.greatestOf(most))
}

func sumExp(k *kernel) {
	x, most, sum := k.line("x"), k.scalar("most"), k.zeros()
	exp, log2e := k.splitter(), k.constant(math.Log2E)
	k.eachVector(func(a access) {
		p := exp.exp2(k.mul(k.sub(a.load(x), most), log2e))
		k.add(sum, a.only(p), sum)
	})
	k.result(0, k.total(sum))
}

func scaledExp(k *kernel) {
	y, x, lse, scale, less := k.line("y"), k.line("x"), k.scalar("lse"), k.scalar("scale"), k.negate(k.scalar("less"))
	exp, log2e, least := k.splitter(), k.constant(math.Log2E), k.constant(k.either(leastExp32, leastExp64))
	k.eachVector(func(a access) {
		p := exp.exp2(k.mul(k.sub(a.load(x), lse), log2e))
		p = k.andNot(p, k.greater(least, p)) // NaN is not less
		a.store(k.fma(k.copy(less), p, scale), y)
	})
}

func exponentials(k *kernel) {
	y, x, most, sum := k.line("y"), k.line("x"), k.scalar("most"), k.zeros()
	exp, log2e, least := k.splitter(), k.constant(math.Log2E), k.constant(k.either(leastExp32, leastExp64))
	k.eachVector(func(a access) {
		p := exp.exp2(k.mul(k.sub(a.load(x), most), log2e))
		k.add(sum, a.only(p), sum)
		a.store(k.andNot(p, k.greater(least, p)), y)
	})
	k.result(0, k.total(sum))
}

func probabilities(k *kernel) {
	y, x, factor := k.line("y"), k.line("x"), k.scalar("factor")
	k.eachVector(func(a access) { a.store(k.mul(a.load(x), factor), y) })
}

func logProbabilities(k *kernel) {
	y, x, most, log := k.line("y"), k.line("x"), k.scalar("most"), k.scalar("log")
	k.eachVector(func(a access) { a.store(k.sub(k.sub(a.load(x), most), log), y) })
}

func softmaxRowGrad(k *kernel) {
	dx, y, dy, mean := k.line("dx"), k.line("y"), k.line("dy"), k.scalar("mean")
	k.eachVector(func(a access) { a.store(k.mul(k.sub(a.load(dy), mean), a.load(y)), dx) })
}

func logSoftmaxRowGrad(k *kernel) {
	dx, y, dy, sum := k.line("dx"), k.line("y"), k.line("dy"), k.scalar("sum")
	exp, log2e, least := k.splitter(), k.constant(math.Log2E), k.constant(k.either(leastExp32, leastExp64))
	k.eachVector(func(a access) {
		p := exp.exp2(k.mul(a.load(y), log2e))
		p = k.andNot(p, k.greater(least, p))
		a.store(k.sub(a.load(dy), k.mul(p, sum)), dx)
	})
}

// leastExp is what the package's constants of these names are.
const (
	leastExp32 = 0x1p-100
	leastExp64 = 0x1p-900
)
