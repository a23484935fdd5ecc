package neon

import (
	"math"
	"strings"
)

// operation is what a kernel of Pointwise needs to know of one. It is made outside of loops.
type operation func(x []vec) vec

// points is a kernel that computes each element of a tile from those of other tiles at the same
// place. Of each of these a parameter masks the number of the column: −1, or 0 for one that has the
// same vector in all of its columns.
func points(name, inputs string, prepare func(*kernel) operation) Kernel {
	var parameters strings.Builder
	for _, in := range inputs {
		x := string(in)
		parameters.WriteString(", " + x + " *T, ld" + x + ", m" + x + " int")
	}
	return typed(name, "(rows, n int, to *T, ldt int"+parameters.String()+")", "is Pointwise.", func(k *kernel) {
		rows, n, to, ldt := k.integer("rows"), k.upToVectors(k.elements("n")), k.integer("to"), k.elements("ldt")
		var tiles []tile
		var masks []gp
		for _, in := range inputs {
			tiles, masks = append(tiles, k.tile(string(in), "ld"+string(in))), append(masks, k.integer("m"+string(in)))
		}
		op := prepare(k)
		k.label("row")
		i := k.gp()
		k.zero(i)
		k.label("vector")
		var x []vec
		for n, t := range tiles {
			at := k.gp()
			k.masked(at, i, masks[n])
			x = append(x, k.loadAt(whole16, t.pointer, at))
		}
		k.storeAt(whole16, op(x), to, i)
		k.increase(i, bytes)
		k.compare(i, n)
		k.branch(less, "vector")
		for _, t := range append(tiles, tile{to, ldt}) {
			k.plus(t.pointer, t.pointer, t.stride)
		}
		k.countDown(rows, "row")
	})
}

// direct is an operation that needs nothing.
func direct(op func(k *kernel, x []vec) vec) func(*kernel) operation {
	return func(k *kernel) operation { return func(x []vec) vec { return op(k, x) } }
}

// comparison gives 1 where a mask says so, 0 elsewhere.
func comparison(mask func(k *kernel, x, y vec) vec) func(*kernel) operation {
	return func(k *kernel) operation {
		one := k.constant(1)
		return func(x []vec) vec { return k.and(mask(k, x[0], x[1]), one) }
	}
}

var pointwise = []Kernel{
	points("addPoints", "xy", direct(func(k *kernel, x []vec) vec { return k.add(x[0], x[1]) })),
	points("subPoints", "xy", direct(func(k *kernel, x []vec) vec { return k.sub(x[0], x[1]) })),
	points("mulPoints", "xy", direct(func(k *kernel, x []vec) vec { return k.mul(x[0], x[1]) })),
	points("divPoints", "xy", direct(func(k *kernel, x []vec) vec { return k.div(x[0], x[1]) })),
	points("mulAddPoints", "xyz", direct(func(k *kernel, x []vec) vec { return k.fma(x[2], x[0], x[1]) })),
	points("subMulPoints", "xyz", direct(func(k *kernel, x []vec) vec { return k.fms(x[2], x[0], x[1]) })),
	points("mulNonzeroPoints", "xy", func(k *kernel) operation {
		zero := k.zeros()
		return func(x []vec) vec { return k.pick(k.same(x[0], zero), x[0], k.mul(x[0], x[1])) }
	}),
	points("minPoints", "xy", direct(func(k *kernel, x []vec) vec { return k.min(x[0], x[1]) })),
	points("maxPoints", "xy", direct(func(k *kernel, x []vec) vec { return k.max(x[0], x[1]) })),
	points("lessPoints", "xy", comparison(func(k *kernel, x, y vec) vec { return k.greater(y, x) })),
	points("lessEqualPoints", "xy", comparison(func(k *kernel, x, y vec) vec { return k.notLess(y, x) })),
	points("equalPoints", "xy", comparison(func(k *kernel, x, y vec) vec { return k.same(x, y) })),
	points("selectPoints", "xyz", func(k *kernel) operation {
		zero := k.zeros()
		return func(x []vec) vec { return k.pick(k.same(x[0], zero), x[2], x[1]) }
	}),
	points("negPoints", "x", direct(func(k *kernel, x []vec) vec { return k.negate(x[0]) })),
	points("absPoints", "x", direct(func(k *kernel, x []vec) vec { return k.abs(x[0]) })),
	points("expPoints", "x", func(k *kernel) operation {
		power := k.power()
		return func(x []vec) vec { return power.of(x[0]) }
	}),
	points("tanhPoints", "x", func(k *kernel) operation {
		tanh := k.hyperbolic()
		return func(x []vec) vec { return tanh.of(x[0]) }
	}),
	points("sigmoidPoints", "x", func(k *kernel) operation {
		logistic := k.logistic()
		return func(x []vec) vec {
			sigma, _ := logistic.of(x[0])
			return sigma
		}
	}),
}

// power emits e^x of any x. 2^n is computed as half of it, which is a number where e^x is one, and
// doubled in the end.
type power struct {
	decay
	most, least, infinity vec
}

func (k *kernel) power() power {
	p := power{k.decay(), k.constant(k.either(88.72283, 709.782712893384)), k.constant(k.either(-110, -750)), k.constant(math.Inf(1))}
	p.splitter = k.splitterBy(k.either(126, 1022))
	return p
}

func (p power) of(x vec) vec {
	half := p.decay.of(p.min(p.max(x, p.least), p.most))
	return p.pick(p.greater(x, p.most), p.infinity, p.add(half, half))
}
