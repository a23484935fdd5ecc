package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func softCap(t target) {
	t.function("softCap", "(rows, n int, s, slope *T, ld int, scale, cap T)", "is SoftCap.")
	s, slope := t.tile("s", "ld"), t.tile("slope", "ld")
	scale, cap := t.scalar("scale"), t.scalar("cap")
	tanh := t.hyperbolic()
	sweep{target: t, tiles: []tile{s, slope}, whole: true, body: func(v access) {
		x := v.load(s)
		t.mul(scale, x, x)
		x = tanh.of(x)
		capped := t.vector()
		t.mul(cap, x, capped)
		v.store(capped, s)
		CMPQ(address("slope"), Imm(0))
		JE(LabelRef("plain"))
		derivative := t.vector()
		t.copy(t.inRegister(tanh.one), derivative)
		t.fnma(x, x, derivative)
		v.store(derivative, slope)
		Label("plain")
	}}.emit()
	ret()
}

// alibi keeps c + i − j of a vector's columns in a register and takes the lanes off from one vector
// to the next.
func alibi(t target) {
	t.function("alibi", "(rows, n int, s *T, ld int, scale, slope T, c int)", "is ALiBi.")
	s, c := t.tile("s", "ld"), integer("c")
	scale, slope := t.scalar("scale"), t.scalar("slope")
	sign, step := t.constantBits(1<<(8*t.size()-1)), t.constant(float64(t.lanes()))
	distance := t.vector()
	sweep{
		target: t, tiles: []tile{s}, whole: true,
		start: func() {
			first := XMM()
			VXORPS(first, first, first)
			if t.double {
				VCVTSI2SDQ(c, first, first)
			} else {
				VCVTSI2SSQ(c, first, first)
			}
			t.broadcast(first, distance)
			t.sub(t.columns(), distance, distance)
			INCQ(c)
		},
		body: func(v access) {
			x, size := v.load(s), t.vector()
			t.copy(t.inRegister(sign), size)
			t.andNot(distance, size, size)
			t.mul(scale, x, x)
			t.fnma(slope, size, x)
			v.store(x, s)
			t.sub(step, distance, distance)
		},
	}.emit()
	ret()
}

// columns is memory that holds 0, 1, 2 and so on.
func (t target) columns() Op {
	numbers := make([]uint64, t.lanes())
	for i := range numbers {
		numbers[i] = uint64(math.Float32bits(float32(i)))
		if t.double {
			numbers[i] = math.Float64bits(float64(i))
		}
	}
	return t.table(numbers...)
}

func addBias(t target) {
	t.function("addBias", "(rows, n int, s *T, ld int, scale T, bias *T, ldb int)", "is AddBias.")
	s, bias := t.tile("s", "ld"), t.tile("bias", "ldb")
	scale := t.scalar("scale")
	sweep{target: t, tiles: []tile{s, bias}, body: func(v access) {
		x := v.load(s)
		t.mulAdd(v.load(bias), scale, x)
		v.store(x, s)
	}}.emit()
	ret()
}
