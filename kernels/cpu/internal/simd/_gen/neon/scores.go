package neon

import "math"

func softCap(k *kernel) {
	s, slope := k.tile("s", "ld"), k.tile("slope", "ld")
	scale, cap := k.scalar("scale"), k.scalar("cap")
	tanh := k.hyperbolic()
	wanted := k.integer("slope") // nil where it is not
	sweep{kernel: k, tiles: []tile{s, slope}, whole: true, body: func(a access) {
		x := tanh.of(k.mul(a.load(s), scale))
		a.store(k.mul(x, cap), s)
		k.ifZero(wanted, "plain")
		a.store(k.fms(k.copy(tanh.one), x, x), slope)
		k.label("plain")
	}}.emit()
}

// alibi keeps c + i − j of a vector's columns in a register and takes the lanes off from one vector
// to the next.
func alibi(k *kernel) {
	s, c := k.tile("s", "ld"), k.integer("c")
	scale, slope := k.scalar("scale"), k.scalar("slope")
	columns, step := k.columns(), k.constant(float64(k.lanes()))
	distance := k.vec()
	sweep{
		kernel: k, tiles: []tile{s}, whole: true,
		start: func() {
			k.sub(k.duplicate(k.fromInteger(c)), columns, distance)
			k.increase(c, 1)
		},
		body: func(a access) {
			a.store(k.fms(k.mul(a.load(s), scale), slope, k.abs(distance)), s)
			k.sub(distance, step, distance)
		},
	}.emit()
}

// columns is 0, 1, 2 and so on.
func (k *kernel) columns() vec {
	if k.double {
		return k.vectorOf(0, math.Float64bits(1))
	}
	single := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	return k.vectorOf(single(1)<<32, single(3)<<32|single(2))
}

func addBias(k *kernel) {
	s, bias := k.tile("s", "ld"), k.tile("bias", "ldb")
	scale := k.scalar("scale")
	sweep{kernel: k, tiles: []tile{s, bias}, body: func(a access) { a.store(k.fma(a.load(bias), a.load(s), scale), s) }}.emit()
}
