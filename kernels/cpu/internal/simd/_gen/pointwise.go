package main

import (
	"math"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// pointwise emits a kernel that computes each element of a tile from those of other tiles at the
// same place. Of each of these a parameter masks the number of the column: −1, or 0 for one that
// has the same vector in all of its columns. prepare makes what the operation needs outside of the
// loops.
func (t target) pointwise(name, inputs string, prepare func() func(x []reg.VecVirtual) reg.VecVirtual) {
	var parameters strings.Builder
	for _, in := range inputs {
		x := string(in)
		parameters.WriteString(", " + x + " *T, ld" + x + ", m" + x + " int")
	}
	t.function(name, "(rows, n int, to *T, ldt int"+parameters.String()+")", "is Pointwise.")
	restore := flushing()
	rows, full, to := integer("rows"), integer("n"), integer("to")
	t.upToVectors(full)
	var pointers []reg.GPVirtual
	for _, in := range inputs {
		pointers = append(pointers, integer(string(in)))
	}
	op := prepare()
	i, at := GP64(), GP64()
	Label("row")
	XORQ(i, i)
	Label("vector")
	var x []reg.VecVirtual
	for n, in := range inputs {
		v := t.vector()
		MOVQ(i, at)
		ANDQ(address("m"+string(in)), at)
		t.load(t.element(pointers[n], at), v)
		x = append(x, v)
	}
	t.store(op(x), t.element(to, i))
	ADDQ(Imm(uint64(t.lanes())), i)
	CMPQ(i, full)
	JLT(LabelRef("vector"))
	for n, in := range inputs {
		MOVQ(address("ld"+string(in)), at)
		t.toBytes(at)
		ADDQ(at, pointers[n])
	}
	MOVQ(address("ldt"), at)
	t.toBytes(at)
	ADDQ(at, to)
	DECQ(rows)
	JNZ(LabelRef("row"))
	restore()
	ret()
}

// Predicates of comparisons. All but the last two are false where one of the two is NaN.
const (
	isEqual     = 0x00
	isLess      = 0x11
	isLessEqual = 0x12
	isNaN       = 0x03
	isNotEqual  = 0x04
)

// where picks yes in the lanes in which the predicate holds for x and y, no elsewhere.
func (t target) where(predicate uint8, x, y, yes, no reg.VecVirtual) reg.VecVirtual {
	to := t.vector()
	var mask reg.Register = K()
	if !t.avx512 {
		mask = t.vector()
	}
	t.pick(VCMPPS, VCMPPD)(Imm(uint64(predicate)), y, x, mask)
	switch {
	case !t.avx512 && t.double:
		VBLENDVPD(mask, yes, no, to)
	case !t.avx512:
		VBLENDVPS(mask, yes, no, to)
	case t.double:
		VBLENDMPD(yes, no, mask, to)
	default:
		VBLENDMPS(yes, no, mask, to)
	}
	return to
}

// power emits e^x of any x.
type power struct {
	decay
	most, least, infinity Op
}

func (t target) power() power {
	p := power{t.decay(), t.constantInMemory(t.either(88.72283, 709.782712893384)), t.constantInMemory(t.either(-110, -750)), t.constantInMemory(math.Inf(1))}
	if !t.avx512 {
		// 2^n is computed as half of it, which is a number where e^x is one, and doubled in the
		// end.
		bias, mantissa := t.either(126, 1022), t.either(23, 52)
		p.split = splitter{t, t.constant(-bias), t.constant(1.5*math.Exp2(mantissa) + bias)}
	}
	return p
}

func (p power) of(x reg.VecVirtual) reg.VecVirtual {
	y, lost, most := p.vector(), p.vector(), p.moved(p.most)
	p.max(x, p.inRegister(p.least), x)
	within := p.vector()
	p.min(x, most, within)
	p.mul(p.log2e, within, y)
	p.copy(within, lost)
	p.pick(VFMSUB132PS, VFMSUB132PD)(p.log2e, y, lost) // lost = x·log2e − y
	p.fma(p.log2eRest, within, lost)
	p.mul(p.ln2, lost, lost)
	result := p.exponential.of(y)
	p.fma(result, lost, result)
	if !p.avx512 {
		p.add(result, result, result)
	}
	return p.where(isLess, most, x, p.moved(p.infinity), result)
}

func pointwiseAll(t target) {
	type vectors = []reg.VecVirtual
	simple := func(op func(x vectors, to reg.VecVirtual)) func() func(vectors) reg.VecVirtual {
		return func() func(vectors) reg.VecVirtual {
			return func(x vectors) reg.VecVirtual {
				to := t.vector()
				op(x, to)
				return to
			}
		}
	}
	t.pointwise("addPoints", "xy", simple(func(x vectors, to reg.VecVirtual) { t.add(x[1], x[0], to) }))
	t.pointwise("subPoints", "xy", simple(func(x vectors, to reg.VecVirtual) { t.sub(x[1], x[0], to) }))
	t.pointwise("mulPoints", "xy", simple(func(x vectors, to reg.VecVirtual) { t.mul(x[1], x[0], to) }))
	t.pointwise("divPoints", "xy", simple(func(x vectors, to reg.VecVirtual) { t.div(x[1], x[0], to) }))
	t.pointwise("mulAddPoints", "xyz", func() func(vectors) reg.VecVirtual {
		return func(x vectors) reg.VecVirtual {
			t.mulAdd(x[2], x[1], x[0])
			return x[0]
		}
	})
	t.pointwise("subMulPoints", "xyz", func() func(vectors) reg.VecVirtual {
		return func(x vectors) reg.VecVirtual {
			t.fnma(x[1], x[0], x[2])
			return x[2]
		}
	})
	t.pointwise("mulNonzeroPoints", "xy", func() func(vectors) reg.VecVirtual {
		zero := t.zeros()
		return func(x vectors) reg.VecVirtual {
			product := t.vector()
			t.mul(x[1], x[0], product)
			return t.where(isNotEqual, x[0], zero, product, x[0])
		}
	})
	extreme := func(pick func(keep, x, to Op)) func() func(vectors) reg.VecVirtual {
		return func() func(vectors) reg.VecVirtual {
			return func(x vectors) reg.VecVirtual {
				to := t.vector()
				pick(x[0], x[1], to)
				return t.where(isNaN, x[1], x[1], x[1], to)
			}
		}
	}
	t.pointwise("minPoints", "xy", extreme(t.min))
	t.pointwise("maxPoints", "xy", extreme(t.max))
	for _, c := range []struct {
		name      string
		predicate uint8
	}{{"lessPoints", isLess}, {"lessEqualPoints", isLessEqual}, {"equalPoints", isEqual}} {
		t.pointwise(c.name, "xy", func() func(vectors) reg.VecVirtual {
			one, zero := t.moved(t.constantInMemory(1)), t.zeros()
			return func(x vectors) reg.VecVirtual { return t.where(c.predicate, x[0], x[1], one, zero) }
		})
	}
	t.pointwise("selectPoints", "xyz", func() func(vectors) reg.VecVirtual {
		zero := t.zeros()
		return func(x vectors) reg.VecVirtual { return t.where(isNotEqual, x[0], zero, x[1], x[2]) }
	})
	sign := func(op func(x, sign reg.VecVirtual)) func() func(vectors) reg.VecVirtual {
		return func() func(vectors) reg.VecVirtual {
			sign := t.moved(t.constantBitsInMemory(1 << (8*t.size() - 1)))
			return func(x vectors) reg.VecVirtual {
				op(x[0], sign)
				return x[0]
			}
		}
	}
	t.pointwise("negPoints", "x", sign(func(x, sign reg.VecVirtual) { t.xor(sign, x, x) }))
	t.pointwise("absPoints", "x", sign(func(x, sign reg.VecVirtual) { t.andNot(x, sign, x) }))
	t.pointwise("expPoints", "x", func() func(vectors) reg.VecVirtual {
		power := t.power()
		return func(x vectors) reg.VecVirtual { return power.of(x[0]) }
	})
	t.pointwise("tanhPoints", "x", func() func(vectors) reg.VecVirtual {
		tanh := t.hyperbolic()
		return func(x vectors) reg.VecVirtual { return tanh.of(x[0]) }
	})
	t.pointwise("sigmoidPoints", "x", func() func(vectors) reg.VecVirtual {
		logistic := t.logistic()
		return func(x vectors) reg.VecVirtual {
			sigma, _ := logistic.of(x[0])
			return sigma
		}
	})
}
