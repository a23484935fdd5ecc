package neon

import "fmt"

func mulTile(k *kernel) {
	dst, src := k.tile("dst", "ld"), k.tile("src", "ld")
	sweep{kernel: k, tiles: []tile{dst, src}, whole: true, body: func(a access) { a.store(k.mul(a.load(dst), a.load(src)), dst) }}.emit()
}

func addTile(k *kernel) {
	dst, src := k.tile("dst", "ldd"), k.tile("src", "lds")
	sweep{kernel: k, tiles: []tile{dst, src}, body: func(a access) { a.store(k.add(a.load(dst), a.load(src)), dst) }}.emit()
}

func scaleRows(k *kernel) {
	dst, src, f := k.tile("dst", "ldd"), k.tile("src", "lds"), k.integer("f")
	var factor vec
	sweep{
		kernel: k, tiles: []tile{dst, src},
		start: func() {
			factor = k.loadAll(f)
			k.increase(f, k.size())
		},
		body: func(a access) { a.store(k.mul(a.load(src), factor), dst) },
	}.emit()
}

func dots(k *kernel) {
	a, b, out := k.tile("a", "lda"), k.tile("b", "ldb"), k.integer("out")
	sum := k.vec()
	sweep{
		kernel: k, tiles: []tile{a, b},
		start: func() { k.zeros(sum) },
		body:  func(v access) { k.fma(sum, v.load(a), v.load(b)) },
		end: func() {
			k.storePart(k.one(), k.total(sum), out, 0)
			k.increase(out, k.size())
		},
	}.emit()
}

// dotsWithOne takes four rows at once, so that b is loaded once for them and their sums do not wait
// for each other.
func dotsWithOne(k *kernel) {
	rows, end, a, lda, b, out := k.integer("rows"), k.elements("n"), k.integer("a"), k.elements("lda"), k.line("b"), k.integer("out")
	whole := k.gp()
	k.multiplesOf(whole, end, bytes)
	for _, height := range []int{4, 1} {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
		k.label(label("rows"))
		k.compareWith(rows, height)
		k.branch(less, label("end"))
		at, sums := make([]gp, height), make([]vec, height)
		for i := range at {
			at[i], sums[i] = k.gp(), k.zeros()
			if i == 0 {
				k.move(at[0], a)
			} else {
				k.plus(at[i], at[i-1], lda)
			}
		}
		i := k.gp()
		k.zero(i)
		body := func(v access) {
			x := v.load(b)
			for r, sum := range sums {
				k.fma(sum, v.load(tile{pointer: at[r]}), x)
			}
		}
		k.each(label("vector"), i, whole, bytes, func() { body(k.vectorAt(i)) })
		k.each(label("element"), i, end, k.size(), func() { body(k.elementAt(i)) })
		for r, sum := range sums {
			k.storePart(k.one(), k.total(sum), out, r*k.size())
		}
		k.plus(a, at[height-1], lda)
		k.increase(out, height*k.size())
		k.decrease(rows, height)
		k.goTo(label("rows"))
		k.label(label("end"))
	}
}

// finite sums 0·x, which stays 0 until an Inf or a NaN makes it NaN.
func finite(k *kernel) {
	a := k.tile("a", "lda")
	zero, sum := k.zeros(), k.zeros()
	sweep{kernel: k, tiles: []tile{a}, body: func(v access) { k.fma(sum, v.load(a), zero) }}.emit()
	total := k.total(sum)
	k.compareFloats(total, total)
	k.resultIf(ordered)
}
