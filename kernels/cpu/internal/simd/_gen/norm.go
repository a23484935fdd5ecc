package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func sum(t target) {
	t.function("sum", "(n int, x *T) float64", "is Sum.")
	d := target{avx512: t.avx512, double: true}
	x, low, high := t.line("x"), d.zeros(), d.zeros()
	t.eachVector(func(v access) {
		values := v.load(x)
		if t.double {
			d.add(values, low, low)
			return
		}
		lowHalf, highHalf := t.halves(values)
		d.add(lowHalf, low, low)
		d.add(highHalf, high, high)
	})
	d.add(high, low, low)
	d.result(0, d.reduce(low, d.add))
	ret()
}

// halves is the lower and the upper half of a vector of float32, in float64.
func (t target) halves(x reg.VecVirtual) (low, high reg.VecVirtual) {
	low, high = t.vector(), t.vector()
	if t.avx512 {
		upper := YMM()
		VCVTPS2PD(x.AsY(), low)
		VEXTRACTF64X4(Imm(1), x, upper)
		VCVTPS2PD(upper, high)
	} else {
		upper := XMM()
		VCVTPS2PD(x.AsX(), low)
		VEXTRACTF128(Imm(1), x, upper)
		VCVTPS2PD(upper, high)
	}
	return low, high
}

func deviations(t target) {
	t.function("deviations", "(n int, x *T, centre T) (sum, squares T)", "is Deviations.")
	x, centre, sum, squares := t.line("x"), t.scalar("centre"), t.zeros(), t.zeros()
	t.eachVector(func(v access) {
		d := v.load(x)
		t.sub(centre, d, d)
		d = v.only(d)
		t.add(d, sum, sum)
		t.fma(d, d, squares)
	})
	t.result(0, t.reduce(sum, t.add))
	t.result(1, t.reduce(squares, t.add))
	ret()
}

func normalize(t target) {
	t.function("normalize", "(n int, y, x *T, centre, rstd, shift T, gamma, beta *T)", "is Normalize.")
	y, x, gamma, beta := t.line("y"), t.line("x"), t.line("gamma"), t.line("beta")
	centre, rstd, shift := t.scalar("centre"), t.scalar("rstd"), t.scalar("shift")
	t.eachVector(func(v access) {
		d, out := v.load(x), v.load(beta)
		t.sub(centre, d, d)
		t.mulAdd(shift, rstd, d)
		t.fma(v.load(gamma), d, out)
		v.store(out, y)
	})
	ret()
}

func normalizeDots(t target) {
	t.function("normalizeDots", "(n int, x, dy, gamma *T, centre, rstd T) (sum, sumX T)", "is NormalizeDots.")
	x, dy, gamma := t.line("x"), t.line("dy"), t.line("gamma")
	centre, rstd, sum, sumX := t.scalar("centre"), t.scalar("rstd"), t.zeros(), t.zeros()
	t.eachVector(func(v access) {
		d, g := v.load(x), v.load(dy)
		t.sub(centre, d, d)
		t.mul(rstd, d, d)
		t.mul(v.load(gamma), g, g) // zero behind the row's end
		t.add(g, sum, sum)
		t.fma(g, v.only(d), sumX)
	})
	t.result(0, t.reduce(sum, t.add))
	t.result(1, t.reduce(sumX, t.add))
	ret()
}

func normalizeGrad(t target) {
	t.function("normalizeGrad", "(n int, dx, x, dy, gamma *T, centre, rstd, mean, meanX T, dGamma, dBeta *T)", "is NormalizeGrad.")
	dx, x, dy, gamma, dGamma, dBeta := t.line("dx"), t.line("x"), t.line("dy"), t.line("gamma"), t.line("dGamma"), t.line("dBeta")
	centre, rstd, mean, meanX := t.scalar("centre"), t.scalar("rstd"), t.scalar("mean"), t.scalar("meanX")
	t.eachVector(func(v access) {
		xHat, g := v.load(x), v.load(dy)
		t.sub(centre, xHat, xHat)
		t.mul(rstd, xHat, xHat)
		sum := v.load(dGamma)
		t.fma(xHat, g, sum)
		v.store(sum, dGamma)
		sum = v.load(dBeta)
		t.add(g, sum, sum)
		v.store(sum, dBeta)
		t.mul(v.load(gamma), g, g)
		t.sub(mean, g, g)
		t.fnma(meanX, xHat, g)
		t.mul(rstd, g, g)
		v.store(g, dx)
	})
	ret()
}
