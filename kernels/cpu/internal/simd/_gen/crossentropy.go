package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func greatest(t target) {
	t.function("greatest", "(n int, x *T) T", "is Greatest.")
	x := t.line("x")
	lowest := t.inRegister(t.constant(t.either(-math.MaxFloat32, -math.MaxFloat64)))
	most := t.vector()
	t.copy(lowest, most)
	t.eachVector(func(v access) {
		t.max(v.otherwise(lowest, v.load(x)), most, most)
	})
	t.result(0, t.reduce(most, t.max))
	ret()
}

func sumExp(t target) {
	t.function("sumExp", "(n int, x *T, most T) T", "is SumExp.")
	restore := flushing()
	x, most, sum := t.line("x"), t.scalar("most"), t.zeros()
	exp, log2e := t.exponential(), t.constant(math.Log2E)
	t.eachVector(func(v access) {
		z := v.load(x)
		v.prefetch(x)
		t.sub(most, z, z)
		t.mul(log2e, z, z)
		t.add(v.only(exp.of(z)), sum, sum)
	})
	t.result(0, t.reduce(sum, t.add))
	restore()
	ret()
}

func scaledExp(t target) {
	t.function("scaledExp", "(n int, y, x *T, lse, scale, less T)", "is ScaledExp.")
	restore := flushing()
	y, x, lse, scale, less := t.line("y"), t.line("x"), t.scalar("lse"), t.scalar("scale"), t.scalar("less")
	exp, log2e, least := t.exponential(), t.constant(math.Log2E), t.constant(t.either(leastExp32, leastExp64))
	t.eachVector(func(v access) {
		z := v.load(x)
		t.sub(lse, z, z)
		t.mul(log2e, z, z)
		p := exp.of(z)
		t.zeroBelow(least, p)
		t.mulSub(less, scale, p)
		v.store(p, y)
	})
	restore()
	ret()
}

func exponentials(t target) {
	t.function("exponentials", "(n int, y, x *T, most T) T", "is Exponentials.")
	restore := flushing()
	y, x, most, sum := t.line("y"), t.line("x"), t.scalar("most"), t.zeros()
	exp, log2e, least := t.exponential(), t.constant(math.Log2E), t.constant(t.either(leastExp32, leastExp64))
	t.eachVector(func(v access) {
		z := v.load(x)
		v.prefetch(x)
		t.sub(most, z, z)
		t.mul(log2e, z, z)
		p := v.only(exp.of(z))
		t.add(p, sum, sum)
		t.zeroBelow(least, p)
		v.store(p, y)
	})
	t.result(0, t.reduce(sum, t.add))
	restore()
	ret()
}

func probabilities(t target) {
	t.function("probabilities", "(n int, y, x *T, factor T, past int)", "is Probabilities.")
	y, x, factor := t.line("y"), t.line("x"), t.scalar("factor")
	t.eachVectorTo(y, func(v access) {
		z := v.load(x)
		t.mul(factor, z, z)
		v.store(z, y)
	})
	ret()
}

func logProbabilities(t target) {
	t.function("logProbabilities", "(n int, y, x *T, most, log T, past int)", "is LogProbabilities.")
	y, x, most, log := t.line("y"), t.line("x"), t.scalar("most"), t.scalar("log")
	t.eachVectorTo(y, func(v access) {
		z := v.load(x)
		t.sub(most, z, z)
		t.sub(log, z, z)
		v.store(z, y)
	})
	ret()
}

func softmaxRowGrad(t target) {
	t.function("softmaxRowGrad", "(n int, dx, y, dy *T, mean T, past int)", "is SoftmaxRowGrad.")
	dx, y, dy, mean := t.line("dx"), t.line("y"), t.line("dy"), t.scalar("mean")
	t.eachVectorTo(dx, func(v access) {
		z := v.load(dy)
		t.sub(mean, z, z)
		t.mul(v.load(y), z, z)
		v.store(z, dx)
	})
	ret()
}

func logSoftmaxRowGrad(t target) {
	t.function("logSoftmaxRowGrad", "(n int, dx, y, dy *T, sum T, past int)", "is LogSoftmaxRowGrad.")
	restore := flushing()
	dx, y, dy, sum := t.line("dx"), t.line("y"), t.line("dy"), t.scalar("sum")
	exp, log2e, least := t.exponential(), t.constant(math.Log2E), t.constant(t.either(leastExp32, leastExp64))
	t.eachVectorTo(dx, func(v access) {
		z := v.load(y)
		t.mul(log2e, z, z)
		p := exp.of(z)
		t.zeroBelow(least, p)
		t.mul(sum, p, p)
		d := v.load(dy)
		t.sub(p, d, d)
		v.store(d, dx)
	})
	restore()
	ret()
}

// leastExp is what the package's constants of these names are.
const (
	leastExp32 = 0x1p-100
	leastExp64 = 0x1p-900
)

// zeroBelow makes a value less than the least zero; NaN is not less.
func (t target) zeroBelow(least Op, x reg.VecVirtual) {
	notLess := Imm(5)
	if !t.avx512 {
		mask := t.vector()
		t.compare(notLess, least, x, mask)
		t.and(mask, x, x)
		return
	}
	k := K()
	t.compare(notLess, least, x, k)
	if t.double {
		VMOVAPD_Z(x, k, x)
	} else {
		VMOVAPS_Z(x, k, x)
	}
}

// compare is a predicate of x and y.
func (t target) compare(predicate, y, x, to Op) { t.pick(VCMPPS, VCMPPD)(predicate, y, x, to) }
