package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func rotate(t target) {
	t.function("rotate", "(rows, n int, y1, y2 *T, ldy int, x1, x2 *T, ldx int, cos, sin *T, ldt int)", "is Rotate.")
	y1, x1, cos := t.tile("y1", "ldy"), t.tile("x1", "ldx"), t.tile("cos", "ldt")
	y2, x2, sin := tile{integer("y2"), y1.stride}, tile{integer("x2"), x1.stride}, tile{integer("sin"), cos.stride}
	sweep{target: t, tiles: []tile{y1, y2, x1, x2, cos, sin}, body: func(v access) {
		a, b, c, s, first, second := v.load(x1), v.load(x2), v.load(cos), v.load(sin), t.vector(), t.vector()
		t.mul(a, c, first)
		t.fnma(b, s, first)
		t.mul(b, c, second)
		t.fma(a, s, second)
		v.store(first, y1)
		v.store(second, y2)
	}}.emit()
	ret()
}

func rotateNeighbours(t target) {
	t.function("rotateNeighbours", "(rows, n int, y *T, ldy int, x *T, ldx int, cos, sin *T, ldt int)", "is RotateNeighbours.")
	y, x, cos := t.tile("y", "ldy"), t.tile("x", "ldx"), t.tile("cos", "ldt")
	sin := tile{integer("sin"), cos.stride}
	sweep{target: t, tiles: []tile{y, x, cos, sin}, body: func(v access) {
		a, b := v.load(x), t.vector()
		switch {
		case !t.double:
			VPERMILPS(Imm(0b10_11_00_01), a, b)
		case t.avx512:
			VPERMILPD(Imm(0b01010101), a, b)
		default:
			VPERMILPD(Imm(0b0101), a, b)
		}
		t.mul(v.load(cos), a, a)
		t.fma(v.load(sin), b, a)
		v.store(a, y)
	}}.emit()
	ret()
}
