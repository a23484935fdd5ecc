package neon

import "fmt"

const (
	listedDots4Parameters    = "(n, d int, a *T, lda int, list *int64, b *T, ldb int, out *T, ldo int)"
	listedDots1Parameters    = "(n, d int, a *T, lda int, list *int64, b, out *T)"
	listedCombine4Parameters = "(n, d int, a *T, lda int, list *int64, x *T, ldx int, c *T, ldc int)"
	listedCombine1Parameters = "(n, d int, a *T, lda int, list *int64, x, c *T)"
)

// listedRow is the row of a that the next number of a list says.
func (k *kernel) listedRow(list, a, lda gp) gp {
	at := k.gp()
	k.general("MOVD (R%[2]d), R%[1]d", []gp{at}, []gp{list})
	k.general("MADD R%[3]d, R%[4]d, R%[2]d, R%[1]d", []gp{at}, []gp{at, lda, a}) // at·lda + a
	k.increase(list, 8)
	return at
}

// apart are the pointers to some rows.
func (k *kernel) apart(first, stride gp, rows int) []gp {
	list := []gp{first}
	for i := 1; i < rows; i++ {
		list = append(list, k.gp())
		k.plus(list[i], list[i-1], stride)
	}
	return list
}

// listedDots4 multiplies each row of a list by four others.
func listedDots4(k *kernel) {
	const heads = 4
	n, a, lda, list, d := k.integer("n"), k.integer("a"), k.elements("lda"), k.integer("list"), k.elements("d")
	b, out := k.apart(k.integer("b"), k.elements("ldb"), heads), k.apart(k.integer("out"), k.elements("ldo"), heads)
	k.label("row")
	at, i := k.listedRow(list, a, lda), k.gp()
	var sums [heads]vec
	for h := range sums {
		sums[h] = k.zeros()
	}
	k.zero(i)
	k.each("vector", i, d, bytes, func() {
		y := k.loadAt(whole16, at, i)
		for h, sum := range sums {
			k.fma(sum, y, k.loadAt(whole16, b[h], i))
		}
	})
	for h, sum := range sums {
		k.storePart(k.one(), k.total(sum), out[h], 0)
		k.increase(out[h], k.size())
	}
	k.countDown(n, "row")
}

// listedDots1 multiplies four rows of a list at a time by another.
func listedDots1(k *kernel) {
	n, a, lda, list, b, out, d := k.integer("n"), k.integer("a"), k.elements("lda"), k.integer("list"), k.integer("b"), k.integer("out"), k.elements("d")
	for _, height := range []int{4, 1} {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
		k.label(label("rows"))
		k.compareWith(n, height)
		k.branch(less, label("end"))
		at, sums, i := make([]gp, height), make([]vec, height), k.gp()
		for r := range at {
			at[r], sums[r] = k.listedRow(list, a, lda), k.zeros()
		}
		k.zero(i)
		k.each(label("vector"), i, d, bytes, func() {
			x := k.loadAt(whole16, b, i)
			for r, sum := range sums {
				k.fma(sum, k.loadAt(whole16, at[r], i), x)
			}
		})
		for r, sum := range sums {
			k.storePart(k.one(), k.total(sum), out, r*k.size())
		}
		k.increase(out, height*k.size())
		k.decrease(n, height)
		k.goTo(label("rows"))
		k.label(label("end"))
	}
}

// listedCombine keeps some vectors of each row of c in registers while the list goes by.
func listedCombine(heads int) func(*kernel) {
	return func(k *kernel) {
		a, lda, columns := k.integer("a"), k.elements("lda"), k.elements("d")
		c := []gp{k.integer("c")}
		var ldx gp
		if heads > 1 {
			c, ldx = k.apart(c[0], k.elements("ldc"), heads), k.elements("ldx")
		}
		for _, vectors := range []int{4, 1} {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
			k.label(label("columns"))
			k.compareWith(columns, vectors*bytes)
			k.branch(less, label("end"))
			sums := make([][]vec, heads)
			for h := range sums {
				for v := range vectors {
					sums[h] = append(sums[h], k.load(c[h], v*bytes))
				}
			}
			n, list, x := k.integer("n"), k.integer("list"), k.integer("x")
			k.label(label("row"))
			at, weight := k.listedRow(list, a, lda), k.gp()
			k.move(weight, x)
			y := make([]vec, vectors)
			for v := range y {
				y[v] = k.load(at, v*bytes)
			}
			for h := range sums {
				factor := k.loadAll(weight)
				for v, sum := range sums[h] {
					k.fma(sum, y[v], factor)
				}
				if h+1 < heads {
					k.plus(weight, weight, ldx)
				}
			}
			k.increase(x, k.size())
			k.countDown(n, label("row"))
			for h := range sums {
				for v, sum := range sums[h] {
					k.store(sum, c[h], v*bytes)
				}
				k.increase(c[h], vectors*bytes)
			}
			k.increase(a, vectors*bytes)
			k.decrease(columns, vectors*bytes)
			k.goTo(label("columns"))
			k.label(label("end"))
		}
	}
}

// listedAdd adds to one row of the list after the other, for the list may have a row twice.
func listedAdd(k *kernel) {
	n, a, lda, list, x, ldx, ldb := k.integer("n"), k.integer("a"), k.elements("lda"), k.integer("list"), k.integer("x"), k.elements("ldx"), k.elements("ldb")
	k.label("row")
	at, b, columns := k.listedRow(list, a, lda), k.integer("b"), k.elements("d")
	for _, vectors := range []int{4, 1} {
		label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
		k.label(label("columns"))
		k.compareWith(columns, vectors*bytes)
		k.branch(less, label("end"))
		sums := make([]vec, vectors)
		for v := range sums {
			sums[v] = k.load(at, v*bytes)
		}
		weight, row, heads := k.gp(), k.gp(), k.integer("heads")
		k.move(weight, x)
		k.move(row, b)
		k.label(label("head"))
		factor := k.loadAll(weight)
		for v, sum := range sums {
			k.fma(sum, k.load(row, v*bytes), factor)
		}
		k.plus(weight, weight, ldx)
		k.plus(row, row, ldb)
		k.countDown(heads, label("head"))
		for v, sum := range sums {
			k.store(sum, at, v*bytes)
		}
		k.increase(at, vectors*bytes)
		k.increase(b, vectors*bytes)
		k.decrease(columns, vectors*bytes)
		k.goTo(label("columns"))
		k.label(label("end"))
	}
	k.increase(x, k.size())
	k.countDown(n, "row")
}
