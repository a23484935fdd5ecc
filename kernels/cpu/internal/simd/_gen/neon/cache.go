package neon

import "fmt"

// cacheType is a type of the rows that kernels of attention over a cache read, eight numbers at a
// time.
type cacheType struct {
	name, element string
	log           int // log 2 of a number's size
	read          func(k *kernel, from gp, offset int) (low, high vec)
}

// readHalf reads eight numbers of 16 bits.
func readHalf(widen widening) func(*kernel, gp, int) (vec, vec) {
	return func(k *kernel, from gp, offset int) (vec, vec) { return widen(k, k.load(from, offset)) }
}

// cacheKernels are those of attention over a cache.
func cacheKernels() (list []Kernel) {
	types := []cacheType{
		{"Float32", "float32", 2, (*kernel).loadTwo},
		{"BFloat16", "uint16", 1, readHalf((*kernel).widenBFloat16)},
		{"Float16", "uint16", 1, readHalf((*kernel).widenFloat16)},
	}
	for _, t := range types {
		a := "(rows, n int, a *" + t.element + ", lda int, "
		list = append(list,
			plain("cacheDots4"+t.name, a+"b *float32, ldb int, out *float32, ldo, ahead int)", "is CacheDots of 4 rows of b.", cacheDots(t, 4)),
			plain("cacheDots1"+t.name, a+"b, out *float32, ahead int)", "is CacheDots of 1 rows of b.", cacheDots(t, 1)),
			plain("cacheCombine4"+t.name, a+"x *float32, ldx int, to *float32, ldt, ahead int)", "is CacheCombine of 4 rows of the result.", cacheCombine(t, 4)),
			plain("cacheCombine1"+t.name, a+"x, to *float32, ahead int)", "is CacheCombine of 1 rows of the result.", cacheCombine(t, 1)))
	}
	return list
}

// eight is how many numbers a round of a cache's kernels takes.
const eight = 8

// cacheStride is a parameter that counts the numbers of a cache, in bytes.
func (k *kernel) cacheStride(name string, t cacheType) gp {
	r := k.integer(name)
	k.shiftLeft(r, t.log)
	return r
}

// prefetch asks for the line that is so many bytes ahead.
func (k *kernel) prefetch(at, ahead gp) {
	line := k.gp()
	k.plus(line, at, ahead)
	k.general("PRFM (R%[1]d), PLDL1KEEP", nil, []gp{line})
}

// cacheDots multiplies two rows at a time by some of float32.
func cacheDots(t cacheType, heads int) func(*kernel) {
	return func(k *kernel) {
		rows, a, lda, ahead := k.integer("rows"), k.integer("a"), k.cacheStride("lda", t), k.integer("ahead")
		b, out := []gp{k.integer("b")}, []gp{k.integer("out")}
		if heads > 1 {
			b, out = k.apart(b[0], k.elements("ldb"), heads), k.apart(out[0], k.elements("ldo"), heads)
		}
		for _, height := range []int{2, 1} {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
			k.label(label("rows"))
			k.compareWith(rows, height)
			k.branch(less, label("end"))
			at := make([]gp, height)
			for r := range at {
				at[r] = k.gp()
				if r == 0 {
					k.move(at[0], a)
				} else {
					k.plus(at[r], at[r-1], lda)
				}
			}
			k.plus(a, at[height-1], lda)
			sums := make([][]vec, heads)
			for h := range sums {
				for range height {
					sums[h] = append(sums[h], k.zeros())
				}
			}
			left, column := k.integer("n"), k.gp()
			k.zero(column)
			k.label(label("numbers"))
			low, high := make([]vec, height), make([]vec, height)
			for r := range at {
				k.prefetch(at[r], ahead)
				low[r], high[r] = t.read(k, at[r], 0)
				k.increase(at[r], eight<<t.log)
			}
			for h := range sums {
				from := k.gp()
				k.plus(from, b[h], column)
				x, y := k.loadTwo(from, 0)
				for r, sum := range sums[h] {
					k.fma(sum, low[r], x)
					k.fma(sum, high[r], y)
				}
			}
			k.increase(column, 2*bytes)
			k.decrease(left, eight)
			k.compareWith(left, 0)
			k.branch(notEqual, label("numbers"))
			for h := range sums {
				for r, sum := range sums[h] {
					k.storePart(k.one(), k.total(sum), out[h], r*k.size())
				}
				k.increase(out[h], height*k.size())
			}
			k.decrease(rows, height)
			k.goTo(label("rows"))
			k.label(label("end"))
		}
	}
}

// cacheCombine keeps some vectors of each row of the result in registers while the rows of a go by.
func cacheCombine(t cacheType, heads int) func(*kernel) {
	return func(k *kernel) {
		n, a, lda, ahead := k.integer("n"), k.integer("a"), k.cacheStride("lda", t), k.integer("ahead")
		to := []gp{k.integer("to")}
		var ldx gp
		if heads > 1 {
			to, ldx = k.apart(to[0], k.elements("ldt"), heads), k.elements("ldx")
		}
		for _, rounds := range []int{2, 1} {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, rounds) }
			k.label(label("columns"))
			k.compareWith(n, rounds*eight)
			k.branch(less, label("end"))
			sums := make([][]vec, heads)
			for h := range sums {
				for v := range 2 * rounds {
					sums[h] = append(sums[h], k.load(to[h], v*bytes))
				}
			}
			at, x, rows := k.gp(), k.integer("x"), k.integer("rows")
			k.move(at, a)
			k.label(label("row"))
			k.prefetch(at, ahead)
			y := make([]vec, 2*rounds)
			for v := 0; v < len(y); v += 2 {
				y[v], y[v+1] = t.read(k, at, v/2*eight<<t.log)
			}
			weight := k.gp()
			k.move(weight, x)
			for h := range sums {
				factor := k.loadAll(weight)
				for v, sum := range sums[h] {
					k.fma(sum, y[v], factor)
				}
				if h+1 < heads {
					k.plus(weight, weight, ldx)
				}
			}
			k.plus(at, at, lda)
			k.increase(x, k.size())
			k.countDown(rows, label("row"))
			for h := range sums {
				for v, sum := range sums[h] {
					k.store(sum, to[h], v*bytes)
				}
				k.increase(to[h], 2*rounds*bytes)
			}
			k.increase(a, rounds*eight<<t.log)
			k.decrease(n, rounds*eight)
			k.goTo(label("columns"))
			k.label(label("end"))
		}
	}
}
