package neon

import "fmt"

// widening makes two vectors of float32 of one of 16-bit floats.
type widening func(k *kernel, x vec) (low, high vec)

const (
	halfBytes = 2                 // of a number
	halves    = bytes / halfBytes // of a vector
)

// halfDots takes four rows at once, as dotsWithOne does. n is a multiple of a vector of 16-bit
// floats.
func halfDots(widen widening) func(*kernel) {
	return func(k *kernel) {
		rows, end, a, lda, b, out := k.integer("rows"), k.integer("n"), k.integer("a"), k.integer("lda"), k.integer("b"), k.integer("out")
		k.shiftLeft(end, 1)
		k.shiftLeft(lda, 1)
		for _, height := range []int{4, 1} {
			label := func(name string) string { return fmt.Sprintf("%s%d", name, height) }
			k.label(label("rows"))
			k.compareWith(rows, height)
			k.branch(less, label("end"))
			at, sums := make([]gp, height), make([][2]vec, height)
			for i := range at {
				at[i], sums[i] = k.gp(), [2]vec{k.zeros(), k.zeros()}
				if i == 0 {
					k.move(at[0], a)
				} else {
					k.plus(at[i], at[i-1], lda)
				}
			}
			i, from := k.gp(), k.gp()
			k.zero(i)
			k.move(from, b)
			k.each(label("vector"), i, end, bytes, func() {
				x, y := k.loadTwo(from, 0)
				k.increase(from, 2*bytes)
				for r, sum := range sums {
					low, high := widen(k, k.loadAt(whole16, at[r], i))
					k.fma(sum[0], low, x)
					k.fma(sum[1], high, y)
				}
			})
			for r, sum := range sums {
				k.storePart(k.one(), k.total(k.add(sum[0], sum[1])), out, r*k.size())
			}
			k.plus(a, at[height-1], lda)
			k.increase(out, height*k.size())
			k.decrease(rows, height)
			k.goTo(label("rows"))
			k.label(label("end"))
		}
	}
}

// halfCombine keeps some vectors of c in registers while the rows go by. n is a multiple of a
// vector of 16-bit floats.
func halfCombine(widen widening) func(*kernel) {
	return func(k *kernel) {
		n, a, lda, step, c := k.integer("n"), k.integer("a"), k.integer("lda"), k.elements("step"), k.integer("c")
		k.shiftLeft(lda, 1)
		for _, vectors := range []int{4, 1} { // of a
			label := func(name string) string { return fmt.Sprintf("%s%d", name, vectors) }
			k.label(label("columns"))
			k.compareWith(n, vectors*halves)
			k.branch(less, label("end"))
			sums := make([]vec, 2*vectors)
			for j := range sums {
				sums[j] = k.zeros()
			}
			k.ifZero(k.integer("accumulate"), label("start"))
			for j, sum := range sums {
				k.load(c, j*bytes, sum)
			}
			k.label(label("start"))
			at, x, rows := k.gp(), k.integer("x"), k.integer("rows")
			k.move(at, a)
			k.label(label("row"))
			factor := k.loadAll(x)
			for j := range vectors {
				low, high := widen(k, k.load(at, j*bytes))
				k.fma(sums[2*j], low, factor)
				k.fma(sums[2*j+1], high, factor)
			}
			k.plus(at, at, lda)
			k.plus(x, x, step)
			k.countDown(rows, label("row"))
			for j, sum := range sums {
				k.store(sum, c, j*bytes)
			}
			k.increase(a, vectors*bytes)
			k.increase(c, 2*vectors*bytes)
			k.decrease(n, vectors*halves)
			k.goTo(label("columns"))
			k.label(label("end"))
		}
	}
}
